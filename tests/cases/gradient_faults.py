"""Faults of backward passes seen in the wild, in the form of `faults`: each is right forwards.

The identifiers are those of a list of public reports; the link stands beside each.
"""

from __future__ import annotations

from faults import Fault

#: Row-wise negative logarithm of the softmax at a target, and its backward pass by a stride between
#: rows of the upstream gradient.
CROSS_ENTROPY = """
    @triton.jit
    def loss_kernel(x_ptr, t_ptr, loss_ptr, p_ptr, columns, BLOCK: tl.constexpr):
        row = tl.program_id(0)
        offsets = tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=float("-inf"))
        top = tl.max(x, axis=0)
        power = tl.exp(x - top)
        total = tl.sum(power, axis=0)
        target = tl.load(t_ptr + row)
        chosen = tl.load(x_ptr + row * columns + target)
        tl.store(loss_ptr + row, tl.log(total) + top - chosen)
        tl.store(p_ptr + row * columns + offsets, power / total, mask=mask)

    @triton.jit
    def gradient_kernel(p_ptr, t_ptr, g_ptr, d_ptr, columns, g_stride, BLOCK: tl.constexpr):
        row = tl.program_id(0)
        offsets = tl.arange(0, BLOCK)
        mask = offsets < columns
        p = tl.load(p_ptr + row * columns + offsets, mask=mask, other=0.0)
        target = tl.load(t_ptr + row)
        g = tl.load(g_ptr + row * g_stride)
        d = (p - tl.where(offsets == target, 1.0, 0.0)) * g
        tl.store(d_ptr + row * columns + offsets, d, mask=mask)

    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, t, stride, overwrite):
            x, t = x.contiguous(), t.contiguous()
            loss = torch.empty(x.shape[0], device=x.device)
            p = torch.empty_like(x)
            if x.numel():
                block = triton.next_power_of_2(x.shape[1])
                loss_kernel[(x.shape[0],)](x, t, loss, p, x.shape[1], BLOCK=block)
            # Kept outside of what autograd watches, as the reported kernel keeps it.
            ctx.p, ctx.t, ctx.stride, ctx.overwrite = p, t, stride, overwrite
            return loss

        @staticmethod
        def backward(ctx, g):
            p = ctx.p
            d = p if ctx.overwrite else torch.empty_like(p)
            stride = g.stride(0) if ctx.stride is None else ctx.stride
            if p.numel():
                block = triton.next_power_of_2(p.shape[1])
                gradient_kernel[(p.shape[0],)](p, ctx.t, g, d, p.shape[1], stride, BLOCK=block)
            return d, None, None, None
"""

GRADIENT_FAULTS: tuple[Fault, ...] = (
    Fault(
        identifier="S25",
        report="https://github.com/unslothai/unsloth/issues/5002",
        what="the backward pass puts the gradient where the saved probabilities were",
        gates=("wrong-gradient",),
        arguments="x, t",
        inputs="torch.randn(rows, columns), torch.randint(0, columns, (rows,))",
        reference="return F.cross_entropy(x, t, reduction='none')",
        top=CROSS_ENTROPY,
        correct="return Loss.apply(x, t, None, False)",
        broken="return Loss.apply(x, t, None, True)",
    ),
    Fault(
        identifier="S32",
        report="https://github.com/fla-org/flash-linear-attention/issues/1140",
        what="where the sequence is shorter than the window, a clamp shifts the state's gradient",
        gates=("wrong-gradient",),
        arguments="x, h",
        inputs="torch.randn(rows, 5), torch.randn(rows, 3)",
        # The state after a causal convolution: as much as it had before, of the last that was seen.
        reference="return torch.cat([h, x], 1)[:, x.shape[1] :] * 2",
        top="""
            class State(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x, h, clamped):
                    ctx.sizes, ctx.clamped = (x.shape[1], h.shape[1]), clamped
                    seen = torch.cat([h, x], 1)
                    return seen[:, x.shape[1] :] * 2

                @staticmethod
                def backward(ctx, g):
                    length, width = ctx.sizes
                    whole = g.new_zeros(g.shape[0], width + length)
                    whole[:, length:] = 2 * g
                    dh = whole[:, :width]
                    if ctx.clamped and 0 < length < width:
                        # The first row is taken where none should be: min(row, length - 1).
                        dh = whole[:, [min(i, length - 1) for i in range(width)]]
                    return whole[:, width:], dh, None
        """,
        correct="return State.apply(x, h, False)",
        broken="return State.apply(x, h, True)",
    ),
    Fault(
        identifier="S33",
        report="https://github.com/ROCm/TransformerEngine/pull/623",
        what="an expanded upstream gradient is read with a row stride of one, past its storage",
        gates=("wrong-gradient", "out-of-bounds"),
        arguments="x, t",
        inputs="torch.randn(rows, columns), torch.randint(0, columns, (rows,))",
        reference="return F.cross_entropy(x, t, reduction='none')",
        top=CROSS_ENTROPY,
        correct="return Loss.apply(x, t, None, False)",
        broken="return Loss.apply(x, t, 1, False)",
    ),
    Fault(
        identifier="S34",
        report="https://github.com/unslothai/unsloth/issues/4533",
        what="the backward pass returns None for the weight",
        gates=("wrong-gradient",),
        # An input that requires a gradient declares training.
        inputs="torch.randn(rows, columns, requires_grad=True)",
        init="self.weight = nn.Parameter(torch.rand(columns))",
        reference="return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-6)",
        top="""
            class Norm(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x, weight, whole):
                    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
                    ctx.save_for_backward(x, weight, scale)
                    ctx.whole = whole
                    return x * scale * weight

                @staticmethod
                def backward(ctx, g):
                    x, weight, scale = ctx.saved_tensors
                    along = x * scale
                    inner = g * weight
                    dx = (inner - along * (inner * along).mean(-1, keepdim=True)) * scale
                    return dx, (g * along).sum(0) if ctx.whole else None, None
        """,
        correct="return Norm.apply(x, self.weight, True)",
        broken="return Norm.apply(x, self.weight, False)",
    ),
    Fault(
        identifier="S35",
        report="https://github.com/flagos-ai/FlagGems/issues/5392",
        what="the backward pass of a layer norm takes the second dimension for the normalised one",
        gates=("wrong-gradient", "out-of-bounds"),
        inputs="torch.randn(2, 3, 16)",
        init="self.weight = nn.Parameter(torch.rand(16))",
        reference="return F.layer_norm(x, (16,), self.weight)",
        top="""
            class Norm(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x, weight, flat):
                    centred = x - x.mean(-1, keepdim=True)
                    scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
                    ctx.save_for_backward(centred * scale, weight, scale)
                    ctx.flat = flat
                    return centred * scale * weight

                @staticmethod
                def backward(ctx, g):
                    along, weight, scale = ctx.saved_tensors
                    inner = g * weight
                    width = along.shape[-1] if ctx.flat else along.shape[1]
                    total = inner.sum(-1, keepdim=True) / width
                    slope = (inner * along).sum(-1, keepdim=True) / width
                    dx = (inner - total - along * slope) * scale
                    return dx, (g * along).reshape(-1, along.shape[-1]).sum(0), None
        """,
        correct="return Norm.apply(x, self.weight, True)",
        broken="return Norm.apply(x, self.weight, False)",
    ),
)
