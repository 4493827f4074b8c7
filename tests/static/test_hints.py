"""Each hack that the field knows is pointed at; ordinary code is not."""

from __future__ import annotations

import textwrap

import pytest

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


def forward(body: str) -> str:
    text = "class ModelNew(nn.Module):\n    def forward(self, x):\n"
    return text + textwrap.indent(textwrap.dedent(body), " " * 8)


HACKS = [
    ("reads-values", forward("if (x == 0).all():\n    return x * 0\nreturn x + 1")),
    ("uses-reference", "answer = get_inputs()\n"),
    ("uses-reference", "class Model(nn.Module):\n    pass\n\n\nclass ModelNew(Model):\n    pass\n"),
    ("patches", forward("out = x + 1\nout.allclose = lambda *a: True\nreturn out")),
    ("recognises-judge", forward("return x + ('pytest' in sys.modules)")),
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


def test_every_rule_has_a_case() -> None:
    assert {rule for rule, _ in RULES} == {rule for rule, _ in HACKS}


@pytest.mark.parametrize("text", ["def f(:", "\0", "(" * 100_000, ""])
def test_what_is_no_python_gives_no_hint(text: str) -> None:
    assert hints(text) == ()
