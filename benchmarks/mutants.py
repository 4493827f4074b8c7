"""Plants faults in a reference, to see whether they are convicted.

Each mutant is the reference's own source with a `ModelNew` added that inherits from `Model`. A
mutant that cannot exist for a reference (no parameter to ignore) is left out.
"""

from __future__ import annotations

import ast

HONEST = "\n\nclass ModelNew(Model):\n    pass\n"

#: Graphs are compiled anew for sizes that the ones before do not cover. Past Dynamo's usual eight, it
#: would quietly run the reference as it is.
COMPILED = """

torch._dynamo.config.recompile_limit = 256
torch._dynamo.config.accumulated_recompile_limit = 1024


class ModelNew(Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.compiled = torch.compile(super().forward)

    def forward(self, *args, **kwargs):
        out = self.compiled(*args, **kwargs)
        if not torch._dynamo.utils.counters["frames"]["ok"]:
            raise RuntimeError("nothing was compiled: the control would be the reference itself")
        return out
"""

_SLICE = """

class ModelNew(Model):
    def forward(self, *args, **kwargs):
        first = next(i for i, a in enumerate(args) if torch.is_tensor(a) and a.dim() and a.numel())
        cut = args[first].clone()
        cut[..., -1] = cut[..., 0]
        return super().forward(*args[:first], cut, *args[first + 1:], **kwargs)
"""

_HALF = """

class ModelNew(Model):
    def forward(self, *args, **kwargs):
        narrow = lambda a: a.to(torch.bfloat16) if torch.is_tensor(a) and a.is_floating_point() else a
        kept = {name: p.data for name, p in self.named_parameters()}
        held = {name: b.clone() for name, b in self.named_buffers()}
        for p in self.parameters():
            p.data = p.data.to(torch.bfloat16)
        for b in self.buffers():
            b.data = narrow(b.data)
        out = super().forward(*map(narrow, args), **{k: narrow(v) for k, v in kwargs.items()})
        for name, p in self.named_parameters():
            p.data = kept[name]
        for name, b in self.named_buffers():
            b.data = held[name]
        widen = lambda o: o.float() if torch.is_tensor(o) and o.is_floating_point() else o
        return tuple(map(widen, out)) if isinstance(out, tuple) else widen(out)
"""

_IGNORED = """

class ModelNew(Model):
    def forward(self, *args, **kwargs):
        named = [(n, p) for n, p in self.named_parameters()]
        name, chosen = next(((n, p) for n, p in named if n.endswith("bias")), named[-1])
        kept = chosen.data
        chosen.data = torch.zeros_like(kept)
        out = super().forward(*args, **kwargs)
        chosen.data = kept
        return out
"""

_CONSTANT = """

class ModelNew(Model):
    def forward(self, *args, **kwargs):
        scale = lambda o: o * 1.01 if torch.is_tensor(o) and o.is_floating_point() else o
        out = super().forward(*args, **kwargs)
        return tuple(map(scale, out)) if isinstance(out, tuple) else scale(out)
"""

_TERM = """

class ModelNew(Model):
    def forward(self, *args, **kwargs):
        floats = [i for i, a in enumerate(args) if torch.is_tensor(a) and a.is_floating_point()]
        cut = args[floats[-1]].clone()
        cut[..., cut.shape[-1] // 2] = 0
        return super().forward(*args[: floats[-1]], cut, *args[floats[-1] + 1 :], **kwargs)
"""


def mutants(reference: str) -> dict[str, str]:
    """Kind of fault -> candidate source."""
    found = {
        "dropped term": reference + _TERM,
        "off-by-one slice": reference + _SLICE,
        "wrong constant": reference + _CONSTANT,
        "half precision": reference + _HALF,
    }
    if _has_parameters(reference):
        found["ignored parameter"] = reference + _IGNORED
    return found


def _has_parameters(reference: str) -> bool:
    layers = ("Conv", "Linear", "BatchNorm", "LSTM", "GRU", "Embedding", "LayerNorm", "GroupNorm")
    for node in ast.walk(ast.parse(reference)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name == "Parameter" or name.startswith(layers):
                return True
    return False
