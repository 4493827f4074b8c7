"""The algebra of one chunk, forward and backward.

Every member is `S_t = D_t S + k_t u_tᵀ`, `u_t = β_t (v_t - e_tᵀ D_t S)`, `o_t = s q_tᵀ S_t`,
with `S` the state before the token. Shapes: q, k, e `[..., C, K]`; v `[..., C, V]`; β `[..., C, 1]`; G,
the inclusive cumulative log decay in the chunk, `[..., C, 1]` (scalar gate) or `[..., C, K]`; S
`[..., K, V]`. Only differences of G that are never above zero are raised to a power.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# The rows that share one base of the exponent with a per-channel gate: a tensor-core tile.
SUB = 16


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk's operands; `erase` and `beta` are None for members without a delta rule.

    `log_erase` is the log decay seen by `erase`: G, or the exclusive sum (RWKV-7).
    """

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor
    erase: Tensor | None
    log_erase: Tensor
    beta: Tensor | None
    scale: float
    rounded: bool


@dataclass(frozen=True, slots=True)
class Gradients:
    """Gradients in the order of the operands; `log_erase` is None without a delta rule."""

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor
    erase: Tensor | None
    log_erase: Tensor | None
    beta: Tensor | None
    state: Tensor


@dataclass(frozen=True, slots=True)
class _Solved:
    inner: Tensor | None
    inverse: Tensor | None
    residual: Tensor | None
    update: Tensor
    weights: Tensor
    k_end: Tensor


def product(x: Tensor, y: Tensor, rounded: bool) -> Tensor:
    """`x @ y`; with `rounded`, bfloat16 operands and the accumulator in the working dtype."""
    if rounded:
        x, y = x.bfloat16().to(x.dtype), y.bfloat16().to(y.dtype)
    return x @ y


def _pair_decay(rows: Tensor, columns: Tensor, strict: bool) -> Tensor:
    """`exp(rows_i - columns_j)` below the diagonal, 0 above: `[..., R, R, 1 or K]`."""
    size = rows.shape[-2]
    keep = torch.ones(size, size, dtype=torch.bool, device=rows.device).tril(-1 if strict else 0)
    gap = rows.unsqueeze(-2) - columns.unsqueeze(-3)
    return gap.masked_fill(~keep.unsqueeze(-1), -torch.inf).exp()


def pairs(
    x: Tensor, y: Tensor, log_x: Tensor, log_y: Tensor, strict: bool, rounded: bool
) -> Tensor:
    """`Σ_K x_i y_j exp(log_x_i - log_y_j)` for j < i, with j = i unless strict: `[..., C, C]`."""
    if log_y.shape[-1] == 1:
        decay = _pair_decay(log_x, log_y, strict).squeeze(-1)
        return product(x, y.mT, rounded) * decay
    size = x.shape[-2]
    out = x.new_zeros(*x.shape[:-1], size)
    for first in range(0, size, SUB):
        rows = slice(first, first + SUB)
        decay = _pair_decay(log_x[..., rows, :], log_y[..., rows, :], strict)
        out[..., rows, rows] = torch.einsum(
            "...ik,...jk,...ijk->...ij", x[..., rows, :], y[..., rows, :], decay
        )
        if first:
            base = log_y[..., first - 1 : first, :]
            left = x[..., rows, :] * (log_x[..., rows, :] - base).exp()
            right = y[..., :first, :] * (base - log_y[..., :first, :]).exp()
            out[..., rows, :first] = product(left, right.mT, rounded)
    return out


def pairs_backward(
    grad: Tensor, x: Tensor, y: Tensor, log_x: Tensor, log_y: Tensor, strict: bool, rounded: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of `pairs` in x and y."""
    if log_y.shape[-1] == 1:
        grad = grad * _pair_decay(log_x, log_y, strict).squeeze(-1)
        return product(grad, y, rounded), product(grad.mT, x, rounded)
    grad_x, grad_y = torch.zeros_like(x), torch.zeros_like(y)
    for first in range(0, x.shape[-2], SUB):
        rows = slice(first, first + SUB)
        decay = _pair_decay(log_x[..., rows, :], log_y[..., rows, :], strict)
        decay = decay * grad[..., rows, rows].unsqueeze(-1)
        grad_x[..., rows, :] += torch.einsum("...ijk,...jk->...ik", decay, y[..., rows, :])
        grad_y[..., rows, :] += torch.einsum("...ijk,...ik->...jk", decay, x[..., rows, :])
        if first:
            base = log_y[..., first - 1 : first, :]
            from_x = (log_x[..., rows, :] - base).exp()
            from_y = (base - log_y[..., :first, :]).exp()
            block = grad[..., rows, :first]
            grad_x[..., rows, :] += from_x * product(block, y[..., :first, :] * from_y, rounded)
            grad_y[..., :first, :] += from_y * product(block.mT, x[..., rows, :] * from_x, rounded)
    return grad_x, grad_y


def _read(x: Tensor, log_x: Tensor, state: Tensor, rounded: bool) -> Tensor:
    """`diag(exp log_x) x S`; a scalar decay is applied after the product, outside its rounding."""
    if log_x.shape[-1] == 1:
        return log_x.exp() * product(x, state, rounded)
    return product(log_x.exp() * x, state, rounded)


def _solve(chunk: Chunk, state: Tensor) -> _Solved:
    c, r = chunk, chunk.rounded
    weights = c.scale * pairs(c.q, c.k, c.log_decay, c.log_decay, False, r)
    k_end = (c.log_decay[..., -1:, :] - c.log_decay).exp() * c.k
    if c.erase is None or c.beta is None:
        return _Solved(None, None, None, c.v, weights, k_end)
    inner = pairs(c.erase, c.k, c.log_erase, c.log_decay, True, r)
    eye = torch.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device).expand_as(inner)
    inverse = torch.linalg.solve_triangular(
        eye + c.beta * inner, eye, upper=False, unitriangular=True
    )
    residual = c.v - _read(c.erase, c.log_erase, state, r)
    update = product(inverse, c.beta * residual, r)
    return _Solved(inner, inverse, residual, update, weights, k_end)


def forward(chunk: Chunk, state: Tensor) -> tuple[Tensor, Tensor]:
    """The chunk's output `[..., C, V]` and the state after it."""
    c, r = chunk, chunk.rounded
    solved = _solve(c, state)
    out = c.scale * _read(c.q, c.log_decay, state, r) + product(solved.weights, solved.update, r)
    kept = c.log_decay[..., -1, :].exp().unsqueeze(-1) * state
    return out, kept + product(solved.k_end.mT, solved.update, r)


def backward(chunk: Chunk, state: Tensor, d_out: Tensor, d_next: Tensor) -> Gradients:
    """Gradients from those of the output and of the state after the chunk."""
    c, r = chunk, chunk.rounded
    solved = _solve(c, state)
    last = c.log_decay[..., -1:, :]
    d_update = product(solved.weights.mT, d_out, r) + product(solved.k_end, d_next, r)
    d_weights = c.scale * product(d_out, solved.update.mT, r).tril()
    d_q, d_k = pairs_backward(d_weights, c.q, c.k, c.log_decay, c.log_decay, False, r)
    d_q = d_q + c.scale * c.log_decay.exp() * product(d_out, state.mT, r)
    d_k_end = (last - c.log_decay).exp() * product(solved.update, d_next.mT, r)
    d_state = last.mT.exp() * d_next
    d_state = d_state + product((c.scale * c.log_decay.exp() * c.q).mT, d_out, r)
    d_v, d_erase, d_log_erase, d_beta = d_update, None, None, None
    if c.erase is not None and c.beta is not None:
        assert solved.inverse is not None
        assert solved.inner is not None
        assert solved.residual is not None
        d_scaled = product(solved.inverse.mT, d_update, r)
        d_inner = -product(d_scaled, solved.update.mT, r).tril(-1)
        d_beta = (d_scaled * solved.residual).sum(-1, keepdim=True)
        d_beta = d_beta + (d_inner * solved.inner).sum(-1, keepdim=True)
        d_v = c.beta * d_scaled
        d_erase, more = pairs_backward(
            c.beta * d_inner, c.erase, c.k, c.log_erase, c.log_decay, True, r
        )
        d_k = d_k + more
        d_erase = d_erase - c.log_erase.exp() * product(d_v, state.mT, r)
        d_state = d_state - product((c.log_erase.exp() * c.erase).mT, d_v, r)
        d_log_erase = to_gate(c.erase * d_erase, c.log_erase)
    d_log = c.q * d_q - c.k * (d_k + d_k_end)
    at_end = (c.k * d_k_end).sum(-2) + last.exp().squeeze(-2) * (state * d_next).sum(-1)
    d_log = torch.cat([d_log[..., :-1, :], d_log[..., -1:, :] + at_end.unsqueeze(-2)], -2)
    return Gradients(
        d_q, d_k + d_k_end, d_v, to_gate(d_log, c.log_decay), d_erase, d_log_erase, d_beta, d_state
    )


def to_gate(grad: Tensor, gate: Tensor) -> Tensor:
    """Summed over the channels where the gate has one number a token."""
    return grad.sum(-1, keepdim=True) if gate.shape[-1] == 1 else grad
