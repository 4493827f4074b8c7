"""The backward pass of a candidate: by autograd, by its own functions, or by an explicit backward.

A candidate may bring a backward of its own, which is then used in place of autograd:

- a module defines a method `backward(self, grad, *args, **kwargs)`;
- a function `f` has a function `f_backward(grad, *args, **kwargs)` beside it in its file.

It is called after the forward pass, without autograd, on the same instance. `grad` is the gradient of
the output, or, where there are several, a tuple in their order with None for those that have none;
the other arguments are the ones that the forward pass was given. It returns the gradients of the
floating-point inputs, in their order, followed by those of the module's parameters in the order of
`named_parameters()`; or a mapping from names ("args[0]", "kwargs['mask']", "weight"). What is left out
or None has no gradient, but for parameters whose gradient it has put in their `.grad`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from adjudge import arrays

#: Nodes of a graph looked at for functions of the candidate's own.
_MOST_NODES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """The gradients of one call."""

    #: By name, in the order that was asked for; None where there is none.
    gradients: dict[str, torch.Tensor | None]
    #: "autograd", "function", "explicit", or "" where no output is differentiable.
    backward: str
    #: Paths of outputs that have a cotangent and no graph.
    disconnected: tuple[str, ...] = ()


def explicit_backward(built: Any, module: Any, entry: str) -> Callable[..., Any] | None:
    """The candidate's own backward, or None; `module` is the loaded file."""
    if isinstance(built, torch.nn.Module):
        found = getattr(built, "backward", None)
    else:
        found = getattr(module, f"{entry.rpartition('.')[2]}_backward", None)
    return found if callable(found) else None


def named_parameters(built: Any) -> dict[str, torch.nn.Parameter]:
    if not isinstance(built, torch.nn.Module):
        return {}
    return dict(built.named_parameters(remove_duplicate=False))


def pull(
    built: Callable[..., Any],
    explicit: Callable[..., Any] | None,
    args: Any,
    kwargs: Any,
    *,
    wanted: Sequence[str],
    cotangents: Sequence[torch.Tensor | None],
    twice: bool,
    counterparts: Mapping[str, str] = MappingProxyType({}),
) -> Pulled:
    """Forward, then backward.

    Args:
        wanted: names of the inputs and parameters whose gradient is asked for.
        counterparts: the candidate's own names of those that it names otherwise.
        cotangents: one for each tensor that the reference returns, None for those without gradient.
        twice: backward runs a second time through the same graph, and that is what is returned.
    """
    named = dict([*arrays.tensors_in(args, "args"), *arrays.tensors_in(kwargs, "kwargs")])
    if explicit is not None:
        own = [counterparts.get(name, name) for name in wanted]
        given = _explicit(built, explicit, args, kwargs, named, own, cotangents, twice)
        by_wanted = {name: given[counterparts.get(name, name)] for name in wanted}
        return Pulled(gradients=by_wanted, backward="explicit")
    sources: dict[str, torch.Tensor] = {}
    parameters = named_parameters(built)
    with torch.enable_grad():
        for name in wanted:
            if name in named:
                sources[name] = named[name].requires_grad_()
                continue
            parameter = parameters.get(counterparts.get(name, name))
            if parameter is not None and parameter.requires_grad:
                sources[name] = parameter
        outputs = arrays.tensors_in(built(*args, **kwargs))
        paired = [
            (p, t, c) for (p, t), c in zip(outputs, cotangents, strict=False) if c is not None
        ]
        connected = [(t, c) for _, t, c in paired if t.requires_grad]
        loose = tuple(path for path, t, _ in paired if not t.requires_grad)
        if not connected or not sources:
            return Pulled(gradients=dict.fromkeys(wanted), backward="", disconnected=loose)
        tensors = [t for t, _ in connected]
        kind = "function" if any(map(_is_own, _nodes(tensors))) else "autograd"
        for pulled in _passes([c for _, c in connected], twice):
            found = torch.autograd.grad(
                tensors,
                list(sources.values()),
                grad_outputs=pulled,
                allow_unused=True,
                retain_graph=twice,
            )
    gradients = dict(zip(sources, found, strict=True))
    return Pulled(
        gradients={name: gradients.get(name) for name in wanted}, backward=kind, disconnected=loose
    )


def _explicit(
    built: Callable[..., Any],
    backward: Callable[..., Any],
    args: Any,
    kwargs: Any,
    named: Mapping[str, torch.Tensor],
    wanted: Sequence[str],
    cotangents: Sequence[torch.Tensor | None],
    twice: bool,
) -> dict[str, torch.Tensor | None]:
    parameters = named_parameters(built)
    built(*args, **kwargs)
    for pulled in _passes(cotangents, twice):
        for parameter in parameters.values():
            parameter.grad = None
        returned = backward(pulled[0] if len(pulled) == 1 else tuple(pulled), *args, **kwargs)
    order = [name for name, t in named.items() if t.is_floating_point()] + list(parameters)
    gradients = _by_name(returned, order)
    for name, source in {**named, **parameters}.items():
        # As autograd does: a gradient may be summed in a wider dtype than its source has.
        given = gradients.get(name)
        if isinstance(given, torch.Tensor) and given.is_floating_point():
            gradients[name] = given.to(source.dtype)
    for name, parameter in parameters.items():
        if gradients.get(name) is None:
            gradients[name] = parameter.grad
    return {name: gradients.get(name) for name in wanted}


def _passes(
    cotangents: Sequence[torch.Tensor | None], twice: bool
) -> Iterator[list[torch.Tensor | None]]:
    """The cotangents of each pass. A first pass may have written over its own; what the second one is
    for is what the forward pass has saved."""
    kept = [c.clone() if c is not None else None for c in cotangents] if twice else []
    yield list(cotangents)
    if twice:
        yield kept


def _by_name(returned: Any, order: list[str]) -> dict[str, torch.Tensor | None]:
    if isinstance(returned, Mapping):
        return dict(returned)
    items = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    if len(items) > len(order):
        raise TypeError(
            f"backward returned {len(items)} gradients for {len(order)} inputs and parameters"
        )
    return dict(zip(order, items, strict=False))


def _nodes(tensors: Sequence[torch.Tensor]) -> Iterator[Any]:
    """The nodes of the graph behind the tensors, each once."""
    waiting = [t.grad_fn for t in tensors if t.grad_fn is not None]
    seen = set(waiting)
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop()
        yield node
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)


def _is_own(node: Any) -> bool:
    return isinstance(node, torch.autograd.function.BackwardCFunction)
