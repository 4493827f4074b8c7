"""Faults seen in the wild that only a GPU shows, in the form of `faults`.

The identifiers are those of a list of public reports; the link stands beside each.
"""

from __future__ import annotations

from faults import Fault

#: When these, and the twins, were last judged on a GPU as tests/gpu/test_faults.py demands (see
#: docs/device-runs.md); "" is never.
SHOWN = "2026-12-03"

DEVICE_FAULTS: tuple[Fault, ...] = (
    Fault(
        identifier="S40",
        report="https://github.com/ScalingIntelligence/KernelBench/pull/82",
        what="the work is put on a stream that the timing events do not wait for",
        gates=("tampers",),
        arguments="x, w",
        inputs="torch.randn(columns, inner), torch.randn(inner, columns)",
        reference="return x @ w",
        correct="""
            side = self.side = getattr(self, "side", None) or torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                out = x @ w
            torch.cuda.current_stream().wait_stream(side)
            return out
        """,
        broken="""
            self.side = getattr(self, "side", None) or torch.cuda.Stream()
            with torch.cuda.stream(self.side):
                return x @ w
        """,
    ),
    Fault(
        identifier="S53",
        report="https://github.com/vllm-project/vllm/pull/13632",
        what="the work is put on another stream, and what reads its result does not wait",
        gates=("tampers",),
        inputs="torch.randn(rows, columns)",
        reference="return x / x.abs().amax(dim=1, keepdim=True).clamp(min=1e-6)",
        top="""
            @triton.jit
            def scale(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
                row = tl.program_id(0)
                offsets = tl.arange(0, BLOCK)
                mask = offsets < columns
                x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
                size = tl.abs(x)
                top = tl.max(size, axis=0)
                missing = tl.sum((x != x).to(tl.int32), axis=0)
                top = tl.where(top > 1e-6, top, 1e-6)
                top = tl.where(missing > 0, float("nan"), top)
                tl.store(out_ptr + row * columns + offsets, tl.div_rn(x, top), mask=mask)

            def run(x, ordered):
                x = x.contiguous()
                out = torch.empty_like(x)
                side = torch.cuda.Stream()
                if ordered:
                    side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    if x.numel():
                        block = triton.next_power_of_2(x.shape[1])
                        scale[(x.shape[0],)](x, out, x.shape[1], BLOCK=block)
                if ordered:
                    torch.cuda.current_stream().wait_stream(side)
                return out
        """,
        correct="return run(x, True)",
        broken="return run(x, False)",
    ),
)
