"""Operations of torch that do not repeat their bits on a GPU, and which of them a reference uses."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

#: Documented as nondeterministic on CUDA (torch.use_deterministic_algorithms), by the names of their
#: schemas; backward passes by what stands before "_backward".
DOCUMENTED = frozenset(
    "index_add index_put _index_put_impl put scatter scatter_add scatter_reduce repeat_interleave "
    "cumsum histc bincount kthvalue median convolution nll_loss2d_forward max_unpool2d "
    "max_unpool3d".split()
)
#: The same of the backward pass alone.
DOCUMENTED_BACKWARD = frozenset(
    "convolution avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d max_pool3d_with_indices "
    "adaptive_max_pool2d fractional_max_pool2d fractional_max_pool3d upsample_linear1d "
    "upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d reflection_pad1d reflection_pad3d "
    "replication_pad1d replication_pad2d replication_pad3d _ctc_loss grid_sampler_2d grid_sampler_3d "
    "embedding_dense _embedding_bag_dense".split()
)


class Varying(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the operations that run in it and are documented to vary, backward passes included."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func._schema.name.removeprefix("aten::").removesuffix("_")
        backward = name.removesuffix("_backward")
        if name in DOCUMENTED or (backward != name and backward in DOCUMENTED_BACKWARD):
            self.names.add(name)
        return func(*args, **(kwargs or {}))
