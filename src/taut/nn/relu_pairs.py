"""What layers of two linear maps with ReLU between them share: their parameters, folding and files.

Each kind has a fixed layer, whose weight is given, and constrained ones, which fold to it. Both have
one constructor, that of the kind.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from taut.errors import check_count
from taut.nn.constrained import ConstrainedLayer
from taut.norms import L2
from taut.rules import Call, FileSchema, Rounding, register


class ReluPair(nn.Module, ABC):
    """Two linear maps with ReLU between them, both made of one weight, with an offset between them."""

    weight: nn.Parameter
    bias: nn.Parameter | None
    size_names: ClassVar[tuple[str, ...]]
    residual: ClassVar[bool] = False  # whether the pair is subtracted from the input
    _create_parameters: Callable[..., None]

    @staticmethod
    @abstractmethod
    def lift(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The first map, plus `bias`."""

    @staticmethod
    @abstractmethod
    def pull(hidden: Tensor, weight: Tensor) -> Tensor:
        """The second map."""

    @classmethod
    def pair(cls, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Both maps with ReLU between them, times 2."""
        return 2 * cls.pull(cls.lift(x, weight, bias).relu(), weight)

    def _combine(self, x: Tensor, pair: Tensor) -> Tensor:
        """The output, from the input and what the pair makes of it."""
        return x - pair if self.residual else pair

    def _set_sizes(self, **sizes: int) -> None:
        for name, size in sizes.items():
            check_count(type(self).__name__, name, size)
            setattr(self, name, size)

    def _sizes(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.size_names}

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        arguments = {**self._sizes(), "bias": self.bias is not None}
        return ", ".join(f"{name}={value}" for name, value in arguments.items())


class FixedReluPair(ReluPair):
    """A pair with a weight that nothing constrains, zeros at first: what a constrained one folds to."""

    def _create_parameters(
        self, shape: tuple[int, ...], bias: bool, hidden: int, device: Any, dtype: Any
    ) -> None:
        self.weight = nn.Parameter(torch.zeros(shape, device=device, dtype=dtype))
        offset = nn.Parameter(self.weight.detach().new_zeros(hidden)) if bias else None
        self.register_parameter("bias", offset)

    def forward(self, x: Tensor) -> Tensor:
        """The output for `x`, of which each sample passes on its own."""
        return self._combine(x, self.pair(x, self.weight, self.bias))


class ConstrainedReluPair(ReluPair, ConstrainedLayer):
    """A pair whose weight is feasible in every forward."""

    input_norm = L2
    output_norm = L2
    plain_type: ClassVar[Any]

    def _affine(self, x: Tensor) -> Tensor:
        return self._combine(x, self.pair(x, self._weight_in_use(), self.bias))

    def as_plain(self, weight: Tensor) -> FixedReluPair:
        """The fixed pair with this weight and the bias of the layer."""
        plain = self.plain_type(**self._sizes(), bias=False, device="meta")
        plain.weight = nn.Parameter(weight)
        plain.register_parameter("bias", self.bias)
        return plain


def rounding_of_pair(
    terms: Callable[[Call], int],
    growth: Callable[[Call], float],
    lift_norm: Callable[[Call], float],
    pull_norm: Callable[[Call], float],
    assumes: str,
) -> Rounding:
    """The rounding of a fixed pair: the numbers of roundings of both sums add up.

    Args:
        terms: the most roundings that any term of both sums undergoes.
        growth: the Lipschitz constant of the magnitudes, in all norms.
        lift_norm: a bound of the first map of magnitudes, in all norms.
        pull_norm: a bound of the second map of magnitudes in L-inf.
        assumes: as in `Rounding`.
    """

    def numbers(call: Call, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        weight, bias = call.module.weight, call.module.bias
        return x.abs(), weight.to(x).abs(), None if bias is None else bias.to(x).abs()

    def magnitude(call: Call, x: Tensor) -> Tensor:
        total = call.module.pair(*numbers(call, x))
        return x.abs() + total if call.module.residual else total

    return Rounding(
        lambda call: terms(call) + 8,
        magnitude,
        lambda call: call.x.constants.scaled(growth(call)),
        assumes,
        inner=Rounding(
            lambda call: terms(call) + 8,
            lambda call, x: call.module.lift(*numbers(call, x)),
            lambda call: call.x.constants.scaled(lift_norm(call)),
        ),
        amplified=lambda call: max(1.0, 2 * pull_norm(call)),
    )


def register_pairs(
    fixed: type[FixedReluPair], *constrained: type[ConstrainedReluPair], **options: Any
) -> None:
    """Registers how files name pairs; `options` are those of `FileSchema`."""
    arguments = {**dict.fromkeys(fixed.size_names, int), "bias": bool}
    for kind in (fixed, *constrained):
        register(kind, file=FileSchema(kind, arguments, **options))
