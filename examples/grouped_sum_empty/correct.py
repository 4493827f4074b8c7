"""Every group is written, also one without items."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(
    x_ptr, group_ptr, out_ptr, items, width, BLOCK_I: tl.constexpr, BLOCK_W: tl.constexpr
):
    group = tl.program_id(0)
    item = tl.arange(0, BLOCK_I)
    column = tl.arange(0, BLOCK_W)
    member = tl.load(group_ptr + item, mask=item < items, other=-1) == group
    mask = member[:, None] & (column[None, :] < width)
    x = tl.load(x_ptr + item[:, None] * width + column[None, :], mask=mask, other=0.0).to(
        tl.float32
    )
    total = tl.sum(x, axis=0)
    tl.store(out_ptr + group * width + column, total, mask=column < width)


class ModelNew(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x, group):
        x, group = x.contiguous(), group.contiguous()
        items, width = x.shape
        out = torch.empty(self.groups, width, device=x.device, dtype=x.dtype)
        if self.groups and width:
            blocks = {
                "BLOCK_I": triton.next_power_of_2(max(items, 1)),
                "BLOCK_W": triton.next_power_of_2(width),
            }
            sum_kernel[(self.groups,)](x, group, out, items, width, **blocks)
        return out
