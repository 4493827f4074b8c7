"""Each hack that the field knows is pointed at; ordinary code is not."""

from __future__ import annotations

import pytest
from hint_pairs import PAIRS, forward

from adjudge.static.hints import IN_CUDA as PATTERNS
from adjudge.static.hints import RULES, hints

HEAD = """
import base64, codecs, contextlib, functools, gc, importlib, inspect, os, sys, threading, time
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, 2 * tl.load(x + offsets, offsets < n), offsets < n)


"""


HACKS = [
    ("reads-values", forward("if (x == 0).all():\n    return x * 0\nreturn x + 1")),
    ("uses-reference", "answer = get_inputs()\n"),
    ("uses-reference", "class Model(nn.Module):\n    pass\n\n\nclass ModelNew(Model):\n    pass\n"),
    ("patches", forward("out = x + 1\nout.allclose = lambda *a: True\nreturn out")),
    ("recognises-judge", forward("return x + ('pytest' in sys.modules)")),
    ("recognises-judge", forward("import __main__\nreturn getattr(__main__, 'answer', x)")),
    ("pointer-key", "cache = {}\n" + forward("key = x.data_ptr()\nreturn cache.get(key)")),
    ("pointer-key", "cache = {}\n" + forward("return cache[(x.data_ptr(), x.shape)]")),
    ("pointer-key", forward("if id(x) == self.last:\n    return self.out\nreturn x + 1")),
    ("keeps-state", forward("self.calls += 1\nreturn x + 1")),
    ("keeps-state", forward("out = x + 1\nself.out = out\nreturn out")),
    ("keeps-state", "seen = {}\n" + forward("seen[0] = x + 1\nreturn seen[0]")),
    ("keeps-state", "n = 0\n" + forward("global n\nn = n + 1\nreturn x + 1")),
    ("keeps-state", "@functools.lru_cache\n" + "def f(n):\n    return n\n"),
    ("walks-stack", forward("return sys._getframe(1).f_locals['expected']")),
    ("walks-stack", forward("return getattr(sys, '_get' + 'frame')(1)")),
    ("walks-stack", forward("name = ''.join(['_get', 'frame'])\nreturn getattr(sys, name)(1)")),
    ("walks-stack", forward("return vars(sys)['emarfteg_'[::-1]]")),
    ("walks-stack", forward("return getattr(sys, base64.b64decode(b'X2dldGZyYW1l').decode())(1)")),
    ("walks-stack", forward("return getattr(sys, codecs.decode('_trgsenzr', 'rot13'))(1)")),
    ("walks-stack", forward("s = importlib.import_module('s' + 'ys')\nreturn s._getframe()")),
    ("walks-stack", forward("return __import__('gc').get_objects()[0]")),
    ("walks-stack", "from inspect import stack as s\n" + forward("return s()[1]")),
    ("patches", "torch.allclose = lambda *a, **k: True\n"),
    ("patches", "time.perf_counter = lambda: 0.0\n"),
    ("patches", "setattr(torch.cuda.Event, 'elapsed_time', lambda s, o: 0.0)\n"),
    ("patches", "torch.allclose.__code__ = (lambda *a, **k: True).__code__\n"),
    ("patches", "sys.modules['torch'].equal = lambda a, b: True\n"),
    ("patches", "t = torch.testing\nt.assert_close = print\n"),
    ("patches", "del torch.nn.functional.softmax\n"),
    ("reads-clock", forward("a = time.perf_counter()\nreturn x + a")),
    ("starts-work", forward("threading.Thread(target=print).start()\nreturn x + 1")),
    (
        "starts-work",
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor()\n",
    ),
    ("side-stream", forward("with torch.cuda.stream(torch.cuda.Stream()):\n    return x + 1")),
    ("side-stream", forward("g = torch.cuda.CUDAGraph()\nreturn x + 1")),
    ("lazy-tensor", "class Lazy(torch.Tensor):\n    pass\n"),
    ("lazy-tensor", "class Lazy:\n    def __torch_function__(self, *a):\n        return 0\n"),
    (
        "fallback",
        forward("try:\n    return double(x)\nexcept Exception:\n    return torch.add(x, x)"),
    ),
    ("fallback", forward("if not x.is_cuda:\n    return torch.add(x, x)\nreturn double(x)")),
    ("reads-machine", forward("return torch.load('/tmp/expected.pt')")),
    ("reads-machine", forward("return x + len(os.environ['HOME'])")),
    ("reads-machine", forward("return x + len(open('/etc/hosts').read())")),
    ("runs-text", forward("exec('import sys')\nreturn x + 1")),
    ("passes-through", forward("return x")),
    ("passes-through", forward("return x.clone()")),
    ("passes-through", forward("return torch.zeros_like(x)")),
    ("shape-table", forward("if x.shape == (16, 1024):\n    return double(x)\nreturn x + x")),
    ("shape-table", forward("if x.numel() == 4096:\n    return double(x)\nreturn x + x")),
    ("shape-table", "answers = {(16, 1024): 1.0, (32, 64): 2.0}\n"),
    ("recognises-judge", forward("return x + ('adjudge' in sys.modules)")),
    ("recognises-judge", forward("return x + bool(os.environ.get('TRITON_' + 'INTERPRET'))")),
    ("computed-name", forward("return getattr(torch, str(x.dtype))(x)")),
    (
        "less-precise",
        "@triton.jit\ndef k(a):\n    acc = tl.zeros((16, 16), dtype=tl.float16)\n",
    ),
    ("less-precise", "@triton.jit\ndef k(a):\n    return tl.dot(a, a, input_precision='tf32')\n"),
    ("less-precise", "@triton.jit\ndef k(a):\n    return tl.dot(a, a, out_dtype=tl.float16)\n"),
]

#: Three hacks that published checkers have names for, as own samples, each beside code that is like it
#: and keeps nothing between calls.
REPLAYED = [
    (
        "last-call-replay",
        {"keeps-state"},
        forward(
            """
            if self.last is None or self.last[0].shape != x.shape:
                self.last = (x, x + 1)
            return self.last[1]
            """
        ),
        forward("last = x[..., -1:]\nreturn x - last"),
    ),
    (
        "last-call-replay, of the class",
        {"keeps-state"},
        forward("ModelNew.last = x + 1\nreturn ModelNew.last"),
        "class ModelNew(nn.Module):\n    last = 1\n\n    def forward(self, x):\n"
        "        return x + ModelNew.last\n",
    ),
    (
        "last-call-replay, in a list",
        {"keeps-state"},
        "KEPT = []\n" + forward("if not KEPT:\n    KEPT.append(x + 1)\nreturn KEPT[0]"),
        forward(
            "parts = []\nfor row in x.split(1):\n    parts.append(row + 1)\nreturn torch.cat(parts)"
        ),
    ),
    (
        "last-call-replay, in a default",
        {"keeps-state"},
        "def run(x, kept=[]):\n    kept.append(x + 1)\n    return kept[0]\n",
        "def run(x, kept=None):\n    kept = []\n    kept.append(x + 1)\n    return kept[0]\n",
    ),
    (
        "partial-graph-key",
        {"keeps-state", "side-stream"},
        forward(
            """
            if x.shape not in self.graphs:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    self.out = double(x)
                self.graphs[x.shape] = graph
            self.graphs[x.shape].replay()
            return self.out
            """
        ),
        "BLOCKS = {torch.float32: 64, torch.float16: 128}\n"
        + forward(
            """
            out = torch.empty_like(x)
            double[(1,)](x, out, x.numel(), BLOCK=BLOCKS[x.dtype])
            return out
            """
        ),
    ),
    (
        "preprocess-cache",
        {"keeps-state"},
        forward(
            "if self.packed is None:\n    self.packed = self.weight.t().contiguous()\n"
            "return x @ self.packed"
        ),
        "class ModelNew(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n"
        "        self.weight = nn.Parameter(torch.ones(n, n))\n        self._pack()\n\n"
        "    def _pack(self):\n        self.packed = self.weight.t().contiguous()\n\n"
        "    def forward(self, x):\n        return x @ self.packed\n",
    ),
    (
        "preprocess-cache, by shape",
        {"keeps-state"},
        "PACKED = {}\n"
        + forward("PACKED.setdefault(x.shape, x.half())\nreturn PACKED[x.shape] + 1"),
        forward("packed = x.half()\nreturn packed + 1"),
    ),
]

ORDINARY = [
    forward("if x.numel() == 0:\n    return torch.empty_like(x)\nreturn x + 1"),
    forward("self.h0 = self.h0.to(x.device)\nreturn x + self.h0"),
    "def get_inputs():\n    return [torch.rand(4)]\n",
    forward(
        """
        out = torch.empty_like(x)
        n = x.numel()
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
        double[grid](x, out, n, BLOCK=1024)
        return out
        """
    ),
    forward("if x.shape[0] <= 1024:\n    return x * 2\nreturn x + x"),
    forward("assert x.data_ptr() % 16 == 0\nreturn x + x"),
    forward("if x.dim() == 2:\n    return x.sum(1)\nreturn x.sum()"),
    forward("x = x.contiguous()\nreturn x"),
    forward("x.mul_(2)\nreturn x"),
    forward(
        "try:\n    return double(x)\nexcept ValueError as e:\n    raise TypeError('no') from e"
    ),
    "class ModelNew(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n"
    "        self.n = n\n        self.weight = nn.Parameter(torch.ones(n))\n",
    "@triton.jit\ndef k(a, b):\n    acc = tl.zeros((16, 16), dtype=tl.float32)\n"
    "    acc += tl.dot(a, b, input_precision='ieee')\n",
    "def open(x):\n    return x\n\n\n" + forward("return open(x) + 1"),
]


@pytest.mark.parametrize(
    ("rule", "body"), HACKS, ids=[f"{i}-{r}" for i, (r, _) in enumerate(HACKS)]
)
def test_a_hack_is_pointed_at(rule: str, body: str) -> None:
    found = [hint for hint in hints(HEAD + body) if hint.rule == rule]
    assert found
    first = HEAD.count("\n") + 1
    assert all(first <= hint.line < first + body.count("\n") + 1 for hint in found)


@pytest.mark.parametrize("body", ORDINARY)
def test_ordinary_code_is_left_alone(body: str) -> None:
    assert hints(HEAD + body) == ()


@pytest.mark.parametrize(
    ("rules", "hack", "alike"), [row[1:] for row in REPLAYED], ids=[row[0] for row in REPLAYED]
)
def test_what_is_replayed_is_pointed_at_and_what_is_like_it_is_not(
    rules: set[str], hack: str, alike: str
) -> None:
    assert {hint.rule for hint in hints(HEAD + hack)} == rules
    assert hints(HEAD + alike) == ()


@pytest.mark.parametrize(
    ("rule", "hack", "alike"), [row[1:] for row in PAIRS], ids=[row[0] for row in PAIRS]
)
def test_a_hack_is_told_from_what_is_like_it(rule: str, hack: str, alike: str) -> None:
    first = HEAD.count("\n") + 1
    found = [hint for hint in hints(HEAD + hack) if hint.rule == rule]
    assert found
    assert all(first <= hint.line <= first + hack.count("\n") for hint in found)
    assert hints(HEAD + alike) == ()


#: Rule -> lines of CUDA C++ that its pattern names, and lines like them that it must leave alone.
IN_CUDA = {
    "starts-work": (
        ["std::thread t(work);", "pthread_create(&t, 0, work, 0);", 'system("true");'],
        ["int thread = threadIdx.x;", "int forks = 2;", "my_system(x);"],
    ),
    "side-stream": (
        [
            "cudaStreamCreateWithFlags(&s, 1);",
            "c10::cuda::getStreamFromPool();",
            "cudaGraphLaunch(g, s);",
        ],
        ["auto s = at::cuda::getCurrentCUDAStream();", "cudaStreamSynchronize(s);"],
    ),
    "reads-machine": (
        ['getenv("HOME");', "std::ifstream f(path);", "dlopen(path, 1);"],
        ["int reopened = 1;", "is_open = true;"],
    ),
    "walks-stack": (
        ["PyEval_GetFrame();", "PyFrame_GetBack(f);", "backtrace(b, 9);"],
        ["int my_backtraces = 0;", "PyObject* o;"],
    ),
    "reads-clock": (
        ["auto t = std::chrono::steady_clock::now();", "cudaEventElapsedTime(&t, a, b);"],
        ["int clock_rate = 1;", "long time = 0;"],
    ),
    "patches": (
        ['PyObject_SetAttrString(m, "equal", f);', "mprotect(p, n, 7);"],
        ["PyObject_GetAttrString(m, name);", "bool protect = true;"],
    ),
    "keeps-state": (
        ["static torch::Tensor last;", "static std::unordered_map<int, int> m;"],
        [
            "static const int width = 4;",
            "static constexpr float scale = 2.f;",
            "torch::Tensor last;",
        ],
    ),
    "pointer-key": (
        ["if (x.data_ptr() == last) return out;", "if (x.data_ptr<float>() != last) return out;"],
        ["f<<<1, 1>>>(x.data_ptr<float>());", "auto p = x.data_ptr();"],
    ),
}


def in_cuda(line: str) -> set[str]:
    """Rules that point at a function of CUDA C++ that holds the line."""
    code = f"void f(torch::Tensor x) {{\n  {line}\n}}"
    text = (
        f"from torch.utils.cpp_extension import load_inline\nm = load_inline('m', '', {code!r})\n"
    )
    return {hint.rule for hint in hints(text)}


@pytest.mark.parametrize("rule", IN_CUDA)
def test_each_pattern_of_cuda_names_what_it_should(rule: str) -> None:
    named, alike = IN_CUDA[rule]
    for line in named:
        assert in_cuda(line) == {rule}, line
        # In a comment or a string nothing happens.
        assert in_cuda(f"// {line}") == set()
        assert in_cuda(f"/* {line} */") == set()
    for line in alike:
        assert in_cuda(line) == set(), line


def test_every_pattern_of_cuda_has_lines() -> None:
    assert set(IN_CUDA) == set(PATTERNS)


def test_every_rule_has_a_case() -> None:
    assert {rule for rule, _ in RULES} == {rule for rule, _ in HACKS}


@pytest.mark.parametrize("text", ["def f(:", "\0", "(" * 100_000, ""])
def test_what_is_no_python_gives_no_hint(text: str) -> None:
    assert hints(text) == ()


#: What a reading that recurses, or that knows every alternative, would choke on.
DECOYS = {
    "a sum of 2,000 parts": "decoy = " + "1 + " * 2000 + "1\n",
    "2,000 attributes": "def decoy(x):\n    return x" + ".a" * 2000 + "\n",
    "500 calls": "def decoy(x):\n    return x" + ".view(1)" * 500 + "\n",
    "2 to the power of 40 meanings": "d0 = torch\n"
    + "".join(f"d{i + 1} = d{i}.a if d{i} else d{i}.b\n" for i in range(40)),
    "a text of 2 to the power of 60": "d0 = 'a'\n"
    + "".join(f"d{i + 1} = d{i} + d{i}\n" for i in range(60)),
    "1,000 branches": "def decoy(x):\n    if x: return 1\n" + "    elif x: return 2\n" * 1000,
    "1,000 tables": "TABLE = {}\ndef decoy(x):\n" + "    y = TABLE[x.shape]\n" * 1000,
    "500 extensions": "from torch.utils.cpp_extension import load_inline\nTEXT = ''\n"
    + "decoy = load_inline(name='', cuda_sources=TEXT)\n" * 500,
}


@pytest.mark.parametrize("decoy", DECOYS.values(), ids=DECOYS)
def test_nothing_else_in_a_source_hides_a_hack(decoy: str) -> None:
    hack = HEAD + forward("return sys._getframe(1).f_locals['expected']") + "\n\n"
    found = {hint for hint in hints(hack) if hint.rule == "walks-stack"}
    assert found
    assert found <= set(hints(hack + decoy))


def test_what_is_beyond_a_rule_is_said() -> None:
    """`ast.unparse` of what is kept recurses."""
    deep = "self.x" + ".a" * 2000
    found = hints(HEAD + f"class M:\n    def forward(self):\n        {deep}[0] = self.x.to(1)\n")
    assert [h.rule for h in found if "could not be looked for" in h.words] == ["keeps-state"]
