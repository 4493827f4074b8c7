"""Backward passes written by hand, each by another formula than torch's, are right."""

from __future__ import annotations

import pytest

from adjudge.contract import Outcome
from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"

#: Name, inputs, __init__, reference, what forward saves and returns, gradients.
Hand = tuple[str, str, str, str, str, str, str]
R = "torch.randn"
HANDS: tuple[Hand, ...] = (
    (
        "softmax",
        "x",
        f"{R}(6, 40)",
        "pass",
        "torch.softmax(x, -1)",
        "y = torch.exp(x - torch.logsumexp(x, -1, keepdim=True)); s = (y,)",
        "(y,) = s; return g * y - y * (g * y).sum(-1, keepdim=True)",
    ),
    (
        "log-softmax",
        "x",
        f"{R}(6, 40)",
        "pass",
        "F.log_softmax(x, -1)",
        "y = x - torch.logsumexp(x, -1, keepdim=True); s = (y,)",
        "(y,) = s; return g - torch.exp2(y * 1.4426950408889634) * g.sum(-1, keepdim=True)",
    ),
    (
        "gelu",
        "x",
        f"{R}(6, 40)",
        "pass",
        "F.gelu(x)",
        "y = 0.5 * x * torch.erfc(-x * 0.7071067811865476); s = (x,)",
        "(x,) = s; return g * (0.5 + 0.5 * torch.erf(x * 0.7071067811865476)"
        " + x * torch.exp(-0.5 * x * x) * 0.3989422804014327)",
    ),
    (
        "silu",
        "x",
        f"{R}(6, 40)",
        "pass",
        "F.silu(x)",
        "y = x / (1 + torch.exp(-x)); s = (x,)",
        "(x,) = s; p = 1 / (1 + torch.exp(-x)); return g * (p + x * p * (1 - p))",
    ),
    (
        "linear",
        "x, w, b",
        f"{R}(6, 40)",
        "self.w = nn.Parameter(torch.randn(9, 40)); self.b = nn.Parameter(torch.randn(9))",
        "F.linear(x, self.w, self.b)",
        "y = (x.unsqueeze(1) * w).sum(-1) + b; s = (x, w)",
        "x, w = s; return g @ w, (g.unsqueeze(2) * x.unsqueeze(1)).sum(0), g.sum(0)",
    ),
    (
        "layer-norm",
        "x, w, b",
        f"{R}(2, 5, 40)",
        "self.w = nn.Parameter(torch.rand(40)); self.b = nn.Parameter(torch.rand(40))",
        "F.layer_norm(x, (40,), self.w, self.b)",
        "m = x.mean(-1, keepdim=True); r = torch.rsqrt((x - m).square().mean(-1, keepdim=True)"
        " + 1e-5); h = (x - m) * r; y = h * w + b; s = (h, r, w)",
        "h, r, w = s; i = g * w; c = (i * h).mean(-1, keepdim=True); d = i.mean(-1, keepdim=True)\n"
        "        return (i - (h * c + d)) * r, (g * h).sum((0, 1)), g.sum((0, 1))",
    ),
    (
        "cross-entropy",
        "x, t",
        f"{R}(6, 40), torch.randint(0, 40, (6,))",
        "pass",
        "F.cross_entropy(x, t)",
        "l = torch.logsumexp(x, 1); y = (l - x.gather(1, t[:, None])[:, 0]).sum() / x.shape[0];"
        " s = (x, t, l)",
        "x, t, l = s; p = torch.exp(x - l[:, None]); p = p - F.one_hot(t, x.shape[1]).to(p.dtype)\n"
        "        return p * (g / x.shape[0]), None",
    ),
    (
        "embedding",
        "t, w",
        "torch.randint(0, 11, (5, 40))",
        "self.w = nn.Parameter(torch.randn(11, 8))",
        "F.embedding(t, self.w)",
        "y = w[t]; s = (t, w)",
        "t, w = s; h = F.one_hot(t.reshape(-1), w.shape[0]).to(g.dtype)\n"
        "        return None, h.T @ g.reshape(-1, w.shape[1])",
    ),
    (
        "attention",
        "q, k, v",
        f"{R}(2, 12, 8), {R}(2, 12, 8), {R}(2, 12, 8)",
        "pass",
        "torch.softmax(q @ k.mT / 8**0.5, -1) @ v",
        "a = q @ k.mT * 8**-0.5; l = torch.logsumexp(a, -1, keepdim=True); y = torch.exp(a - l) @ v;"
        " s = (q, k, v, y, l)",
        "q, k, v, y, l = s; p = torch.exp(q @ k.mT * 8**-0.5 - l)\n"
        "        d = p * (g @ v.mT - (g * y).sum(-1, keepdim=True)) * 8**-0.5\n"
        "        return d @ k, d.mT @ q, p.mT @ g",
    ),
    (
        "max-pool",
        "x",
        f"{R}(2, 3, 12)",
        "pass",
        "F.max_pool1d(x, 3, 2)",
        "u = x.unfold(-1, 3, 2); y = u.amax(-1); s = (x, u.argmax(-1))",
        "x, a = s; at = a + 2 * torch.arange(a.shape[-1], device=a.device)\n"
        "        return torch.zeros_like(x).scatter_add(-1, at, g.contiguous())",
    ),
)


def sources(hand: Hand) -> tuple[str, str]:
    _, arguments, inputs, init, reference, forward, backward = hand
    given = ", ".join(a for a in arguments.split(", ") if f"self.{a} =" not in init)
    passed = ", ".join(f"self.{a}" if f"self.{a} =" in init else a for a in arguments.split(", "))
    body = "    def __init__(self):\n        super().__init__()\n"
    body += f"        {init}\n\n    def forward(self, {given}):\n        return "
    model = f"{HEAD}class Model(nn.Module):\n{body}{reference}\n\n"
    model += f"def get_inputs():\n    return [{inputs}]\n\ndef get_init_inputs():\n    return []\n"
    own = (
        f"{HEAD}class Own(torch.autograd.Function):\n    @staticmethod\n"
        f"    def forward(ctx, {arguments}):\n        {forward}\n"
        "        ctx.save_for_backward(*s)\n        return y\n\n    @staticmethod\n"
        f"    def backward(ctx, g):\n        s = ctx.saved_tensors\n        {backward}\n\n"
        f"class ModelNew(nn.Module):\n{body}Own.apply({passed})\n"
    )
    return model, own


@pytest.mark.parametrize("hand", HANDS, ids=lambda hand: hand[0])
def test_another_formula_is_no_fault(hand: Hand, zygote: Zygote) -> None:
    program, candidate = kernelbench.from_source(*sources(hand), hand[0])
    options = Options(zygote=zygote, examine=False, gates=("wrong-gradient",))
    (finding,) = verify(program, candidate, options).findings
    assert finding.outcome is Outcome.PASS, (finding.reason, finding.violation)
