"""Names whose use is a hint: the stack, clocks, other threads and processes, streams, files, text that
is executed, tensors that are computed later, and what belongs to torch or to the judge."""

from __future__ import annotations

import ast

from adjudge.static.hints.common import Found, Rule, targets
from adjudge.static.names import UNKNOWN
from adjudge.static.source import Source

#: Rule -> dotted paths whose use it reports; a path covers everything below it.
_PATHS: dict[str, tuple[str, ...]] = {
    "walks-stack": (
        "sys._getframe", "sys._current_frames", "inspect.stack", "inspect.currentframe",
        "inspect.trace", "inspect.getouterframes", "traceback.walk_stack", "traceback.extract_stack",
        "gc.get_objects", "gc.get_referrers", "gc.get_referents", "ctypes.pythonapi",
    ),
    "reads-clock": (
        "time.time", "time.time_ns", "time.perf_counter", "time.perf_counter_ns", "time.monotonic",
        "time.monotonic_ns", "time.process_time", "time.sleep", "time.clock_gettime",
        "time.clock_gettime_ns", "time.thread_time", "time.localtime", "datetime.datetime.now",
        "datetime.datetime.utcnow", "datetime.datetime.today",
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
        "torch.cuda.make_graphed_callables", "torch.cuda.graphs", "torch.cuda.streams",
        "torch.cuda.StreamContext", "torch.Stream",
    ),
    "reads-machine": (
        "open", "io.open", "os.open", "os.read", "os.environ", "os.getenv", "os.listdir", "os.walk",
        "os.scandir", "os.path.exists", "glob", "pathlib.Path", "mmap", "socket", "urllib",
        "requests", "http", "torch.load", "torch.hub", "numpy.load", "numpy.fromfile", "shutil",
        "tempfile", "sys.argv", "torch.from_file", "torch.UntypedStorage.from_file", "torch.save",
        "os.path.expandvars", "os.path.expanduser", "os.path.isfile", "os.path.isdir", "os.stat",
        "os.environb", "os.putenv", "linecache", "fileinput", "numpy.memmap", "ctypes.CDLL",
        "ctypes.cdll", "ctypes.PyDLL",
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
        "triton.runtime.interpreter", "triton.knobs", "__main__",
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


def uses(rule: str) -> Rule:
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


def computed_name(source: Source) -> Found:
    for node in source.host:
        if isinstance(node, (ast.Call, ast.Subscript)):
            for path in source.names.paths(node):
                if path == UNKNOWN or path.endswith(f".{UNKNOWN}"):
                    yield node, f"asks for {path}: the name is computed at run time"


def patches(source: Source) -> Found:
    yield from uses("patches")(source)
    for node in source.host:
        if isinstance(node, ast.Call):
            yield from _rewrites(source, node)
        for target in targets(node):
            if isinstance(target, ast.Attribute) and target.attr in ("__code__", "__class__"):
                yield node, f"replaces {target.attr}"
            elif isinstance(target, ast.Attribute) and _is_given_a_method(target, node):
                yield node, f"replaces the method {target.attr} of one tensor"
            elif isinstance(target, (ast.Attribute, ast.Subscript)):
                base = source.names.paths(target.value)
                for path in source.names.paths(target) or base:
                    if path.split(".")[0] in _FOREIGN:
                        yield node, f"changes {path}"


#: Methods that write an attribute or an entry.
_WRITES = frozenset(
    "update setdefault pop popitem clear __setitem__ __delitem__ __setattr__ __delattr__".split()
)


def _rewrites(source: Source, node: ast.Call) -> Found:
    """`torch.__dict__.update(...)`, `vars(torch).clear()`, `object.__setattr__(torch, ...)`."""
    called = source.names.called(node)
    if called is None or called[1] not in _WRITES:
        return
    base, method = called
    written = [base, *node.args[:1]] if method in ("__setattr__", "__delattr__") else [base]
    for one in written:
        match one:
            case ast.Call(func=function, args=[module]) if "vars" in source.names.paths(function):
                whole = source.names.paths(module)
            case ast.Attribute(value=module, attr="__dict__"):
                whole = source.names.paths(module)
            case _:
                whole = source.names.paths(one) if method.endswith("attr__") else frozenset()
        for path in whole:
            if path.split(".")[0] in _FOREIGN:
                yield node, f"changes {path} by {method}"


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


_TENSORS = frozenset({"torch.Tensor", "torch.nn.Parameter", "torch.nn.parameter.Parameter"})


def lazy_tensor(source: Source) -> Found:
    yield from uses("lazy-tensor")(source)
    for node in source.host:
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                if source.names.paths(base) & _TENSORS:
                    yield node, "derives a class from torch.Tensor"
        match node:
            case ast.Call(func=maker, args=[_, ast.Tuple(elts=bases), *_]) if source.names.paths(
                maker
            ) & {"type", "types.new_class"}:
                if any(source.names.paths(b) & _TENSORS for b in bases):
                    yield node, "derives a class from torch.Tensor"


def recognises(source: Source) -> Found:
    yield from uses("recognises-judge")(source)
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
