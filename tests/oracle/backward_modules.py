"""Ordinary modules, as a benchmark writes them: between them they differentiate through everything
that references are made of.

A row is (name, body of __init__, arguments of forward, body of forward, inputs).
"""

from __future__ import annotations

from typing import Any

Row = tuple[str, str, str, str, str]

R = "torch.randn"
ROWS: tuple[Row, ...] = (
    ("linear", "self.f = nn.Linear(24, 13)", "x", "return self.f(x)", f"{R}(6, 24)"),
    ("bmm", "pass", "a, b", "return torch.bmm(a, b)", f"{R}(3, 5, 24), {R}(3, 24, 7)"),
    (
        "matmul4",
        "pass",
        "a, b",
        "return torch.matmul(a, b)",
        f"{R}(2, 3, 5, 24), {R}(2, 3, 24, 7)",
    ),
    ("einsum", "pass", "a, b", "return torch.einsum('bij,jk->bik', a, b)", f"{R}(3, 5, 12), {R}(12, 7)"),
    ("conv1d", "self.f = nn.Conv1d(4, 6, 3, padding=1)", "x", "return self.f(x)", f"{R}(2, 4, 19)"),
    (
        "conv2d",
        "self.f = nn.Conv2d(4, 6, 3, stride=2, padding=1)",
        "x",
        "return self.f(x)",
        f"{R}(2, 4, 11, 13)",
    ),
    (
        "depthwise",
        "self.f = nn.Conv2d(4, 8, 3, groups=4, dilation=2, bias=False)",
        "x",
        "return self.f(x)",
        f"{R}(2, 4, 11, 9)",
    ),
    ("conv3d", "self.f = nn.Conv3d(3, 4, 3)", "x", "return self.f(x)", f"{R}(2, 3, 6, 5, 7)"),
    (
        "conv-transpose1d",
        "self.f = nn.ConvTranspose1d(4, 3, 3, stride=2)",
        "x",
        "return self.f(x)",
        f"{R}(2, 4, 9)",
    ),
    (
        "conv-transpose2d",
        "self.f = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)",
        "x",
        "return self.f(x)",
        f"{R}(2, 4, 6, 5)",
    ),
    (
        "conv-transpose3d",
        "self.f = nn.ConvTranspose3d(3, 4, 3)",
        "x",
        "return self.f(x)",
        f"{R}(2, 3, 4, 5, 3)",
    ),
    ("batch-norm", "self.f = nn.BatchNorm2d(5)", "x", "return self.f(x)", f"{R}(4, 5, 6, 7)"),
    (
        "batch-norm-eval",
        "self.f = nn.BatchNorm1d(5).eval()",
        "x",
        "return self.f(x)",
        f"{R}(14, 5)",
    ),
    ("layer-norm", "self.f = nn.LayerNorm(48)", "x", "return self.f(x)", f"{R}(2, 5, 48)"),
    ("group-norm", "self.f = nn.GroupNorm(2, 6)", "x", "return self.f(x)", f"{R}(3, 6, 5, 4)"),
    (
        "instance-norm",
        "self.f = nn.InstanceNorm2d(4, affine=True)",
        "x",
        "return self.f(x)",
        f"{R}(3, 4, 6, 5)",
    ),
    ("rms-norm", "self.f = nn.RMSNorm(48, eps=1e-6)", "x", "return self.f(x)", f"{R}(7, 48)"),
    (
        "rms-norm-by-hand",
        "self.w = nn.Parameter(torch.rand(48))",
        "x",
        "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.w",
        f"{R}(7, 48)",
    ),
    (
        "l2-norm",
        "pass",
        "x",
        "return x / torch.norm(x, p=2, dim=1, keepdim=True)",
        f"{R}(7, 48)",
    ),
    ("frobenius-norm", "pass", "x", "return x / torch.norm(x, p='fro')", f"{R}(7, 18)"),
    ("normalize", "pass", "x", "return F.normalize(x, p=1.0, dim=1)", f"{R}(7, 18)"),
    ("softmax", "pass", "x", "return torch.softmax(x, 1)", f"{R}(6, 65)"),
    ("log-softmax", "pass", "x", "return F.log_softmax(x, 1)", f"{R}(6, 65)"),
    ("logsumexp", "pass", "x", "return torch.logsumexp(x, 1)", f"{R}(6, 65)"),
    (
        "cross-entropy",
        "pass",
        "x, t",
        "return F.cross_entropy(x, t)",
        f"{R}(12, 17), torch.randint(0, 17, (12,))",
    ),
    (
        "nll-by-row",
        "pass",
        "x, t",
        "return F.cross_entropy(x, t, reduction='none', label_smoothing=0.1)",
        f"{R}(12, 17), torch.randint(0, 17, (12,))",
    ),
    ("mse", "pass", "x, y", "return F.mse_loss(x, y)", f"{R}(9, 17), {R}(9, 17)"),
    ("l1", "pass", "x, y", "return F.l1_loss(x, y)", f"{R}(9, 17), {R}(9, 17)"),
    ("huber", "pass", "x, y", "return F.huber_loss(x, y)", f"{R}(9, 17), {R}(9, 17)"),
    ("smooth-l1", "pass", "x, y", "return F.smooth_l1_loss(x, y)", f"{R}(9, 17), {R}(9, 17)"),
    (
        "kl-div",
        "pass",
        "x, y",
        "return F.kl_div(F.log_softmax(x, 1), torch.softmax(y, 1), reduction='batchmean')",
        f"{R}(9, 17), {R}(9, 17)",
    ),
    (
        "bce-logits",
        "pass",
        "x, y",
        "return F.binary_cross_entropy_with_logits(x, y)",
        f"{R}(9, 17), torch.rand(9, 17)",
    ),
    (
        "bce",
        "pass",
        "x, y",
        "return F.binary_cross_entropy(torch.sigmoid(x), y)",
        f"{R}(9, 17), torch.rand(9, 17)",
    ),
    (
        "hinge",
        "pass",
        "x, y",
        "return torch.mean(torch.clamp(1 - x * y, min=0))",
        f"{R}(9, 17), {R}(9, 17)",
    ),
    (
        "cosine-loss",
        "pass",
        "x, y",
        "return torch.mean(1 - F.cosine_similarity(x, y, dim=1))",
        f"{R}(9, 17), {R}(9, 17)",
    ),
    (
        "triplet",
        "self.f = nn.TripletMarginLoss()",
        "a, p, n",
        "return self.f(a, p, n)",
        f"{R}(9, 17), {R}(9, 17), {R}(9, 17)",
    ),
    *(
        (name, "pass", "x", f"return {words}", f"{R}(12, 33)")
        for name, words in (
            ("gelu", "F.gelu(x)"),
            ("gelu-tanh", "F.gelu(x, approximate='tanh')"),
            ("silu", "F.silu(x)"),
            ("mish", "F.mish(x)"),
            ("elu", "F.elu(x, alpha=1.3)"),
            ("selu", "F.selu(x)"),
            ("celu", "F.celu(x)"),
            ("softplus", "F.softplus(x)"),
            ("softsign", "F.softsign(x)"),
            ("logsigmoid", "F.logsigmoid(x)"),
            ("relu", "torch.relu(x)"),
            ("relu6", "F.relu6(x)"),
            ("leaky-relu", "F.leaky_relu(x, 0.1)"),
            ("hardtanh", "F.hardtanh(x)"),
            ("hardsigmoid", "F.hardsigmoid(x)"),
            ("hardswish", "F.hardswish(x)"),
            ("hardshrink", "F.hardshrink(x)"),
            ("softshrink", "F.softshrink(x)"),
            ("tanh", "torch.tanh(x)"),
            ("sigmoid", "torch.sigmoid(x)"),
            ("glu", "F.glu(x[:, :32])"),
            ("exp", "torch.exp(x)"),
            ("log", "torch.log(x * x + 1)"),
            ("sqrt", "torch.sqrt(x * x + 0.1)"),
            ("pow", "torch.pow(x, 3)"),
            ("sin", "torch.sin(x)"),
            ("erf", "torch.erf(x)"),
            ("division", "x / (1 + x.abs())"),
            ("sum", "x.sum(1)"),
            ("mean", "x.mean(0, keepdim=True)"),
            ("var", "x.var(1)"),
            ("std", "x.std(1)"),
            ("prod", "x.prod(1)"),
            ("amax", "x.amax(1)"),
            ("max-values", "torch.max(x, 1)[0]"),
            ("min-values", "torch.min(x, 1)[0]"),
            ("cumsum", "torch.cumsum(x, 1)"),
            ("cumprod", "torch.cumprod(x, 1)"),
            ("reverse-cumsum", "torch.cumsum(x.flip(1), 1).flip(1)"),
            ("sort", "torch.sort(x, 1)[0]"),
            ("topk", "torch.topk(x, 5, 1)[0]"),
            ("roll-cat", "torch.cat([x.roll(1, 0), x[:, ::2]], 1)"),
            ("pad", "F.pad(x, (2, 3))"),
            ("where", "torch.where(x > 0, x * 2, x * x)"),
            ("tril", "torch.tril(x @ x.T)"),
            ("masked", "x.masked_fill(x > 1, 0.0) * 3"),
            ("clamp", "torch.clamp(x, -0.5, 0.5) * x"),
            ("minimum", "torch.minimum(x, x.flip(0))"),
            ("rsqrt", "torch.rsqrt(x * x + 1)"),
            ("log1p", "torch.log1p(x * x)"),
            ("expm1", "torch.expm1(x)"),
            ("atan", "torch.atan(x)"),
            ("tan-of-small", "torch.tan(x * 0.1)"),
            ("in-place", "x.clone().mul_(2).add_(1).relu_()"),
        )
    ),
    ("prelu", "self.f = nn.PReLU(5)", "x", "return self.f(x)", f"{R}(4, 5, 9)"),
    *(
        (name, "pass", "x", f"return {words}", f"{R}(2, 3, 10, 12)")
        for name, words in (
            ("max-pool2d", "F.max_pool2d(x, 3, stride=2, padding=1)"),
            ("avg-pool2d", "F.avg_pool2d(x, 3, stride=2, padding=1)"),
            ("adaptive-avg2d", "F.adaptive_avg_pool2d(x, (3, 5))"),
            ("adaptive-max2d", "F.adaptive_max_pool2d(x, (3, 5))"),
            ("global-avg", "F.adaptive_avg_pool2d(x, 1)"),
            ("bilinear", "F.interpolate(x, scale_factor=2, mode='bilinear')"),
            ("bilinear-aligned", "F.interpolate(x, (7, 17), mode='bilinear', align_corners=True)"),
            ("bicubic", "F.interpolate(x, (13, 9), mode='bicubic')"),
            ("nearest", "F.interpolate(x, scale_factor=2)"),
            ("pixel-shuffle", "F.pixel_unshuffle(x, 2)"),
            ("reflection-pad", "F.pad(x, (2, 1, 1, 2), mode='reflect')"),
            ("replication-pad", "F.pad(x, (2, 1, 1, 2), mode='replicate')"),
            ("unfold", "F.unfold(x, 3, padding=1)"),
            ("lp-pool", "F.lp_pool2d(x, 2, 2)"),
            ("local-response-norm", "F.local_response_norm(x, 2)"),
        )
    ),
    ("max-pool1d", "pass", "x", "return F.max_pool1d(x, 4, 2, 1)", f"{R}(2, 3, 21)"),
    ("avg-pool1d", "pass", "x", "return F.avg_pool1d(x, 4, 2, 1)", f"{R}(2, 3, 21)"),
    ("max-pool3d", "pass", "x", "return F.max_pool3d(x, 2)", f"{R}(2, 3, 4, 6, 6)"),
    ("avg-pool3d", "pass", "x", "return F.avg_pool3d(x, 2)", f"{R}(2, 3, 4, 6, 6)"),
    ("adaptive-avg1d", "pass", "x", "return F.adaptive_avg_pool1d(x, 5)", f"{R}(2, 3, 21)"),
    ("adaptive-avg3d", "pass", "x", "return F.adaptive_avg_pool3d(x, 3)", f"{R}(2, 3, 5, 6, 7)"),
    (
        "embedding",
        "self.f = nn.Embedding(11, 8)",
        "t",
        "return self.f(t)",
        "torch.randint(0, 11, (5, 40))",
    ),
    (
        "embedding-bag",
        "self.f = nn.EmbeddingBag(11, 8, mode='mean')",
        "t",
        "return self.f(t)",
        "torch.randint(0, 11, (5, 40))",
    ),
    (
        "gather",
        "pass",
        "x, t",
        "return x.gather(1, t)",
        f"{R}(6, 9), torch.randint(0, 9, (6, 40))",
    ),
    (
        "index-select",
        "pass",
        "x, t",
        "return x.index_select(0, t)",
        f"{R}(6, 9), torch.randint(0, 6, (40,))",
    ),
    ("indexing", "pass", "x, t", "return x[t]", f"{R}(6, 9), torch.randint(0, 6, (40,))"),
    (
        "scatter-add",
        "pass",
        "x, t",
        "return torch.zeros(9, 7).scatter_add(0, t, x)",
        f"{R}(40, 7), torch.randint(0, 9, (40, 7))",
    ),
    (
        "index-add",
        "pass",
        "x, t",
        "return torch.zeros(9, 7).index_add(0, t, x)",
        f"{R}(40, 7), torch.randint(0, 9, (40,))",
    ),
    (
        "attention",
        "pass",
        "q, k, v",
        "return F.scaled_dot_product_attention(q, k, v)",
        f"{R}(2, 2, 12, 8), {R}(2, 2, 12, 8), {R}(2, 2, 12, 8)",
    ),
    (
        "causal",
        "pass",
        "q, k, v",
        "return F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        f"{R}(2, 2, 12, 8), {R}(2, 2, 12, 8), {R}(2, 2, 12, 8)",
    ),
    (
        "multi-head",
        "self.f = nn.MultiheadAttention(16, 2, batch_first=True)",
        "x",
        "return self.f(x, x, x)[0]",
        f"{R}(2, 7, 16)",
    ),
    (
        "encoder-layer",
        "self.f = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)",
        "x",
        "return self.f(x)",
        f"{R}(2, 7, 16)",
    ),
    ("lstm", "self.f = nn.LSTM(5, 8, batch_first=True)", "x", "return self.f(x)[0]", f"{R}(2, 6, 5)"),
    ("gru", "self.f = nn.GRU(5, 8, batch_first=True)", "x", "return self.f(x)[0]", f"{R}(2, 6, 5)"),
    ("rnn", "self.f = nn.RNN(5, 8, batch_first=True)", "x", "return self.f(x)[0]", f"{R}(2, 6, 5)"),
    ("gru-cell", "self.f = nn.GRUCell(5, 8)", "x, h", "return self.f(x, h)", f"{R}(6, 5), {R}(6, 8)"),
    ("lstm-cell", "self.f = nn.LSTMCell(5, 8)", "x", "return self.f(x)[0]", f"{R}(6, 5)"),
    (
        "bilinear-form",
        "self.f = nn.Bilinear(5, 6, 4)",
        "x, y",
        "return self.f(x, y)",
        f"{R}(7, 5), {R}(7, 6)",
    ),
    (
        "addmm",
        "pass",
        "c, a, b",
        "return torch.addmm(c, a, b, beta=0.5)",
        f"{R}(5, 7), {R}(5, 9), {R}(9, 7)",
    ),
    ("diag-matmul", "pass", "a, b", "return torch.diag(a) @ b", f"{R}(9), {R}(9, 7)"),
    ("outer-sub", "pass", "x", "return torch.cdist(x, x.flip(0) + 1)", f"{R}(6, 8)"),
)  # fmt: skip


def source(row: Row, name: str = "Model") -> str:
    """The row as a benchmark's file."""
    _, init, arguments, forward, inputs = row
    return (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
        f"class {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {init}\n\n    def forward(self, {arguments}):\n        {forward}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


def loaded(row: Row) -> dict[str, Any]:
    """The row's names, executed."""
    names: dict[str, Any] = {}
    exec(source(row), names)
    return names
