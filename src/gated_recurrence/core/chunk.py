"""The algebra of one chunk, forward and backward.

Every member is `S_t = D_t S + k_t u_tᵀ`, `u_t = β_t (v_t - e_tᵀ D_t S)`, `o_t = s q_tᵀ S_t`,
with `S` the state before the token. Shapes: q, k, e `[..., C, K]`; v `[..., C, V]`; β `[..., C, 1]`; G,
the inclusive cumulative log decay in the chunk, `[..., C, 1]` (scalar gate) or `[..., C, K]`; S
`[..., K, V]`. Only differences of G that are never above zero are raised to a power. G is float64: in
float32 a sum that holds strong gates has lost the weak ones, and with them what they keep.

Gradients of a gate are sums over the pairs of tokens between which it lies. As a difference of sums over
all pairs, which is shorter, the small gradient of a strong gate would be lost in their rounding.
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
    exclusive: bool
    rounded: bool

    @property
    def erasing(self) -> slice:
        """The rows that may erase: of RWKV-7's two steps a token, the first."""
        return slice(0, None, 2) if self.exclusive else slice(None)

    @property
    def writing(self) -> slice:
        """The others, whose `erase` is zero."""
        return slice(1, None, 2) if self.exclusive else slice(0, 0)


@dataclass(frozen=True, slots=True)
class Gradients:
    """Gradients of the operands, and of the log decays g themselves in place of their sums."""

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    erase: Tensor | None
    beta: Tensor | None
    state: Tensor


class _System:
    """`I + m` of strictly lower triangular m `[..., C, C]`, whose rows `others` are zero.

    With `rounded` it is solved by products with its inverse, as tensor cores do. Otherwise by
    substitution: each token's update is made of those before it as they were rounded, so that a token
    which erases what they wrote erases their rounding too. Products with an inverse leave that in the
    state.

    Zero rows are left out: what has overflowed there must not meet the zeros.
    """

    def __init__(self, m: Tensor, rows: slice, others: slice, rounded: bool) -> None:
        self._rows, self._others, self._rounded = rows, others, rounded
        self._from_others, inner = m[..., rows, others], m[..., rows, rows]
        eye = torch.eye(inner.shape[-1], dtype=m.dtype, device=m.device)
        self._matrix = eye + inner
        if rounded:
            self._matrix = _substitute(self._matrix, eye.expand_as(inner), transposed=False)

    def solve(self, y: Tensor) -> Tensor:
        """`(I + m)⁻¹ y` for y `[..., C, V]`."""
        out = y.clone()
        rest = product(self._from_others, y[..., self._others, :], self._rounded)
        out[..., self._rows, :] = self._solve(y[..., self._rows, :] - rest, transposed=False)
        return out

    def solve_transposed(self, y: Tensor) -> Tensor:
        """`(I + m)⁻ᵀ y`."""
        out = y.clone()
        found = self._solve(y[..., self._rows, :], transposed=True)
        out[..., self._rows, :] = found
        out[..., self._others, :] -= product(self._from_others.mT, found, self._rounded)
        return out

    def _solve(self, y: Tensor, *, transposed: bool) -> Tensor:
        if not self._rounded:
            return _substitute(self._matrix, y, transposed=transposed)
        return product(self._matrix.mT if transposed else self._matrix, y, rounded=True)


def _substitute(matrix: Tensor, y: Tensor, *, transposed: bool) -> Tensor:
    """`matrix⁻¹ y`, or `matrix⁻ᵀ y`, of a lower triangular matrix with a unit diagonal."""
    out: Tensor = torch.linalg.solve_triangular(
        matrix.mT if transposed else matrix, y, upper=transposed, unitriangular=True
    )
    return out


@dataclass(frozen=True, slots=True)
class _Solved:
    inner: Tensor | None
    system: _System | None
    residual: Tensor | None
    update: Tensor
    weights: Tensor
    k_end: Tensor


def product(x: Tensor, y: Tensor, rounded: bool) -> Tensor:
    """`x @ y`; with `rounded`, bfloat16 operands and the accumulator in the working dtype."""
    if rounded:
        x, y = x.bfloat16().to(x.dtype), y.bfloat16().to(y.dtype)
    return x @ y


def _decay(log: Tensor, like: Tensor) -> Tensor:
    """`exp(log)` in the working dtype."""
    return log.exp().to(like.dtype)


def _pair_decay(rows: Tensor, columns: Tensor, strict: bool, like: Tensor) -> Tensor:
    """`exp(rows_i - columns_j)` below the diagonal, 0 above: `[..., R, R, 1 or K]`."""
    size = rows.shape[-2]
    keep = torch.ones(size, size, dtype=torch.bool, device=rows.device).tril(-1 if strict else 0)
    gap = rows.unsqueeze(-2) - columns.unsqueeze(-3)
    return _decay(gap.masked_fill(~keep.unsqueeze(-1), -torch.inf), like)


def sum_from(x: Tensor, strict: bool) -> Tensor:
    """`Σ x_i` over i ≥ t, or i > t if strict, along the axis before the last."""
    out = x.flip(-2).cumsum(-2).flip(-2)
    return torch.nn.functional.pad(out[..., 1:, :], (0, 0, 0, 1)) if strict else out


def sum_before(x: Tensor) -> Tensor:
    """`Σ x_j` over j < t."""
    return torch.nn.functional.pad(x.cumsum(-2)[..., :-1, :], (0, 0, 1, 0))


def pairs(
    x: Tensor, y: Tensor, log_x: Tensor, log_y: Tensor, strict: bool, rounded: bool
) -> Tensor:
    """`Σ_K x_i y_j exp(log_x_i - log_y_j)` for j < i, with j = i unless strict: `[..., C, C]`."""
    if log_y.shape[-1] == 1:
        decay = _pair_decay(log_x, log_y, strict, x).squeeze(-1)
        return product(x, y.mT, rounded) * decay
    size = x.shape[-2]
    out = x.new_zeros(*x.shape[:-1], size)
    for first in range(0, size, SUB):
        rows = slice(first, first + SUB)
        decay = _pair_decay(log_x[..., rows, :], log_y[..., rows, :], strict, x)
        out[..., rows, rows] = torch.einsum(
            "...ik,...jk,...ijk->...ij", x[..., rows, :], y[..., rows, :], decay
        )
        if first:
            base = log_y[..., first - 1 : first, :]
            left = x[..., rows, :] * _decay(log_x[..., rows, :] - base, x)
            right = y[..., :first, :] * _decay(base - log_y[..., :first, :], y)
            out[..., rows, :first] = product(left, right.mT, rounded)
    return out


def pairs_backward(
    grad: Tensor,
    x: Tensor,
    y: Tensor,
    log_x: Tensor,
    log_y: Tensor,
    strict: bool,
    rounded: bool,
    exclusive: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `pairs` in x, y and the log decays g; with `exclusive`, log_x leaves out a token's
    own decay."""
    if log_y.shape[-1] == 1:
        grad = grad * _pair_decay(log_x, log_y, strict, x).squeeze(-1)
        between = sum_from(grad * product(x, y.mT, rounded), exclusive).tril(-1)
        return product(grad, y, rounded), product(grad.mT, x, rounded), _sum(between)
    grad_x, grad_y, grad_g = torch.zeros_like(x), torch.zeros_like(y), torch.zeros_like(x)
    for first in range(0, x.shape[-2], SUB):
        rows = slice(first, first + SUB)
        x_rows, y_rows = x[..., rows, :], y[..., rows, :]
        decay = _pair_decay(log_x[..., rows, :], log_y[..., rows, :], strict, x)
        decay = decay * grad[..., rows, rows].unsqueeze(-1)
        grad_x[..., rows, :] += torch.einsum("...ijk,...jk->...ik", decay, y_rows)
        grad_y[..., rows, :] += torch.einsum("...ijk,...ik->...jk", decay, x_rows)
        terms = decay * x_rows.unsqueeze(-2) * y_rows.unsqueeze(-3)  # [..., i, j, K]
        between = sum_from(terms.movedim(-1, -3), exclusive).tril(-1)  # [..., K, t, j]
        grad_g[..., rows, :] += between.sum(-1).mT
        if first:
            base = log_y[..., first - 1 : first, :]
            y_before = y[..., :first, :]
            from_x = _decay(log_x[..., rows, :] - base, x)
            from_y = _decay(base - log_y[..., :first, :], y)
            block = grad[..., rows, :first]
            to_x = from_x * product(block, y_before * from_y, rounded)
            to_y = from_y * product(block.mT, x_rows * from_x, rounded)
            grad_x[..., rows, :] += to_x
            grad_y[..., :first, :] += to_y
            grad_g[..., rows, :] += sum_from(x_rows * to_x, exclusive)
            grad_g[..., :first, :] += sum_before(y_before * to_y)
    return grad_x, grad_y, grad_g


def _read(x: Tensor, log_x: Tensor, state: Tensor, rounded: bool) -> Tensor:
    """`diag(exp log_x) x S`; a scalar decay is applied after the product, outside its rounding."""
    if log_x.shape[-1] == 1:
        return _decay(log_x, x) * product(x, state, rounded)
    return product(_decay(log_x, x) * x, state, rounded)


def _solve(chunk: Chunk, state: Tensor) -> _Solved:
    c, r = chunk, chunk.rounded
    weights = c.scale * pairs(c.q, c.k, c.log_decay, c.log_decay, False, r)
    k_end = _decay(c.log_decay[..., -1:, :] - c.log_decay, c.k) * c.k
    if c.erase is None or c.beta is None:
        return _Solved(None, None, None, c.v, weights, k_end)
    inner = pairs(c.erase, c.k, c.log_erase, c.log_decay, True, r)
    system = _System(c.beta * inner, c.erasing, c.writing, r)
    read = _read(c.erase, c.log_erase, state, r)
    residual = c.v.clone()
    residual[..., c.erasing, :] -= read[..., c.erasing, :]
    update = system.solve(c.beta * residual)
    return _Solved(inner, system, residual, update, weights, k_end)


def forward(chunk: Chunk, state: Tensor) -> tuple[Tensor, Tensor]:
    """The chunk's output `[..., C, V]` and the state after it."""
    c, r = chunk, chunk.rounded
    solved = _solve(c, state)
    out = c.scale * _read(c.q, c.log_decay, state, r) + product(solved.weights, solved.update, r)
    kept = _decay(c.log_decay[..., -1:, :], state).mT * state
    return out, kept + product(solved.k_end.mT, solved.update, r)


def backward(chunk: Chunk, state: Tensor, d_out: Tensor, d_next: Tensor) -> Gradients:
    """Gradients from those of the output and of the state after the chunk."""
    c, r = chunk, chunk.rounded
    solved = _solve(c, state)
    last, decay = c.log_decay[..., -1:, :], _decay(c.log_decay, c.q)
    d_update = product(solved.weights.mT, d_out, r) + product(solved.k_end, d_next, r)
    d_weights = c.scale * product(d_out, solved.update.mT, r).tril()
    d_q, d_k, d_g = pairs_backward(
        d_weights, c.q, c.k, c.log_decay, c.log_decay, False, r, exclusive=False
    )
    d_read = c.scale * decay * product(d_out, state.mT, r)
    d_k_end = _decay(last - c.log_decay, c.k) * product(solved.update, d_next.mT, r)
    kept = _decay(last, state).mT * d_next
    d_state = kept + product((c.scale * decay * c.q).mT, d_out, r)
    d_g = d_g + sum_from(to_gate(c.q * d_read, c.log_decay), strict=False)
    d_g = d_g + sum_before(to_gate(c.k * d_k_end, c.log_decay))
    d_g = d_g + to_gate((state * kept).sum(-1).unsqueeze(-2), c.log_decay)
    d_v, d_erase, d_beta = d_update, None, None
    if c.erase is not None and c.beta is not None:
        assert solved.system is not None
        assert solved.inner is not None
        assert solved.residual is not None
        d_scaled = solved.system.solve_transposed(d_update)
        d_inner = -product(_only(d_scaled, c.erasing), solved.update.mT, r).tril(-1)
        d_beta = (d_scaled * solved.residual).sum(-1, keepdim=True)
        d_beta = d_beta + (d_inner * solved.inner).sum(-1, keepdim=True)
        d_v = c.beta * d_scaled
        d_erase, more, through = pairs_backward(
            *(c.beta * d_inner, c.erase, c.k, c.log_erase, c.log_decay, True, r, c.exclusive)
        )
        erased = _decay(c.log_erase, c.erase)
        d_read_erased = _only(d_v, c.erasing)
        d_erased = -erased * product(d_read_erased, state.mT, r)
        d_k, d_erase = d_k + more, d_erase + d_erased
        d_state = d_state - product((erased * c.erase).mT, d_read_erased, r)
        d_g = d_g + through
        d_g = d_g + sum_from(to_gate(c.erase * d_erased, c.log_erase), c.exclusive)
    return Gradients(d_q + d_read, d_k + d_k_end, d_v, d_g, d_erase, d_beta, d_state)


def _only(x: Tensor, rows: slice) -> Tensor:
    """x `[..., C, V]` with zeros in place of the other rows."""
    out = torch.zeros_like(x)
    out[..., rows, :] = x[..., rows, :]
    return out


def _sum(x: Tensor) -> Tensor:
    return x.sum(-1, keepdim=True)


def to_gate(grad: Tensor, gate: Tensor) -> Tensor:
    return _sum(grad) if gate.shape[-1] == 1 else grad
