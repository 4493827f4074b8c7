"""Hints: places in a candidate's source that look like what the field knows as hacks.

A hint convicts nobody: an honest kernel may read a clock, and a hostile one may hide what it does
behind a name that is computed when it runs, which this reading can only report as unreadable. What
happened is established by the gates. A hint says where a reader should look first.

The list is put together from what published checkers and audits name: KernelGuard's rule names,
KernelBench's static checker, and the accounts of METR, Makora, Sakana and wafer.ai.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from adjudge.contract import Hint
from adjudge.static.device_code import bare
from adjudge.static.inline import inline_sources
from adjudge.static.names import UNKNOWN
from adjudge.static.source import Source

Found = Iterator[tuple[ast.AST, str]]
Rule = Callable[[Source], Found]

#: Rule -> dotted paths whose use it reports; a path covers everything below it.
_PATHS: dict[str, tuple[str, ...]] = {
    "walks-stack": (
        "sys._getframe", "sys._current_frames", "inspect.stack", "inspect.currentframe",
        "inspect.trace", "inspect.getouterframes", "traceback.walk_stack", "traceback.extract_stack",
        "gc.get_objects", "gc.get_referrers", "gc.get_referents", "ctypes.pythonapi",
    ),
    "reads-clock": (
        "time.time", "time.time_ns", "time.perf_counter", "time.perf_counter_ns", "time.monotonic",
        "time.monotonic_ns", "time.process_time", "time.sleep", "datetime.datetime.now",
        "torch.cuda.Event", "torch.utils.benchmark", "timeit",
    ),
    "starts-work": (
        "threading.Thread", "threading.Timer", "_thread.start_new_thread", "concurrent.futures",
        "multiprocessing", "torch.multiprocessing", "asyncio", "os.fork", "os.system", "os.popen",
        "os.posix_spawn", "os.execv", "os.execvp", "os.execve", "os.kill", "subprocess",
        "atexit.register", "signal.signal", "signal.setitimer", "signal.alarm", "weakref.finalize",
        "torch.futures", "torch.jit.fork",
    ),
    "side-stream": (
        "torch.cuda.Stream", "torch.cuda.ExternalStream", "torch.cuda.stream",
        "torch.cuda.set_stream", "torch.cuda.CUDAGraph", "torch.cuda.graph",
        "torch.cuda.make_graphed_callables",
    ),
    "reads-machine": (
        "open", "io.open", "os.open", "os.read", "os.environ", "os.getenv", "os.listdir", "os.walk",
        "os.scandir", "os.path.exists", "glob", "pathlib.Path", "mmap", "socket", "urllib",
        "requests", "http", "torch.load", "torch.hub", "numpy.load", "numpy.fromfile", "shutil",
        "tempfile", "sys.argv",
    ),
    "runs-text": (
        "eval", "exec", "compile", "marshal", "pickle", "types.FunctionType", "types.CodeType",
        "runpy", "importlib.reload", "importlib.util.spec_from_file_location",
    ),
    "lazy-tensor": (
        "torch.Tensor._make_subclass", "torch.Tensor._make_wrapper_subclass",
        "torch.utils._python_dispatch", "torch.overrides.TorchFunctionMode",
    ),
    "patches": (
        "setattr", "unittest.mock", "mock", "torch.library.Library", "torch.library.impl",
        "torch._C._set_grad_enabled", "ctypes.memmove", "ctypes.memset",
    ),
    "recognises-judge": (
        "sys.gettrace", "sys.getprofile", "sys.settrace", "sys.setprofile", "sys.addaudithook",
        "triton.runtime.interpreter", "triton.knobs",
    ),
}  # fmt: skip

#: Attributes that name what only a hack needs, whatever they are asked of.
_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "walks-stack": (
        "f_back", "f_locals", "f_globals", "tb_frame", "gi_frame", "cr_frame", "__closure__",
        "cell_contents", "__subclasses__", "__globals__",
    ),
    "lazy-tensor": ("__torch_function__", "__torch_dispatch__", "as_subclass"),
}  # fmt: skip

#: Modules whose attributes are not the candidate's to change.
_FOREIGN = ("torch", "triton", "time", "builtins", "sys", "numpy", "math", "gc", "os", "inspect")
_WORDS_OF_JUDGES = ("adjudge", "TRITON_INTERPRET", "kernelbench", "KERNEL_BENCH", "POPCORN")
#: A size below this is a rank or a count that honest code compares with.
_SIZE = 16


def hints(text: str) -> tuple[Hint, ...]:
    """Everything that looks like a hack, in the order of the text; nothing if it is no Python."""
    try:
        source = Source(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found = {
        (getattr(node, "lineno", 1), rule, words)
        for rule, look in RULES
        for node, words in look(source)
    }
    return tuple(Hint(rule=rule, line=line, words=words) for line, rule, words in sorted(found))


def _uses(rule: str) -> Rule:
    paths, attributes = _PATHS.get(rule, ()), _ATTRIBUTES.get(rule, ())

    def look(source: Source) -> Found:
        for node in source.host:
            if isinstance(node, ast.Attribute) and node.attr in attributes:
                yield node, f"asks for {node.attr}"
            elif isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
                if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
                    continue
                for path in source.names.paths(node):
                    if any(path == p or path.startswith(f"{p}.") for p in paths):
                        yield node, f"uses {path}"
            elif isinstance(node, ast.FunctionDef) and node.name in attributes:
                yield node, f"defines {node.name}"

    return look


def _computed_name(source: Source) -> Found:
    for node in source.host:
        if isinstance(node, (ast.Call, ast.Subscript)):
            for path in source.names.paths(node):
                if path == UNKNOWN or path.endswith(f".{UNKNOWN}"):
                    yield node, f"asks for {path}: the name is computed at run time"


def _patches(source: Source) -> Found:
    yield from _uses("patches")(source)
    for node in source.host:
        for target in _targets(node):
            if isinstance(target, ast.Attribute) and target.attr in ("__code__", "__class__"):
                yield node, f"replaces {target.attr}"
            elif isinstance(target, ast.Attribute) and _is_given_a_method(target, node):
                yield node, f"replaces the method {target.attr} of one tensor"
            elif isinstance(target, (ast.Attribute, ast.Subscript)):
                base = source.names.paths(target.value)
                for path in source.names.paths(target) or base:
                    if path.split(".")[0] in _FOREIGN:
                        yield node, f"changes {path}"


def _is_given_a_method(target: ast.Attribute, node: ast.AST) -> bool:
    """`out.allclose = lambda ...`: what is asked of this one tensor is answered by the candidate."""
    return isinstance(node, ast.Assign) and target.attr in _ASKED and _is_code(node.value)


#: Methods by which an answer is looked at and compared.
_ASKED = frozenset(
    "allclose equal eq ne isclose __eq__ __ne__ __sub__ __rsub__ sub abs max amax mean sum all any item "
    "tolist numpy cpu cuda to float double half clone detach contiguous data_ptr size numel".split()
)


def _is_code(value: ast.expr) -> bool:
    match value:
        case ast.Lambda():
            return True
        case ast.Call(func=ast.Attribute(attr="MethodType") | ast.Name(id="MethodType")):
            return True
    return False


def _targets(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            return targets
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return [target]
    return []


def _lazy_tensor(source: Source) -> Found:
    yield from _uses("lazy-tensor")(source)
    for node in source.host:
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                if source.names.paths(base) & {"torch.Tensor", "torch.nn.Parameter"}:
                    yield node, "derives a class from torch.Tensor"


def _pointer_key(source: Source) -> Found:
    """An address or an identity that something is looked up or compared by."""
    tainted: set[str] = set()
    for node in source.host:
        if isinstance(node, ast.Assign) and any(_is_identity(n) for n in ast.walk(node.value)):
            tainted |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    for node in source.host:
        if _is_identity(node) or (isinstance(node, ast.Name) and node.id in tainted):
            for holder in source.above(node):
                if _looks_up(holder):
                    yield node, "looks something up, or compares, by an address or identity"
                if isinstance(holder, ast.stmt):
                    break


def _is_identity(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="id"), args=[_]):
            return True
        case ast.Call(func=ast.Attribute(attr="data_ptr" | "_cdata")):
            return True
    return False


def _looks_up(node: ast.AST) -> bool:
    match node:
        case ast.Compare(comparators=[ast.Constant(value=None)]):
            # Whether there is an address at all.
            return False
        case ast.Subscript() | ast.Dict() | ast.Compare():
            # An address modulo something is a question about alignment.
            return not any(isinstance(n, ast.Mod) for n in ast.walk(node))
        case ast.Call(func=ast.Attribute(attr="get" | "setdefault" | "pop" | "add")):
            return True
    return False


def _keeps_state(source: Source) -> Found:
    """What one call leaves behind for the next."""
    for node in source.host:
        if not source.in_a_call(node):
            continue
        for target in _targets(node):
            if isinstance(node, ast.AugAssign) and _is_kept(source, target):
                yield node, f"counts in {ast.unparse(target)}"
            elif isinstance(node, ast.Assign) and _is_kept(source, target, node.value):
                yield node, f"keeps {ast.unparse(target)} for later calls"
        match node:
            case ast.Call(func=ast.Attribute(value=holder, attr=method)) if (
                method in _FILLS and _is_container(source, node, holder)
            ):
                yield node, f"keeps what it puts into {ast.unparse(holder)} for later calls"
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            yield node, f"writes {', '.join(node.names)} of an outer scope"
    for node in source.host:
        if isinstance(node, ast.Attribute | ast.Name):
            caches = source.names.paths(node) & {"functools.lru_cache", "functools.cache"}
            for path in caches:
                yield node, f"uses {path}"


#: Methods that leave their argument in what they are called on.
_FILLS = frozenset("append appendleft extend insert update setdefault copy_".split())


def _is_container(source: Source, node: ast.AST, holder: ast.expr) -> bool:
    """Whether what is filled outlives the call: an attribute of self, a name of the module, or a default
    value of the function's own."""
    match holder:
        case ast.Attribute(value=ast.Name(id="self")):
            return True
        case ast.Name(id=name):
            function = source.function(node)
            return _is_of_the_module(source, name) or (
                function is not None and name in _with_defaults(function)
            )
    return False


def _with_defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Parameters whose default value is a container, made once for all calls."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    pairs = [
        *zip(reversed(positional), reversed(given.defaults), strict=False),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    return {
        name.arg for name, default in pairs if isinstance(default, (ast.List, ast.Dict, ast.Set))
    }


def _is_of_the_module(source: Source, name: str) -> bool:
    """Whether the module itself assigns the name."""
    return any(
        isinstance(node, (ast.Assign, ast.AnnAssign))
        and any(isinstance(t, ast.Name) and t.id == name for t in _targets(node))
        for node in source.tree.body
    )


def _is_moved(target: ast.expr, value: ast.expr) -> bool:
    """`self.x = self.x.to(device)`: the same values in another place."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr not in ("to", "cuda", "contiguous", "type_as"):
            return False
        value = value.func.value
    return ast.unparse(value) == ast.unparse(target)


def _is_kept(source: Source, target: ast.expr, value: ast.expr | None = None) -> bool:
    """Whether a target outlives the call: an attribute of self, an entry of a container there or in
    the module; not where the value was there before."""
    if value is not None and _is_moved(target, value):
        return False
    match target:
        case ast.Attribute(value=ast.Name(id="self")):
            return True
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id="self"))):
            return True
        case ast.Subscript(value=ast.Name(id=name)):
            return _is_of_the_module(source, name)
        case ast.Attribute(value=ast.Name(id=name)):
            # An attribute of a class or function that the module defines.
            defined = (ast.ClassDef, ast.FunctionDef)
            return any(isinstance(n, defined) and n.name == name for n in source.tree.body)
    return False


def _fallback(source: Source) -> Found:
    """Another computation that takes the kernel's place."""
    for node in source.host:
        if isinstance(node, ast.Try) and source.in_a_call(node):
            for handler in node.handlers:
                if any(isinstance(n, ast.Call) for s in handler.body for n in _answers(s)):
                    yield handler, "answers an exception with another computation"
        elif isinstance(node, ast.If) and source.in_a_call(node):
            asked = {n.attr for n in ast.walk(node.test) if isinstance(n, ast.Attribute)}
            if asked & {"is_cuda", "is_available", "type"} and _branches_away(node):
                yield node, "computes something else on another device"


def _answers(statement: ast.stmt) -> Iterator[ast.AST]:
    """What a statement computes, raised exceptions and messages left out."""
    if isinstance(statement, ast.Raise):
        return
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"))):
            return
    yield from ast.walk(statement)


def _branches_away(node: ast.If) -> bool:
    return any(
        isinstance(n, ast.Return) and n.value is not None
        for branch in (node.body, node.orelse)
        for statement in branch
        for n in ast.walk(statement)
    )


def _passes_through(source: Source) -> Found:
    """An input handed back, or a tensor that nothing was computed into."""
    for node in source.host:
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        function = source.function(node)
        if function is None or function.name not in ("forward", "__call__", "custom_kernel", "run"):
            continue
        if _is_guarded(source, node):
            continue
        value = node.value
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if value.func.attr not in ("clone", "detach", "contiguous", "view_as", "reshape", "to"):
                break
            value = value.func.value
        arguments = {a.arg for a in function.args.args} - {"self"}
        if isinstance(value, ast.Name) and value.id in arguments - _rebound(function):
            yield node, f"returns its argument {value.id}"
        elif source.names.paths(_callee(value)) & _CONSTANT:
            yield node, "returns a tensor that depends on nothing"


def _is_guarded(source: Source, node: ast.AST) -> bool:
    """Whether it only happens where there is nothing to compute: `if x.numel() == 0`, `if n < 1`."""
    inner = node
    for holder in source.above(node):
        if isinstance(holder, ast.If) and inner in holder.body:
            parts = holder.test.values if isinstance(holder.test, ast.BoolOp) else [holder.test]
            if all(map(_asks_for_nothing, parts)):
                return True
        inner = holder
    return False


def _asks_for_nothing(test: ast.expr) -> bool:
    match test:
        case ast.Compare(ops=[ast.Eq() | ast.LtE()], comparators=[ast.Constant(value=0)]):
            return True
        case ast.Compare(ops=[ast.Lt()], comparators=[ast.Constant(value=1)]):
            return True
        case ast.Compare(left=ast.Constant(value=0), ops=[ast.Eq() | ast.In()]):
            return True
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Attribute(attr="numel"))):
            return True
    return False


_CONSTANT = frozenset(
    f"torch.{name}"
    for name in (
        "zeros",
        "ones",
        "empty",
        "full",
        "zeros_like",
        "ones_like",
        "empty_like",
        "full_like",
    )
)


def _callee(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _rebound(function: ast.AST) -> set[str]:
    """Names that the function assigns, or may write through: passed to a launch or a call."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Call):
            found |= {a.id for a in node.args if isinstance(a, ast.Name)}
            match node.func:
                case ast.Attribute(value=ast.Name(id=name), attr=attr) if attr.endswith("_"):
                    found.add(name)
    return found


def _shape_table(source: Source) -> Found:
    """Answers that depend on one exact shape."""
    for node in source.host:
        if isinstance(node, ast.Compare) and source.in_a_call(node):
            equal = any(isinstance(op, (ast.Eq, ast.In)) for op in node.ops)
            asks = any(_is_shape(n) for n in ast.walk(node.left))
            branches = any(isinstance(n, (ast.If, ast.IfExp)) for n in source.above(node))
            if equal and asks and branches and any(map(_is_sizes, node.comparators)):
                yield node, "does something else at one exact shape"
        elif isinstance(node, ast.Dict):
            keys = [key for key in node.keys if isinstance(key, ast.Tuple)]
            if len(keys) > 1 and all(map(_is_sizes, keys)):
                yield node, "a table with shapes as its keys"


def _is_shape(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="shape"):
            return True
        case ast.Call(func=ast.Attribute(attr="size" | "numel")):
            return True
    return False


def _is_sizes(node: ast.AST) -> bool:
    numbers = [
        n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and type(n.value) is int
    ]
    return bool(numbers) and max(numbers) >= _SIZE


def _recognises(source: Source) -> Found:
    yield from _uses("recognises-judge")(source)
    for node in source.host:
        text = source.names.text(node) if isinstance(node, ast.expr) else None
        for word in _WORDS_OF_JUDGES:
            if text is not None and word in text and not _is_a_label(source, node):
                yield node, f"names {word}"
        match node:
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[where]):
                if "sys.modules" in source.names.paths(where):
                    yield node, "asks which modules are loaded"


def _is_a_label(source: Source, node: ast.AST) -> bool:
    """A text that says something and decides nothing: a docstring, the name of an extension."""
    holder = next(source.above(node), None)
    return isinstance(holder, ast.Expr) or (
        isinstance(holder, ast.keyword) and holder.arg in ("name", "desc", "description")
    )


def _less_precise(source: Source) -> Found:
    """Sums and products kept in fewer bits than the operands' own kind."""
    for kernel in source.kernels.values():
        for node in ast.walk(kernel):
            if not isinstance(node, ast.Call):
                continue
            called = source.names.paths(node.func)
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            if "triton.language.zeros" in called or "triton.language.full" in called:
                kinds = [*node.args[1:], *([given["dtype"]] if "dtype" in given else [])]
                if any(source.names.paths(kind) & _NARROW for kind in kinds):
                    yield node, "accumulates in 16 bits"
            elif "triton.language.dot" in called:
                if source.names.paths(given.get("out_dtype", node)) & _NARROW:
                    yield node, "a matrix product summed in 16 bits"
                precision = source.names.text(given.get("input_precision", node))
                allowed = given.get("allow_tf32")
                if (precision or "").startswith("tf32") or (
                    isinstance(allowed, ast.Constant) and allowed.value is True
                ):
                    yield node, "a matrix product whose operands may be cut to 10 bits (tf32)"


_NARROW = frozenset({"triton.language.float16", "triton.language.bfloat16"})


def _reads_values(source: Source) -> Found:
    """Another computation for inputs that look special: the answer depends on more than was asked."""
    for node in source.host:
        if not isinstance(node, ast.If) or not source.in_a_call(node) or not _branches_away(node):
            continue
        if _asks_for_values(source, node.test):
            yield node, "looks at values of tensors to choose what is computed"


def _asks_for_values(source: Source, test: ast.expr) -> bool:
    for node in ast.walk(test):
        match node:
            case ast.Call(func=ast.Attribute(attr="item" | "tolist" | "any" | "all"), args=[]):
                return True
            case ast.Call(func=function):
                if source.names.paths(function) & _OF_VALUES:
                    return True
    return False


_OF_VALUES = frozenset(
    f"torch.{name}" for name in ("equal", "allclose", "any", "all", "count_nonzero", "isclose")
)
#: What a benchmark's task defines, and a candidate has no need to call.
_OF_THE_TASK = ("get_inputs", "get_init_inputs", "get_test_inputs", "generate_input", "ref_kernel")


def _uses_reference(source: Source) -> Found:
    """The reference, or the task's inputs, inside the candidate: answers worked out beforehand."""
    main = [n for n in source.tree.body if isinstance(n, ast.If) and "__main__" in ast.dump(n.test)]
    aside = {node for part in main for node in ast.walk(part)}
    models = {n.name: n for n in source.tree.body if isinstance(n, ast.ClassDef)}
    for node in source.host:
        if node in aside:
            continue
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in _OF_THE_TASK:
                function = source.function(node)
                if function is None or function.name not in _OF_THE_TASK:
                    yield node, f"calls {name} of the task"
            case (
                ast.ImportFrom(module="reference") | ast.Import(names=[ast.alias(name="reference")])
            ):
                yield node, "imports the reference"
            case ast.ClassDef(name="ModelNew", bases=bases):
                if any(isinstance(b, ast.Name) and b.id == "Model" for b in bases):
                    yield node, "derives from the reference"
            case ast.Call(func=ast.Name(id="Model")) if "ModelNew" in models:
                yield node, "builds the reference"


#: Rule -> what in CUDA C++ names the same; looked for outside comments and strings.
_IN_CUDA: dict[str, re.Pattern[str]] = {
    "starts-work": re.compile(
        r"\b(?:std::(?:thread|async|jthread)|pthread_create|fork|system|popen)\b"
    ),
    "side-stream": re.compile(
        r"\b(?:cudaStreamCreate\w*|getStreamFromPool|cudaGraph\w+|cudaStreamBeginCapture|setCurrentCUDAStream)\b"
    ),
    "reads-machine": re.compile(r"\b(?:getenv|fopen|open|ifstream|mmap|dlopen|dlsym)\s*[(<\s]"),
    "walks-stack": re.compile(
        r"\b(?:PyEval_\w+|PyFrame_\w+|PyThreadState_\w+|PyGC_\w+|backtrace)\b"
    ),
    "reads-clock": re.compile(
        r"\b(?:std::chrono|cudaEventElapsedTime|cudaEventRecord|gettimeofday)\b"
    ),
    "patches": re.compile(r"\b(?:PyObject_SetAttr\w*|mprotect|LD_PRELOAD)\b"),
    "keeps-state": re.compile(
        r"\bstatic\s+(?:thread_local\s+)?(?:std::(?:unordered_)?map|(?:torch|at)::Tensor|std::vector|"
        r"std::optional)\b"
    ),
    "pointer-key": re.compile(r"\bdata_ptr\s*(?:<[^>]*>)?\s*\(\s*\)\s*(?:==|!=)"),
}


def _in_cuda(rule: str) -> Rule:
    pattern = _IN_CUDA[rule]

    def look(source: Source) -> Found:
        for extension in inline_sources(source)[0]:
            for found in dict.fromkeys(pattern.findall(bare(extension.text))):
                words = f"its CUDA C++ uses {' '.join(found.split())}"
                yield ast.Pass(lineno=extension.line, col_offset=0), words

    return look


#: Each rule by its name. What a rule looks for is in its words.
RULES: tuple[tuple[str, Rule], ...] = (
    ("pointer-key", _pointer_key),
    ("keeps-state", _keeps_state),
    ("walks-stack", _uses("walks-stack")),
    ("patches", _patches),
    ("reads-clock", _uses("reads-clock")),
    ("starts-work", _uses("starts-work")),
    ("side-stream", _uses("side-stream")),
    ("lazy-tensor", _lazy_tensor),
    ("fallback", _fallback),
    ("reads-machine", _uses("reads-machine")),
    ("runs-text", _uses("runs-text")),
    ("passes-through", _passes_through),
    ("shape-table", _shape_table),
    ("recognises-judge", _recognises),
    ("computed-name", _computed_name),
    ("less-precise", _less_precise),
    ("reads-values", _reads_values),
    ("uses-reference", _uses_reference),
    *((rule, _in_cuda(rule)) for rule in _IN_CUDA),
)
