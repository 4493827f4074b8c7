"""Where a narrow denominator of attention is seen: what it loses, beside what honest roundings come to.

    python benchmarks/narrow_limits.py

For each dtype of the task, each of the two accumulators, each number of keys and each block: the
largest error of attention whose denominator alone is rounded to the accumulator once a block, on
weights that are made to show it, in units of 2**-p of the largest answer, beside the n / b that was
derived as the most; that of an honest kernel, which keeps it in float32 and rounds its weights and its
answer to the dtype of the task; and both errors over the bounds of the gap test, for all roundings of
the required regime and for all of narrow factors. An accumulator is seen where both are exceeded. Ends
with 1 if an honest kernel exceeds one, or a narrow one loses more than was derived.
"""

from __future__ import annotations

import sys

import torch

from adjudge import arrays
from adjudge.frontends import kernelbench
from adjudge.gates.losing import EIGHT, ELEVEN
from adjudge.inputs.levels import DILUTED
from adjudge.judge.cases import CaseBuilder
from adjudge.observation import Observation, OutputTensor, Status
from adjudge.oracle import Oracle
from adjudge.probe import Probe, sizes_of

KEYS = 96
TASK = f"""
import torch
import torch.nn.functional as F

queries, keys, features = 4, {KEYS}, 16


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)


def get_inputs():
    shapes = (queries, features), (keys, features), (keys, features)
    return [torch.randn(1, 1, *shape).to(torch.DTYPE) for shape in shapes]


def get_init_inputs():
    return []
"""
#: By accumulator: the weights that it loses, and its unit.
ACCUMULATORS = {"bfloat16": (EIGHT, 2.0**-8), "float16": (ELEVEN, 2.0**-11)}
#: The regime that each task is held to, and the one whose factors must not explain the error.
REGIMES = {
    "float32": ("fp32", "tf32"),
    "float16": ("fp16xfp32", "tf32"),
    "bfloat16": ("bf16xfp32", "bf16xfp32"),
}
LENGTHS, BLOCKS = (512, 2048, 8192), (1, 16, 64, 128, 256)


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kept: torch.dtype, block: int
) -> torch.Tensor:
    """The denominator is rounded to `kept` once a block; weights and answer to the task's dtype."""
    scores = q.float() @ k.float().mT * q.shape[-1] ** -0.5
    weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    total = torch.zeros_like(weights[..., :1])
    for begin in range(0, weights.shape[-1], block):
        part = weights[..., begin : begin + block].sum(dim=-1, keepdim=True)
        total = (total + part).to(kept).float()
    answer = weights.to(q.dtype).float() @ v.float() / total
    return answer.to(q.dtype)


def over(oracle: Oracle, answer: torch.Tensor, dtype: str) -> tuple[float, float]:
    """The largest error over what all roundings of the required regime come to, and over what all of
    narrow factors do."""
    required, factors = REGIMES[dtype]
    data = arrays.to_numpy(answer)
    output = OutputTensor(path="", data=data, dtype=dtype, strides=answer.stride(), device="cpu")
    given = Observation(status=Status.ANSWERED, outputs=(output,), structure=oracle.structure)
    by_all = oracle.compare_gap(given, required)
    by_factors = oracle.compare_gap(given, factors, "factors")
    return by_all.excess, by_factors.excess


def main() -> int:
    wrong = 0
    print("task      kept in     keys  block  n/b    loses   honest   of all  of factors  seen")
    for dtype in REGIMES:
        program = kernelbench.KernelBenchProgram(TASK.replace("DTYPE", dtype), "limits")
        builder = CaseBuilder(program, by_name=False)
        base = sizes_of(program.task.native)
        for name, (bits, unit) in ACCUMULATORS.items():
            for keys in LENGTHS:
                sizes = tuple((s, keys if n == KEYS else n) for s, n in base)
                probe = Probe(sizes=sizes, distribution=DILUTED[bits, 1])
                arguments = builder.arguments(probe)
                oracle = Oracle(builder.make(probe, arguments), arguments, generic=False)
                q, k, v = (tensor for _, tensor in arguments.tensors())
                # The structure is known once it is.
                truth = torch.from_numpy(oracle.exact[0].data)
                assert len(oracle.native) == 1
                scale = unit * float(truth.abs().max())
                plain = attention(q, k, v, torch.float32, 64)
                honest = float((plain.double() - truth).abs().max()) / scale
                wrong += max(over(oracle, plain, dtype)) > 1
                for block in BLOCKS:
                    narrow = attention(q, k, v, getattr(torch, name), block)
                    loses = float((narrow.double() - truth).abs().max()) / scale
                    by_all, by_factors = over(oracle, narrow, dtype)
                    wrong += loses > keys / block + honest
                    print(
                        f"{dtype:9} {name:9} {keys:6} {block:6} {keys // block:4} {loses:8.3g} "
                        f"{honest:8.2g} {by_all:8.3g} {by_factors:10.3g}   "
                        f"{'yes' if min(by_all, by_factors) > 1 else 'no'}",
                        flush=True,
                    )
    print(f"{wrong} beyond what was derived")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
