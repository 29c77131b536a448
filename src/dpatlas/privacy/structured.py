"""Inputs that are several tensors: a tuple for model(*inputs), a dict for model(**inputs).

The engine works on one object with the records first. `Structured` is that object for several
tensors, and `TakesStructured` the network that takes it. Both know what the kernels and the probe
ask of a tensor of records, and nothing else.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import register_pytree_node


class Structured:
    """Tensors by name or position, each (records, ...)."""

    def __init__(self, parts: dict[str, Tensor] | tuple[Tensor, ...]):
        self.parts = parts

    @property
    def leaves(self) -> list[Tensor]:
        """The tensors, in order."""
        return list(self.parts.values() if isinstance(self.parts, dict) else self.parts)

    def each(self, change: Callable[[Tensor], Tensor]) -> "Structured":
        """The same structure of changed tensors."""
        return self.of(map(change, self.leaves))

    def of(self, leaves: Iterable[Tensor]) -> "Structured":
        """The same structure of other tensors."""
        if isinstance(self.parts, dict):
            return Structured(dict(zip(self.parts, leaves, strict=True)))
        return Structured(tuple(leaves))

    def __len__(self) -> int:
        return len(self.leaves[0])

    def __getitem__(self, rows: Any) -> "Structured":
        return self.each(lambda leaf: leaf[rows])

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.leaves[0].device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the first tensor of real numbers, or of the first one."""
        real = [leaf.dtype for leaf in self.leaves if leaf.is_floating_point()]
        return real[0] if real else self.leaves[0].dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """Number of records, then shape and type of what each tensor has of a record."""
        names = list(self.parts) if isinstance(self.parts, dict) else range(len(self.parts))
        described = zip(names, self.leaves, strict=True)
        return (len(self), *((name, leaf.dtype, *leaf.shape[1:]) for name, leaf in described))

    def is_floating_point(self) -> bool:
        """Whether any tensor is of real numbers."""
        return any(leaf.is_floating_point() for leaf in self.leaves)

    def numel(self) -> int:
        """Number of entries of all tensors."""
        return sum(leaf.numel() for leaf in self.leaves)

    def to(self, dtype: torch.dtype) -> "Structured":
        """Tensors of real numbers in another type; others unchanged."""
        return self.each(lambda leaf: leaf.to(dtype) if leaf.is_floating_point() else leaf)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> "Structured":
        """torch.cat along the records, the only function of torch that is defined."""
        if function is not torch.cat or kwargs or len(args) != 1:
            raise NotImplementedError(f"{function.__name__} of inputs that are several tensors")
        batches: Sequence[Structured] = args[0]
        columns = zip(*(batch.leaves for batch in batches), strict=True)
        return batches[0].of(torch.cat(column) for column in columns)


# For modules that go record by record: `torch.func` maps over the tensors.
register_pytree_node(
    Structured,
    lambda given: (given.leaves, given),
    lambda leaves, given: given.of(leaves),
)


class TakesStructured(nn.Module):
    """A network that takes `Structured` inputs, with names and parameters of the wrapped one."""

    wrapped: nn.Module

    def __init__(self, model: nn.Module):
        super().__init__()
        for name in ("_parameters", "_buffers", "_modules"):
            vars(self)[name] = vars(model)[name]
        # Not registered as a part: its name would begin those of all parameters.
        vars(self)["wrapped"] = model
        self.training = model.training

    def forward(self, x: Structured) -> Any:
        """The output of the wrapped network."""
        if isinstance(x.parts, dict):
            return self.wrapped(**x.parts)
        return self.wrapped(*x.parts)
