"""Tasks for the judge: every member of `gated_recurrence` as reference, candidate and contract.

A reference is the member's attention form over the whole sequence, in plain torch; the candidate is the
public function. Both are the recurrence: `test_judged.py` holds references against the naive loops.
Gates and rates are made of raw inputs inside both, and the keys of a delta rule are normalised, so that
whatever finite values the judge draws lie within the member's domain.

Not the loop itself: its error is another. A state that is erased again and again keeps its relative
precision in the loop, and in no form that takes tokens together, as every training kernel does: there
`S + Kᵀ U` cancels. See docs/design/recurrence.md.

    python tests/recurrence/judged/tasks.py [FOLDER]

writes the contracts beside the operations, and references and candidates to the folder:
`adjudge verify FOLDER/kda/dense/candidate.py --contract src/gated_recurrence/kda/contract.toml`.

Letters of shapes: B batch, T tokens, H heads, G value heads, K and V channels.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

#: One sequence to a row of the batch; sequences packed into one row; and, dense, the gradients for given
#: cotangents as the answer, so that what is asked of answers (the same bits again) is asked of them.
#: Gates run from nearly no decay to e**-12 on the portable path. The native kernels' gradient of a gate
#: is a difference, in which what passes a closed one is lost: here their gates are weak, mostly
#: under 0.3, and the strong ones in one of their own.
FORMS = ("dense", "packed", "gradients")
STRONG = "strong"


@dataclass(frozen=True, kw_only=True)
class Member:
    """One member, by what sets its recurrence and its call apart."""

    name: str
    #: Raw inputs beyond q, k and v, by the letters of their shapes.
    raw: Mapping[str, str] = field(default_factory=dict)
    #: Arguments of the operation that are made of raw inputs, in order: name -> expression. A key comes
    #: first.
    made: Mapping[str, str] = field(default_factory=dict)
    #: Lines that bind what is written for every token, of the arguments `[B, G, T, ...]` by name, and of
    #: the sequence x.
    solved: str = ""
    #: What is written, `Σ yᵀ u`, as names of y `[B, G, T, K]` and u `[B, G, T, V]`.
    writes: tuple[tuple[str, str], ...] = (("k", "u"),)
    #: Whether the native kernels take it.
    native: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("q", "k", "v", *self.raw)

    @property
    def more(self) -> tuple[str, ...]:
        """Arguments of the operation beyond q, k and v."""
        return tuple(name for name in self.made if name != "k")

    @property
    def by_channel(self) -> bool:
        """Whether each channel of a key has a gate of its own."""
        return self.raw.get("f") == "BTGK"


_KEY = {"k": "unit(k)"}
# Log-sigmoid, by the function whose gradient the judge's oracle knows.
_GATE = {"g": "-F.softplus(-f.float())"}
_RATE = {"beta": "torch.sigmoid(r.float())"}
_VALUES = (("k", "v"),)
_DELTA = "u = solve(beta * x.earlier(k, k), beta * (v - x.read(k)))"

MEMBERS: tuple[Member, ...] = (
    Member(name="linear_attention", writes=_VALUES, native=True),
    Member(
        name="retention",
        raw={"f": "G"},
        made={"log_decay": "-F.softplus(-f.float())"},
        writes=_VALUES,
        native=True,
    ),
    Member(name="simple_gla", raw={"f": "BTG"}, made=_GATE, writes=_VALUES, native=True),
    Member(name="gla", raw={"f": "BTGK"}, made=_GATE, writes=_VALUES),
    Member(name="delta_rule", raw={"r": "BTG"}, made=_KEY | _RATE, solved=_DELTA, native=True),
    Member(
        name="gated_delta_rule",
        raw={"f": "BTG", "r": "BTG"},
        made=_KEY | _GATE | _RATE,
        solved=_DELTA,
        native=True,
    ),
    Member(name="kda", raw={"f": "BTGK", "r": "BTG"}, made=_KEY | _GATE | _RATE, solved=_DELTA),
    Member(
        name="gated_delta_rule_2",
        raw={"f": "BTGK", "e": "BTGK", "r": "BTGV"},
        made=_KEY | _GATE | {"b": "torch.sigmoid(e.float())", "w": "torch.sigmoid(r.float())"},
        solved="u = solve(x.earlier(b * k, k), w * v - x.read(b * k))",
    ),
    Member(
        name="rwkv7",
        raw={"f": "BTGK", "d": "BTGK", "r": "BTGK"},
        made=_GATE | {"a": "-unit(d)", "b": "unit(d) * torch.sigmoid(r.float())"},
        solved="u = solve(-x.before(a, b), x.read_before(a) + x.before(a, k) @ v)",
        writes=(("b", "u"), ("k", "v")),
    ),
)
BY_NAME = {member.name: member for member in MEMBERS}


@dataclass(frozen=True, kw_only=True)
class Point:
    """What a reference draws: the dtype of q, k and v (all else is float32), and sizes."""

    dtype: str
    tokens: int
    batch: int
    heads: int
    group: int
    key: int
    value: int
    #: From a normal draw to what the gate is the log-sigmoid of.
    gate: str = "4 * "


#: Two chunks but for two tokens.
PORTABLE = Point(dtype="float32", tokens=126, batch=2, heads=1, group=2, key=16, value=8)
#: With a gate a channel the attention form has T² K elements.
BY_CHANNEL = Point(dtype="float32", tokens=98, batch=2, heads=1, group=2, key=8, value=8)
#: The kernels' own head size.
NATIVE = Point(
    dtype="bfloat16", tokens=126, batch=1, heads=1, group=2, key=128, value=128, gate="3 + "
)
#: Value heads to a head where gradients are the answer: the order of two terms shows in no sum of them.
GROUP = 3

_IMPORTS = """
import torch
import torch.nn as nn
import torch.nn.functional as F
"""

# Smooth where a vector vanishes, as the field's layers have it.
_UNIT = """
def unit(x):
    x = x.float()
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
"""

_SOLVE = """
def inverse(m):
    \"\"\"(I + m)^-1 of strictly lower triangular m, by halves; the size is a power of two.\"\"\"
    half = m.shape[-1] // 2
    if not half:
        return torch.ones_like(m)
    a, d = inverse(torch.stack([m[..., :half, :half], m[..., half:, half:]]))
    lower = torch.cat([-(d @ m[..., half:, :half] @ a), d], -1)
    return torch.cat([F.pad(a, (0, half)), lower], -2)


def solve(m, y):
    size = m.shape[-1]
    more = (1 << max(size - 1, 0).bit_length()) - size
    return inverse(F.pad(m, (0, more, 0, more)))[..., :size, :size] @ y
"""

_SEQUENCE = """
class Sequence:
    \"\"\"Decays between tokens: g [B, G, T, 1 or K]; s [B, G, K, V] is the first state.\"\"\"

    def __init__(self, g, s):
        size = g.shape[-2]
        lower = torch.ones(size, size, dtype=torch.bool, device=g.device).tril()
        # Sums over the tokens after j, up to i, each on its own: no difference loses a weak gate.
        terms = g.unsqueeze(-2).expand(*g.shape[:-1], size, g.shape[-1])
        sums = terms.masked_fill(~lower.tril(-1)[..., None], 0.0).cumsum(-3)
        self.decay = sums.exp().masked_fill(~lower[..., None], 0.0)  # [B, G, i, j, 1 or K]
        self.decay_before = F.pad(self.decay[..., :-1, :, :], (0, 0, 0, 0, 1, 0))
        self.total = g.cumsum(-2).exp()
        self.s = s

    def _pairs(self, x, y, decay):
        if decay.shape[-1] == 1:
            return (x @ y.mT) * decay.squeeze(-1)
        return (x.unsqueeze(-2) * y.unsqueeze(-3) * decay).sum(-1)

    def upto(self, x, y):
        \"\"\"What x of a token reads of what is written by y of it and of earlier ones.\"\"\"
        return self._pairs(x, y, self.decay)

    def earlier(self, x, y):
        \"\"\"The same of earlier ones alone.\"\"\"
        return self.upto(x, y).tril(-1)

    def before(self, x, y):
        \"\"\"The same, before the token's own decay.\"\"\"
        return self._pairs(x, y, self.decay_before)

    def read(self, x):
        return _read(x, self.total, self.s)

    def read_before(self, x):
        return _read(x, F.pad(self.total[..., :-1, :], (0, 0, 1, 0), value=1.0), self.s)

    def end(self, *writes):
        \"\"\"The last state, of pairs y, u.\"\"\"
        if not self.total.shape[-2]:
            return self.s
        kept = self.total[..., -1:, :].mT * self.s
        return kept + sum((self.decay[..., -1, :, :] * y).mT @ u for y, u in writes)


def _read(x, decay, s):
    return decay * (x @ s) if decay.shape[-1] == 1 else (decay * x) @ s
"""

_RECUR = """
def recur(q, k, v, s{parameters}):
    group = v.shape[2] // q.shape[2]
    q, k = (x.float().repeat_interleave(group, 2) for x in (q, k))
    q, v, s = q * q.shape[-1] ** -0.5, v.float(), s.float()
{gate}    {names} = (t.transpose(1, 2) for t in ({operands}))
    x = Sequence(g, s)
{solved}    o = x.read(q) + {read}
    return o.transpose(1, 2), x.end({writes})
"""

_DENSE = """
o, final = recur({arguments})
return o.to(q.dtype), final
"""

_PACKED = """
if q.shape[0] != 1:
    raise ValueError("packed sequences lie in one row")
parts = [
    recur({arguments})
    for n, (i, j) in enumerate(itertools.pairwise(offsets.tolist()))
]
o, final = (torch.cat(found, axis) for found, axis in zip(zip(*parts), (1, 0)))
return o.to(q.dtype), final
"""

_GRADIENTS = """
with torch.enable_grad():
    {inputs} = leaves = [x.detach().requires_grad_() for x in ({inputs})]
{body}
    found = torch.autograd.grad(({result}), leaves, (d_o, d_final))
    # One of them may be the cotangent itself.
    return [d.clone() for d in found]
"""


def point_of(member: Member, form: str, native: bool = False) -> Point:
    """What the reference draws, for the portable path or the native one."""
    point = NATIVE if native else BY_CHANNEL if member.by_channel else PORTABLE
    if form == STRONG:
        point = replace(point, gate=PORTABLE.gate)
    return replace(point, group=GROUP, batch=1) if form == "gradients" else point


def reference(member: Member, form: str, point: Point | None = None) -> str:
    """Source of `Model`, `get_inputs` and `get_init_inputs`."""
    point = point or point_of(member, form)
    imports = f"\nimport itertools\n{_IMPORTS}" if form == "packed" else _IMPORTS
    sizes = {"TOKENS": point.tokens, "HEADS": point.heads, "GROUP": point.group}
    sizes |= {"KEY": point.key, "VALUE": point.value}
    if form != "packed":
        sizes = {"BATCH": point.batch, **sizes}
    constants = [f"DTYPE = torch.{point.dtype}", *(f"{n} = {size}" for n, size in sizes.items())]
    parts = [
        f'"""{member.name}, {form}: the attention form of the recurrence."""\n{imports}',
        "\n".join(constants) + "\n",
        *_unit(member),
        *([_SOLVE] if member.solved else []),
        _SEQUENCE,
        _recurrence(member),
        _module("Model", member, form, _summed(member, form)),
        _inputs(member, form, point),
    ]
    return "\n".join(parts)


def candidate(member: Member, form: str, *, top: str = "", heads: str = "q, k") -> str:
    """Source of `ModelNew`, which calls the public function.

    Args:
        top: put before the module.
        heads: what is given for q and k.
    """
    packed = ", cu_seqlens=offsets" if form == "packed" else ""
    arguments = ", ".join([heads, "v", *member.more])
    body = (
        f"o, final = {member.name}(\n"
        f"    {arguments}, initial_state=state, output_final_state=True{packed}\n)\n"
        "return o, final"
    )
    if "k" in member.made:
        body = f"k = k.to(q.dtype)\n{body}"
    parts = [
        f'"""{member.name}, {form}: the public function."""\n{_IMPORTS}',
        f"from gated_recurrence import {member.name}\n",
        *([top] if top else []),
        *_unit(member),
        _module("ModelNew", member, form, body),
    ]
    return "\n".join(parts)


def _unit(member: Member) -> list[str]:
    return [_UNIT] if any("unit(" in made for made in member.made.values()) else []


def _given(member: Member, form: str) -> str:
    more = {"packed": ["offsets"], "gradients": ["d_o", "d_final"]}.get(form, [])
    return ", ".join([*member.inputs, "state", *more])


def _module(name: str, member: Member, form: str, body: str) -> str:
    lines = [*(f"{name} = {made}" for name, made in member.made.items()), body.strip()]
    text = "\n".join(lines)
    if form == "gradients":
        head, _, result = text.rpartition("return ")
        text = _GRADIENTS.format(
            inputs=", ".join([*member.inputs, "state"]),
            body=textwrap.indent(head.rstrip(), " " * 4),
            result=result,
        ).strip()
    head = f"\nclass {name}(nn.Module):\n    def forward(self, {_given(member, form)}):\n"
    return head + textwrap.indent(text, " " * 8) + "\n"


def _recurrence(member: Member) -> str:
    gate = ""
    if "log_decay" in member.made:
        gate = "    g = log_decay.expand(*v.shape[:3])\n"
    elif "g" not in member.made:
        gate = "    g = v.new_zeros(v.shape[:3])\n"
    others = [name for name in member.more if name not in ("g", "log_decay")]
    names = ["q", "k", "v", "g", *others]
    # One value a head is a column of its own.
    per_head = ["beta", *([] if member.by_channel else ["g"])]
    operands = [f"{n}[..., None]" if n in per_head else n for n in names]
    return _RECUR.format(
        parameters="".join(f", {name}" for name in member.more),
        gate=gate,
        names=", ".join(names),
        operands=", ".join(operands),
        solved=f"    {member.solved}\n" if member.solved else "",
        read=" + ".join(f"x.upto(q, {y}) @ {u}" for y, u in member.writes),
        writes=", ".join(f"({y}, {u})" for y, u in member.writes),
    )


def _summed(member: Member, form: str) -> str:
    if form != "packed":
        return _DENSE.format(arguments=", ".join(["q", "k", "v", "state", *member.more]))
    cut = [name if name == "log_decay" else f"{name}[:, i:j]" for name in member.more]
    first = [f"{name}[:, i:j]" for name in ("q", "k", "v")]
    return _PACKED.format(arguments=", ".join([*first, "state[n : n + 1]", *cut]))


def _inputs(member: Member, form: str, point: Point) -> str:
    axes = {"B": "BATCH", "T": "TOKENS", "H": "HEADS"}
    axes |= {"G": "HEADS * GROUP", "K": "KEY", "V": "VALUE"}
    lines = []
    for name, letters in {"q": "BTHK", "k": "BTHK", "v": "BTGV", **member.raw}.items():
        # The one row of packed sequences is no literal, which the judge would take for a size to change.
        packed = form == "packed" and letters.startswith("B")
        shape = ", ".join(axes[letter] for letter in (letters[1:] if packed else letters))
        dtype = ", dtype=DTYPE" if name in ("q", "k", "v") else ""
        gate = point.gate if name == "f" else ""
        row = "[None]" if packed else ""
        lines.append(f"{name} = {gate}torch.randn({shape}{dtype}){row}")
    count = "BATCH"
    if form == "packed":
        # None, one, and the rest in two.
        lines.append("offsets = torch.tensor([0, 0, min(1, TOKENS), (TOKENS + 1) // 2, TOKENS])")
        count = "offsets.diff().numel()"
    lines.append(f"state = torch.randn({count}, HEADS * GROUP, KEY, VALUE)")
    if form == "gradients":
        lines.append("d_o = torch.randn(BATCH, TOKENS, HEADS * GROUP, VALUE, dtype=DTYPE)")
        lines.append("d_final = torch.randn(BATCH, HEADS * GROUP, KEY, VALUE)")
    lines.append(f"return [{_given(member, form)}]")
    body = textwrap.indent("\n".join(lines), " " * 4)
    return f"\ndef get_inputs():\n{body}\n\n\ndef get_init_inputs():\n    return []\n"


_CONTRACT = """# Written by tests/recurrence/judged/tasks.py.
schema = 1
identifier = "{name}"
summary = "{name} of gated_recurrence and its gradients: dense, packed, or with gradients as the answer"

[scope]
words = "Every number of tokens, sequences of none and of one among them; value heads a multiple of \
heads; tensors that lie in any way."
layouts = {layouts}
dtypes = ["float32", "float16", "bfloat16"]

[scope.sizes]
TOKENS = [0, 1, 63, 64, 65, "0..128"]
HEADS = "1..2"
GROUP = "1..4"
KEY = "1..128"
VALUE = "1..128"

[[scope.refusals]]
exception = "ValueError"
message = "must have at least one head and one channel"

[[scope.refusals]]
exception = "ValueError"
message = "holds NaN or infinity"

[[scope.refusals]]
exception = "NativeRequired"
message = "not torch.bfloat16|there are no tokens"

[precondition]
words = "Every finite value: gates and rates are made of raw inputs, keys of a delta rule normalised."
values = "finite"

[postcondition]
words = "The recurrence's outputs, last states and gradients, the same bits on every run."
determinism = "bitwise"
nonfinite = "unspecified"
training = true

[tolerance]
words = "What an honest kernel errs by that takes tokens together in float32; where the kernels for \
bfloat16 are required, with operands of products rounded to bfloat16 and float32 sums."

[oracle]
words = "The attention form in float64, which is the recurrence's (tests/recurrence/test_judged.py)."

[measurement]
words = "Every gate."

[signature]
words = "As the gate that finds it reports it."
"""

_LAYOUTS = (
    *("contiguous", "transposed", "sliced", "padded", "offset", "misaligned", "expanded"),
    *("overlapping", "side-sliced"),
)


def contract(member: Member) -> str:
    """The file of the member's contract, which holds for all forms."""
    layouts = "[" + ", ".join(f'"{name}"' for name in _LAYOUTS) + "]"
    return _CONTRACT.format(name=member.name, layouts=layouts)


def contract_path(member: Member) -> Path:
    """Where it is kept: beside the operation."""
    source = Path(__file__).resolve().parents[3] / "src" / "gated_recurrence"
    return source / member.name / "contract.toml"


def written(folder: Path) -> None:
    """Writes `MEMBER/FORM/reference.py` and `candidate.py`, for `adjudge verify`."""
    for member in MEMBERS:
        for form in FORMS:
            place = folder / member.name / form
            place.mkdir(parents=True, exist_ok=True)
            (place / "reference.py").write_text(reference(member, form), encoding="utf-8")
            (place / "candidate.py").write_text(candidate(member, form), encoding="utf-8")


if __name__ == "__main__":
    for each in MEMBERS:
        contract_path(each).write_text(contract(each), encoding="utf-8")
    for given in sys.argv[1:]:
        written(Path(given))
