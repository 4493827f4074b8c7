"""Triton operations on special values: the same kernels for a GPU and for the interpreter.

Each operation is one kernel of one program instance. Its inputs follow from its name alone, so that a
record holds outputs only.
"""

from __future__ import annotations

import importlib.util
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from adjudge.inputs.philox import Stream

#: Lanes of an elementwise operation.
LANES = 1024
#: Rows and width of a reduction or scan.
ROWS, WIDTH = 32, 64
#: Side of a matrix product, and of a block that is rearranged.
SIDE = 32

FLOATS = ("float32", "float16", "bfloat16")
INTEGERS = ("int32", "int64", "int16", "int8", "uint8")

_FLOAT_SPECIALS = (
    math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -7.0, 100.0,
    1e-40, -1e-40, 2.0**-126, 2.0**-149, 2.0**-24, 2.0**-14, 2.0**-133, 3.4028234663852886e38,
    -3.4028234663852886e38, 65504.0, 65520.0, 1e10, -1e10, 2.0**31, -(2.0**31), 2147483520.0, 2.0**63,
    -(2.0**63), 127.5, 128.0, -128.5, 255.5, 256.0, 88.72, 88.8, -87.33, -103.9, -104.0, 1.0 + 2.0**-8,
    1.0 + 2.0**-11, 1.0 + 3 * 2.0**-11, 1.0 + 2.0**-12, 0.1, -88.0, -95.0, -102.0, -127.0, -140.0, 1e-38,
    -1e-38, 9.0, 20.0, -20.0, 1e-5, 1e5,
)  # fmt: skip
_INTEGER_SPECIALS = (
    0,
    1,
    -1,
    2,
    -2,
    3,
    -3,
    7,
    -7,
    10,
    31,
    63,
    100,
    127,
    128,
    255,
    256,
    32767,
    65535,
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One kernel: what it computes from which inputs into what."""

    name: str
    #: "lanes", "rows", "scan", "square", "atomic" or "store".
    kind: str
    #: An expression of a, b and c; of a store, the statement.
    expression: str
    inputs: tuple[str, ...]
    output: str

    @property
    def kernel(self) -> str:
        return "".join(c if c.isalnum() else "_" for c in self.name)


def operations() -> Iterator[Operation]:
    yield from _unary()
    yield from _binary()
    yield from _casts()
    yield from _reductions()
    yield from _products()
    yield from _atomics()
    yield from _words()
    yield from _scalars()
    yield from _made()
    yield from _arranged()
    yield from _loads()
    yield from _stores()


def _unary() -> Iterator[Operation]:
    for name in ("exp", "exp2", "log", "log2", "sqrt", "sqrt_rn", "rsqrt", "sin", "cos", "erf"):
        yield Operation(f"{name} float32", "lanes", f"tl.{name}(a)", ("float32",), "float32")
    yield Operation("sigmoid float32", "lanes", "tl.sigmoid(a)", ("float32",), "float32")
    names = (
        "tanh erf exp log log1p expm1 exp2 rsqrt sqrt floor ceil trunc rint round sinh cosh atan"
    )
    for name in names.split():
        call = f"libdevice.{name}(a)"
        yield Operation(f"libdevice.{name} float32", "lanes", call, ("float32",), "float32")
    for name in ("isnan", "isinf"):
        call = f"libdevice.{name}(a)"
        yield Operation(f"libdevice.{name} float32", "lanes", call, ("float32",), "int32")
    for dtype in FLOATS:
        yield Operation(f"abs {dtype}", "lanes", "tl.abs(a)", (dtype,), dtype)
        yield Operation(f"neg {dtype}", "lanes", "-a", (dtype,), dtype)
        yield Operation(f"clamp {dtype}", "lanes", "tl.clamp(a, 0.0, 6.0)", (dtype,), dtype)
    for name in ("floor", "ceil"):
        yield Operation(f"{name} float32", "lanes", f"tl.{name}(a)", ("float32",), "float32")
    all_nan = "tl.clamp(a, 0.0, 6.0, propagate_nan=tl.PropagateNan.ALL)"
    yield Operation("clamp propagating float32", "lanes", all_nan, ("float32",), "float32")
    relu = "tl.where(a > 0, a, 0.0)"
    yield Operation("where relu float32", "lanes", relu, ("float32",), "float32")
    yield Operation(
        "maximum with 0 float32", "lanes", "tl.maximum(a, 0.0)", ("float32",), "float32"
    )
    for dtype in INTEGERS:
        yield Operation(f"abs {dtype}", "lanes", "tl.abs(a)", (dtype,), dtype)
        yield Operation(f"neg {dtype}", "lanes", "-a", (dtype,), dtype)


def _binary() -> Iterator[Operation]:
    arithmetic = {"add": "a + b", "sub": "a - b", "mul": "a * b"}
    comparisons = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
    for dtype in FLOATS:
        pair = (dtype, dtype)
        for name, text in arithmetic.items():
            yield Operation(f"{name} {dtype}", "lanes", text, pair, dtype)
        yield Operation(f"div {dtype}", "lanes", "a / b", pair, "float32")
        yield Operation(f"mod {dtype}", "lanes", "a % b", pair, dtype)
        for name in ("maximum", "minimum"):
            yield Operation(f"{name} {dtype}", "lanes", f"tl.{name}(a, b)", pair, dtype)
            call = f"tl.{name}(a, b, propagate_nan=tl.PropagateNan.ALL)"
            yield Operation(f"{name} propagating {dtype}", "lanes", call, pair, dtype)
        yield Operation(f"where gt {dtype}", "lanes", "tl.where(a > b, a, b)", pair, dtype)
        for name, sign in comparisons.items():
            yield Operation(f"{name} {dtype}", "lanes", f"a {sign} b", pair, "int8")
    pair = ("float32", "float32")
    yield Operation("div_rn float32", "lanes", "tl.div_rn(a, b)", pair, "float32")
    yield Operation("fdiv float32", "lanes", "tl.fdiv(a, b)", pair, "float32")
    yield Operation("libdevice.pow float32", "lanes", "libdevice.pow(a, b)", pair, "float32")
    yield Operation("fma float32", "lanes", "tl.fma(a, b, c)", (*pair, "float32"), "float32")
    yield Operation("mul add float32", "lanes", "a * b + c", (*pair, "float32"), "float32")
    for dtype in INTEGERS:
        pair = (dtype, dtype)
        for name, text in arithmetic.items():
            yield Operation(f"{name} {dtype}", "lanes", text, pair, dtype)
        # A division by zero, and of the least number by -1, is undefined on a GPU.
        safe = "tl.where((b == 0) | (b + 1 == 0), 3, b)" if dtype != "uint8" else "(b | 1)"
        yield Operation(f"floordiv {dtype}", "lanes", f"a // {safe}", pair, dtype)
        yield Operation(f"mod {dtype}", "lanes", f"a % {safe}", pair, dtype)
        bits = {"int64": 63, "int32": 31, "int16": 15}.get(dtype, 7)
        yield Operation(f"shl {dtype}", "lanes", f"a << (b & {bits})", pair, dtype)
        yield Operation(f"shr {dtype}", "lanes", f"a >> (b & {bits})", pair, dtype)
        for name, sign in {"and": "&", "or": "|", "xor": "^"}.items():
            yield Operation(f"{name} {dtype}", "lanes", f"a {sign} b", pair, dtype)
        for name in ("maximum", "minimum"):
            yield Operation(f"{name} {dtype}", "lanes", f"tl.{name}(a, b)", pair, dtype)
        for name, sign in comparisons.items():
            yield Operation(f"{name} {dtype}", "lanes", f"a {sign} b", pair, "int8")
        yield Operation(f"true division {dtype}", "lanes", f"a / {safe}", pair, "float32")
    safe = "tl.where((b == 0) | (b + 1 == 0), 3, b)"
    yield Operation("cdiv int32", "lanes", f"tl.cdiv(a, {safe})", ("int32", "int32"), "int32")
    yield Operation("umulhi int32", "lanes", "tl.umulhi(a, b)", ("int32", "int32"), "int32")
    for dtype in ("float16", "bfloat16", "int32"):
        mixed = (dtype, "float32")
        yield Operation(f"add {dtype} to float32", "lanes", "a + b", mixed, "float32")
        yield Operation(f"mul {dtype} by float32", "lanes", "a * b", mixed, "float32")


def _casts() -> Iterator[Operation]:
    every = (*FLOATS, *INTEGERS)
    for source in every:
        for target in every:
            if source != target:
                text = f"a.to(tl.{target})"
                yield Operation(f"cast {source} to {target}", "lanes", text, (source,), target)
        yield Operation(f"cast {source} to bool", "lanes", "a.to(tl.int1)", (source,), "int8")


def _reductions() -> Iterator[Operation]:
    for dtype in (*FLOATS, "int32"):
        for name in ("sum", "max", "min"):
            yield Operation(f"reduce {name} {dtype}", "rows", f"tl.{name}(a, 1)", (dtype,), dtype)
        for name in ("argmax", "argmin"):
            text = f"tl.{name}(a, axis=1)"
            yield Operation(f"reduce {name} {dtype}", "rows", text, (dtype,), "int32")
    for dtype in ("int8", "int16", "int64"):
        for name in ("sum", "max", "min"):
            yield Operation(f"reduce {name} {dtype}", "rows", f"tl.{name}(a, 1)", (dtype,), "int64")
    yield Operation("reduce sum bool", "rows", "tl.sum(a > 0, axis=1)", ("float32",), "int32")
    yield Operation("method sum float32", "rows", "a.sum(1)", ("float32",), "float32")
    for dtype in ("float32", "int32"):
        for name in ("sum", "max", "min"):
            text = f"tl.{name}(tl.{name}(a, axis=1)) + tl.zeros([{ROWS}], tl.{dtype})"
            yield Operation(f"reduce all {name} {dtype}", "rows", text, (dtype,), dtype)
    yield Operation("reduce xor int32", "rows", "tl.xor_sum(a, 1)", ("int32",), "int32")
    one = ("float32",)
    yield Operation("reduce own maximum", "rows", "tl.reduce(a, 1, _maximum)", one, "float32")
    yield Operation("reduce own where", "rows", "tl.reduce(a, 1, _larger)", one, "float32")
    yield Operation("scan cumsum float32", "scan", "tl.cumsum(a, 1)", one, "float32")
    yield Operation("scan cumprod float32", "scan", "tl.cumprod(a, 1)", one, "float32")
    yield Operation("scan cumsum int32", "scan", "tl.cumsum(a, 1)", ("int32",), "int32")
    own = "tl.associative_scan(a, 1, _maximum)"
    yield Operation("scan own maximum", "scan", own, one, "float32")
    for name in ("_multiplied", "_added"):
        text = f"tl.associative_scan(a, 1, {name})"
        yield Operation(f"scan own{name}", "scan", text, one, "float32")
    for dtype in ("float32", "int32"):
        text = "tl.associative_scan(a, axis=1, combine_fn=_added, reverse=True)"
        yield Operation(f"scan own added reversed {dtype}", "scan", text, (dtype,), dtype)
    reverse = "tl.cumsum(a, 1, reverse=True)"
    yield Operation("scan cumsum reversed", "scan", reverse, one, "float32")


def _products() -> Iterator[Operation]:
    for precision in ("ieee", "tf32"):
        text = f'tl.dot(a, b, input_precision="{precision}")'
        yield Operation(
            f"dot {precision} float32", "square", text, ("float32", "float32"), "float32"
        )
    for dtype in ("float16", "bfloat16"):
        yield Operation(f"dot {dtype}", "square", "tl.dot(a, b)", (dtype, dtype), "float32")
    narrow = "tl.dot(a, b, out_dtype=tl.float16)"
    yield Operation("dot float16 to float16", "square", narrow, ("float16", "float16"), "float16")
    wide = ("float32", "float32")
    for allowed in (True, False):
        text = f"tl.dot(a, b, allow_tf32={allowed})"
        yield Operation(f"dot allow_tf32 {allowed}", "square", text, wide, "float32")
    adding = 'tl.dot(a, b, acc=a, input_precision="ieee", out_dtype=tl.float32)'
    yield Operation("dot acc float32", "square", adding, wide, "float32")
    half = ("float16", "float16")
    text = "tl.dot(a, b, a.to(tl.float32))"
    yield Operation("dot acc float16", "square", text, half, "float32")
    yield Operation("dot trans float16", "square", "tl.dot(a, tl.trans(b))", half, "float32")
    yield Operation("dot int8", "square", "tl.dot(a, b)", ("int8", "int8"), "int32")


def _atomics() -> Iterator[Operation]:
    kinds = {
        "add": ("float32", "float16", "bfloat16", "int32", "int64"),
        "max": ("int32", "float32"),
        "min": ("int32", "float32"),
        "xchg": ("float32", "int32"),
        "and": ("int32",),
        "or": ("int32",),
        "xor": ("int32",),
    }
    for name, dtypes in kinds.items():
        for dtype in dtypes:
            text = f"tl.atomic_{name}(buffer + i, b)"
            yield Operation(f"atomic {name} {dtype}", "atomic", text, (dtype, dtype), dtype)
    for dtype in ("float32", "float16", "int32"):
        # What a masked-off lane answers is undefined.
        text = "tl.where(i % 3 != 0, tl.atomic_add(buffer + i, b, mask=i % 3 != 0), 0)"
        yield Operation(f"atomic masked add {dtype}", "atomic", text, (dtype, dtype), dtype)


def _words() -> Iterator[Operation]:
    """Python's own words, and bits of truth values."""
    for dtype in (*FLOATS, "int32"):
        for name in ("min", "max"):
            yield Operation(f"word {name} {dtype}", "lanes", f"{name}(a, b)", (dtype, dtype), dtype)
    pair = ("float32", "float32")
    signs = {"word and": "and", "word or": "or", "bits and": "&", "bits or": "|", "bits xor": "^"}
    for name, sign in signs.items():
        yield Operation(f"{name} bool", "lanes", f"(a > 0) {sign} (b < 0)", pair, "int8")
    yield Operation("word not bool", "lanes", "not (a > 0)", ("float32",), "int8")
    yield Operation("invert bool", "lanes", "~(a > 0)", ("float32",), "int8")
    for dtype in INTEGERS:
        yield Operation(f"invert {dtype}", "lanes", "~a", (dtype,), dtype)


def _scalars() -> Iterator[Operation]:
    """A Python number on one side: the tensor's type holds, but for an integer and a float."""
    texts = {
        "add scalar": "a + 0.1", "scalar minus": "1.0 - a", "mul scalar": "a * 0.7071067811865476",
        "mul half": "a * 0.5", "div scalar": "a / 3.0", "scalar over": "1.0 / a",
        "gt scalar": "(a > 0.1).to(tl.int8)", "where scalar": "tl.where(a > 0, a, a * 0.01)",
        "where inf": 'tl.where(a > 0, a, float("-inf"))', "maximum scalar": "tl.maximum(a, 0.1)",
    }  # fmt: skip
    for dtype in FLOATS:
        for name, text in texts.items():
            yield Operation(f"{name} {dtype}", "lanes", text, (dtype,), dtype)
    whole = {
        "add scalar": "a + 1",
        "mul scalar": "a * 3",
        "floordiv scalar": "a // 7",
        "mod scalar": "a % 7",
    }
    for dtype in ("int32", "int64"):
        for name, text in whole.items():
            yield Operation(f"{name} {dtype}", "lanes", text, (dtype,), dtype)
        yield Operation(f"mul half {dtype}", "lanes", "a * 0.5", (dtype,), "float32")
        yield Operation(f"div scalar {dtype}", "lanes", "a / 3", (dtype,), "float32")
    unsigned = "a.to(tl.uint32, bitcast=True)"
    for name, text in {"shr": ">> 3", "div": "// 7", "mod": "% 7"}.items():
        whole_text = f"({unsigned} {text}).to(tl.int32, bitcast=True)"
        yield Operation(f"{name} uint32", "lanes", whole_text, ("int32",), "int32")
    yield Operation(
        "cast uint32 to float32", "lanes", f"{unsigned}.to(tl.float32)", ("int32",), "float32"
    )


def _made() -> Iterator[Operation]:
    """Blocks that are made, and casts by function."""
    for dtype in FLOATS:
        for word in ("-inf", "nan", "1e10"):
            text = f'tl.full([{LANES}], float("{word}"), dtype=tl.{dtype})'
            yield Operation(f"full {word} {dtype}", "lanes", text, (dtype,), dtype)
        yield Operation(
            f"zeros {dtype}", "lanes", f"tl.zeros([{LANES}], dtype=tl.{dtype})", (dtype,), dtype
        )
        yield Operation(f"zeros_like {dtype}", "lanes", "tl.zeros_like(a)", (dtype,), dtype)
    yield Operation("full int32", "lanes", f"tl.full([{LANES}], -7, tl.int32)", ("int32",), "int32")
    for source, target in (
        ("float32", "float16"),
        ("float32", "bfloat16"),
        ("float32", "int32"),
        ("int32", "float32"),
    ):
        yield Operation(
            f"function cast {source} to {target}",
            "lanes",
            f"tl.cast(a, tl.{target})",
            (source,),
            target,
        )
    for source, target in (("float32", "int32"), ("int32", "float32"), ("float16", "int16")):
        text = f"tl.cast(a, tl.{target}, bitcast=True)"
        yield Operation(f"bitcast {source} to {target}", "lanes", text, (source,), target)
    yield Operation(
        "cast rtz float32 to float16",
        "lanes",
        'a.to(tl.float16, fp_downcast_rounding="rtz")',
        ("float32",),
        "float16",
    )
    yield Operation(
        "num_programs",
        "lanes",
        "a * 0 + tl.num_programs(0) + tl.program_id(axis=0)",
        ("int32",),
        "int32",
    )


def _arranged() -> Iterator[Operation]:
    """Blocks moved, repeated, and worked on along an axis that is kept."""
    texts = {
        "trans": "tl.trans(a)",
        "reshape": f"tl.trans(tl.reshape(tl.reshape(a, ({SIDE * SIDE},)), ({SIDE}, {SIDE})))",
        "view": f"tl.view(tl.view(a, ({SIDE * SIDE},)), ({SIDE}, {SIDE}))",
        "expand_dims": "a + tl.expand_dims(tl.max(a, 0), 0)",
        "broadcast_to": f"tl.broadcast_to(tl.max(a, 0)[:, None], ({SIDE}, {SIDE}))",
        "keep_dims max": "a - tl.max(a, axis=1, keep_dims=True)",
        "keep_dims sum": "a - tl.sum(a, axis=1, keep_dims=True)",
    }
    for dtype in (*FLOATS, "int32"):
        for name, text in texts.items():
            yield Operation(f"{name} {dtype}", "square", text, (dtype,), dtype)
    yield Operation("softmax float32", "square", "tl.softmax(a)", ("float32",), "float32")


def _loads() -> Iterator[Operation]:
    """Lanes masked off, and blocks that reach over an edge."""
    others = {"0": "0.0", "-inf": 'float("-inf")', "nan": 'float("nan")', "1e10": "1e10"}
    for dtype in FLOATS:
        for name, other in others.items():
            text = f"tl.load(a_ptr + i, mask=i % 3 != 0, other={other})"
            yield Operation(f"load other {name} {dtype}", "lanes", text, (dtype,), dtype)
    for dtype in INTEGERS:
        text = "tl.load(a_ptr + i, mask=i % 3 != 0, other=-1)"
        yield Operation(f"load other -1 {dtype}", "lanes", text, (dtype,), dtype)
    for name, text in {
        "cached": 'tl.load(a_ptr + i, cache_modifier=".cg")',
        "kept": 'tl.load(a_ptr + i, eviction_policy="evict_last")',
        "hinted": "tl.load(a_ptr + tl.max_contiguous(tl.multiple_of(i, 8), 8))",
    }.items():
        yield Operation(f"load {name} float32", "lanes", text, ("float32",), "float32")
    pointer = _block("a_ptr")
    moved = f"tl.advance({pointer}, (0, 8))"
    for dtype in ("float32", "float16"):
        for name, where in {"block": pointer, "advanced block": moved}.items():
            for padding in ("zero", "nan"):
                text = f'tl.load({where}, boundary_check=(0, 1), padding_option="{padding}")'
                yield Operation(f"load {name} {padding} {dtype}", "square", text, (dtype,), dtype)


def _stores() -> Iterator[Operation]:
    for dtype in (*FLOATS, "int32"):
        text = 'tl.store(out_ptr + i, a, mask=i % 3 != 0, cache_modifier=".wt")'
        yield Operation(f"store masked {dtype}", "store", text, (dtype,), dtype)
        text = f"tl.store({_block('out_ptr')}, a, boundary_check=(0, 1))"
        yield Operation(f"store block {dtype}", "store", text, (dtype,), dtype)
    # The kind of what is stored gives way to that of the memory.
    for source, target in (("float32", "float16"), ("float32", "bfloat16"), ("int32", "int8")):
        name = f"store {source} in {target}"
        yield Operation(name, "store", "tl.store(out_ptr + i, a)", (source,), target)


def _block(base: str) -> str:
    """A pointer to 32 x 32 of what has 30 rows of 29."""
    return (
        f"tl.make_block_ptr(base={base}, shape=({SIDE - 2}, {SIDE - 3}), strides=({SIDE}, 1), "
        f"offsets=(0, 0), block_shape=({SIDE}, {SIDE}), order=(1, 0))"
    )


_HEAD = '''"""Generated by tests/interpreter/operations.py."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _maximum(x, y):
    return tl.maximum(x, y)


@triton.jit
def _multiplied(x, y):
    return x * y


@triton.jit
def _added(x, y):
    return x + y


@triton.jit
def _larger(x, y):
    return tl.where(x > y, x, y)
'''


def kernels(found: list[Operation], folder: Path) -> dict[str, Any]:
    """The compiled module's kernels by the operation's name. Triton needs a real source file."""
    path = folder / "fidelity_kernels.py"
    path.write_text(module_text(found))
    spec = importlib.util.spec_from_file_location("fidelity_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {op.name: getattr(module, op.kernel) for op in found}


def module_text(found: list[Operation]) -> str:
    return _HEAD + "".join(map(_source, found))


def _source(op: Operation) -> str:
    lines = ["", "", "@triton.jit", f"def {op.kernel}(a_ptr, b_ptr, c_ptr, out_ptr):"]
    if op.kind == "lanes":
        lines += [f"i = tl.arange(0, {LANES})"]
    elif op.kind in ("rows", "scan"):
        lines += [f"i = tl.arange(0, {ROWS})[:, None] * {WIDTH} + tl.arange(0, {WIDTH})[None, :]"]
    elif op.kind in ("square", "store"):
        lines += [f"i = tl.arange(0, {SIDE})[:, None] * {SIDE} + tl.arange(0, {SIDE})[None, :]"]
    else:
        lines += [f"i = tl.arange(0, {LANES})", "buffer = a_ptr"]
    if op.kind != "atomic":
        lines += ["a = tl.load(a_ptr + i)"]
    lines += [f"{name} = tl.load({name}_ptr + i)" for name in "bc"[: len(op.inputs) - 1]]
    where = f"tl.arange(0, {ROWS})" if op.kind == "rows" else "i"
    stored = f"tl.store(out_ptr + {where}, ({op.expression}).to(tl.{op.output}))"
    lines += [op.expression if op.kind == "store" else stored]
    head, body = lines[:4], lines[4:]
    return "\n".join([*head, *(f"    {line}" for line in body)]) + "\n"


def run(op: Operation, kernel: Any, device: str) -> torch.Tensor:
    """The operation's outputs as raw bytes; an atomic's buffer behind what it returned."""
    given = [t.to(device) for t in inputs(op)]
    shapes = {"rows": (ROWS,), "scan": (ROWS, WIDTH)}
    shape = shapes.get(op.kind, (SIDE, SIDE) if op.kind in ("square", "store") else (LANES,))
    out = torch.zeros(shape, dtype=getattr(torch, op.output), device=device)
    padded = [*given, *[given[0]] * (3 - len(given))]
    kernel[(1,)](*padded, out)
    parts = [out, given[0]] if op.kind == "atomic" else [out]
    return torch.cat([part.cpu().contiguous().view(torch.uint8).reshape(-1) for part in parts])


def inputs(op: Operation) -> list[torch.Tensor]:
    seed = zlib.crc32(op.name.encode())
    if op.kind in ("lanes", "atomic"):
        return [_lanes(d, n, len(op.inputs), seed) for n, d in enumerate(op.inputs)]
    shape = (SIDE, SIDE) if op.kind in ("square", "store") else (ROWS, WIDTH)
    return [_blocks(d, n, shape, seed) for n, d in enumerate(op.inputs)]


def _lanes(dtype: str, number: int, arity: int, seed: int) -> torch.Tensor:
    """Every special value (every pair of them where that fits), then draws."""
    special = specials(dtype)
    if arity == 1:
        values = special
    else:
        few = special[:24]
        each, tiled = few.repeat_interleave(len(few)), few.repeat(len(few))
        values = (each, tiled, each.flip(0))[number]
    stream = Stream(seed, number)
    count = LANES - len(values)
    if not getattr(torch, dtype).is_floating_point:
        words = torch.from_numpy(stream.words(count).astype("int64"))
        return torch.cat([values, words.to(getattr(torch, dtype))])
    normal = torch.from_numpy(stream.normal(count)) * 4
    wild = torch.from_numpy(stream.words(count).astype("uint32").view("float32").copy())
    # Half are of ordinary size, half any bits at all.
    drawn = torch.where(torch.arange(count) % 2 == 0, normal, wild.double())
    return torch.cat([values, drawn.to(getattr(torch, dtype))])


def _blocks(dtype: str, number: int, shape: tuple[int, int], seed: int) -> torch.Tensor:
    """Small integers, whose sums are exact in any order; a special value in each of most rows (for
    the second factor of a product, columns); last a row of 0.1 and one of 13-bit values."""
    stream = Stream(seed, number)
    rows, width = shape
    small = stream.integers(-8, 9, rows * width).reshape(shape)
    block = torch.from_numpy(small).to(getattr(torch, dtype))
    special = specials(dtype)
    places = stream.integers(0, width, rows)
    for row in range(rows - 4):
        if row % 2 == 0:
            block[row, int(places[row])] = special[row // 2 % len(special)]
    if block.dtype.is_floating_point:
        block[-4] = 0.1
        block[-3] = -0.0
        block[-2] = torch.from_numpy(stream.normal(width)).to(block.dtype)
        block[-1, 0] = 4097.0
    return block.t().contiguous() if number else block


def specials(dtype: str) -> torch.Tensor:
    wanted = getattr(torch, dtype)
    if wanted.is_floating_point:
        return torch.tensor(_FLOAT_SPECIALS, dtype=torch.float64).to(wanted)
    info = torch.iinfo(wanted)
    ends = (info.min, info.min + 1, info.max, info.max - 1)
    fitting = [n for n in _INTEGER_SPECIALS if info.min <= n <= info.max]
    return torch.tensor([*ends, *fitting], dtype=wanted)
