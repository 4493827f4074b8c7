"""level1_37, division by the Frobenius norm: squares are taken in the input's dtype. In float16 those of
small numbers are 0, the norm is 0 and the quotient infinite; torch squares in float32."""

import torch

x = torch.full((16,), 2.0**-16).half()
assert (x / torch.norm(x, p="fro")).isfinite().all()
squares = x * x
assert (squares == 0).all()
assert (x / squares.float().sum().sqrt()).isinf().all()
