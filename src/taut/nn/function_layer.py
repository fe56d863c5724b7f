"""`FunctionLayer`: one function with fixed arguments, as a module."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor, nn

from taut.rules import FileSchema, register


class FunctionLayer(nn.Module):
    """Applies a function of tensors; its other arguments are attributes of the layer.

    A class statement names the `function`, the types of its `arguments` as files hold them (those of
    the parent if left out) and what else is known of the layer, as `taut.rules.register` takes it. None
    leaves an argument at the default of the function.
    """

    arguments: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    _function: ClassVar[Callable[..., Tensor]]

    def __init_subclass__(
        cls,
        function: Callable[..., Tensor] | None = None,
        arguments: Mapping[str, Any] | None = None,
        **knowledge: Any,
    ) -> None:
        super().__init_subclass__()
        if arguments is not None:
            cls.arguments = arguments
        if function is not None:
            cls._function = staticmethod(function)
            file = FileSchema(cls, cls.arguments)
            register(cls, call=lambda m: (function, m._given()), file=file, **knowledge)

    def _given(self) -> dict[str, Any]:
        values = ((name, getattr(self, name)) for name in self.arguments)
        return {name: value for name, value in values if value is not None}

    def forward(self, x: Tensor) -> Tensor:
        """The function of `x`."""
        return self._function(x, **self._given())

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return ", ".join(f"{name}={value!r}" for name, value in self._given().items())
