"""L1/15, lower triangular product in CUDA C++: B is transposed into a contiguous copy, and A is read at
i * M + k whatever its strides."""

import torch

torch.manual_seed(0)
M = 16
A, B = torch.rand(M, M).tril(), torch.rand(M, M).tril()
transposed = A.t().contiguous().t()  # the values of A, in columns
assert torch.equal(transposed, A)
as_read = transposed.as_strided((M, M), (M, 1))  # what lies at i * M + k
wrong = torch.tril(as_read @ B) != torch.tril(A @ B)
assert int(wrong.sum()) >= M * (M - 1) // 2
