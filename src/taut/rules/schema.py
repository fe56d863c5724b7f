"""How a file names a layer: its constructor's arguments, and the shapes of its tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

__all__ = ["Arguments", "FileSchema", "Shapes"]

Arguments = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class FileSchema:
    """One type of layer that a file may name.

    Attributes:
        module: the exact type.
        arguments: what its constructor is given: name -> type.
        sizes: those arguments that tensors must agree with, each with the least value it can have.
        shapes: the tensors it must hold, from its arguments.
        read: how to find an argument that is not an attribute of the same name.
        make: builds the module from its arguments, where the type itself does not.
        limits: the largest value of an argument on which the time of building or running depends.
    """

    module: type[nn.Module]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    shapes: Callable[[Arguments], Shapes] = lambda arguments: {}
    read: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    make: Callable[..., nn.Module] | None = None
    limits: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def dense(
        cls, module: type[nn.Module], limits: Mapping[str, int] | None = None, **more: Any
    ) -> "FileSchema":
        """Of a dense layer: a weight `(out_features, in_features)`, and a bias or none."""

        def shapes(a: Arguments) -> Shapes:
            weight = {"weight": (a["out_features"], a["in_features"])}
            return {**weight, "bias": (a["out_features"],)} if a["bias"] else weight

        return cls(
            module,
            {"in_features": int, "out_features": int, "bias": bool, **more},
            {"in_features": 1, "out_features": 1},
            shapes,
            {"bias": lambda m: m.bias is not None, "p": lambda m: str(m.input_norm)},
            limits=limits or {},
        )
