r"""Lipschitz constants and error bounds of a tensor of a network, in all three norms at once.

Keeping three numbers instead of one lets the best path be found by itself: a layer from L2 to
L-inf followed by L-inf layers (the paper's universal networks) composes through the middle norm,
and no pair of norms is ever joined that does not match. Lipschitz constants and bounds of rounding
errors travel through a layer by the same rule, so both are `Constants`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from taut.norms import L1, L2, LINF, Norm
from taut.rules.upward_rounding import add_up, multiply_up, sqrt_up

_ORDER = (L1, L2, LINF)
Number = float | Tensor


class Constants:
    r"""Upper bounds $K_q$ of one quantity, $\|\cdot\|_q \le K_q$ for $q = 1, 2, \infty$.

    For a tensor $t(x)$ of a network it says $\|t(x) - t(x')\|_q \le K_q \|x - x'\|_p$. Infinity
    where nothing is known. Since $\|v\|_\infty \le \|v\|_2 \le \|v\|_1$, a bound also serves every
    larger norm index; this is applied on construction. All arithmetic rounds up, and exact results
    stay exact.

    Args:
        l1: a number, or a float64 tensor with one entry a sample.
        l2: likewise.
        linf: likewise.

    Example:
        >>> from taut.norms import L2
        >>> Constants.of_input(L2).scaled(3.0)
        Constants(l1=inf, l2=3.0, linf=3.0)
    """

    __slots__ = ("values",)

    def __init__(self, l1: Number, l2: Number, linf: Number) -> None:
        like = next((v for v in (l1, l2, linf) if isinstance(v, Tensor)), torch.empty(0))
        first, second, third = torch.broadcast_tensors(
            *(torch.as_tensor(v, dtype=torch.float64, device=like.device) for v in (l1, l2, linf))
        )
        second = torch.minimum(first, second)
        self.values: Tensor = torch.stack([first, second, torch.minimum(second, third)])

    @classmethod
    def of(cls, values: Tensor) -> "Constants":
        """From a float64 tensor `(3, ...)` in the order L1, L2, L-inf."""
        return cls(*values.unbind(0))

    @classmethod
    def of_input(cls, norm: Norm, size: int | None = None) -> "Constants":
        """The constants of the input itself, measured in `norm`; `size` is its number of entries."""
        return cls(*(1.0 if q.p >= norm.p else math.inf for q in _ORDER)).within(size)

    @property
    def l1(self) -> float:
        """The bound in L1."""
        return float(self.values[0])

    @property
    def l2(self) -> float:
        """The bound in L2."""
        return float(self.values[1])

    @property
    def linf(self) -> float:
        """The bound in L-inf."""
        return float(self.values[2])

    def __getitem__(self, norm: Norm) -> float:
        return float(self.values[_ORDER.index(norm)])

    def within(self, size: int | None) -> "Constants":
        r"""The same for a tensor of `size` entries: $\|v\|_1 \le \sqrt n \|v\|_2 \le n \|v\|_\infty$."""
        if size is None:
            return self
        l1, l2, linf = self.values
        count = l1.new_tensor(float(size))
        root = sqrt_up(count)
        l2 = torch.minimum(l2, multiply_up(root, linf))
        wide = torch.minimum(multiply_up(root, l2), multiply_up(count, linf))
        return Constants(torch.minimum(l1, wide), l2, linf)

    def scaled(self, factor: float) -> "Constants":
        """After a map that is `factor`-Lipschitz in every norm."""
        return Constants.of(multiply_up(self.values, self.values.new_tensor(float(factor))))

    def through(self, gain: Callable[[Norm, Norm], float]) -> "Constants":
        """After a map whose constant from norm q to norm r is at most `gain(q, r)`.

        `gain` may answer infinity for pairs that it does not know, and is asked only where this
        side of the pair is known.
        """
        finite = [(i, q) for i, q in enumerate(_ORDER) if not bool(self.values[i].isinf().all())]
        bounds = []
        for r in _ORDER:
            best = torch.full_like(self.values[0], math.inf)
            for i, q in finite:
                if (factor := float(gain(q, r))) < math.inf:
                    best = torch.minimum(best, multiply_up(self.values[i], best.new_tensor(factor)))
            bounds.append(best)
        return Constants(*bounds)

    def in_each_norm(self, l1: float, l2: float, linf: float) -> "Constants":
        """After a map with these constants, each from a norm to itself."""
        gains = {L1: l1, L2: l2, LINF: linf}
        return self.through(lambda q, r: gains[q] if q == r else math.inf)

    def repeated(self, times: int) -> "Constants":
        """After copying every entry at most `times` times."""
        count = self.values.new_tensor(float(times))
        l1, l2, linf = self.values
        return Constants(multiply_up(l1, count), multiply_up(l2, sqrt_up(count)), linf)

    def summed(self, count: int) -> "Constants":
        """After adding up `count` entries into each entry of the result."""
        number = self.values.new_tensor(float(count))
        l1, l2, linf = self.values
        return Constants(l1, multiply_up(l2, sqrt_up(number)), multiply_up(linf, number))

    @staticmethod
    def added(parts: Iterable["Constants"]) -> "Constants":
        """Of a sum of tensors of one shape."""
        values = [part.values for part in parts]
        return Constants.of(reduce(add_up, values)) if values else Constants(0.0, 0.0, 0.0)

    @staticmethod
    def joined(parts: Sequence["Constants"]) -> "Constants":
        """Of several tensors side by side: concatenated, or the larger of each pair of entries."""
        if len(parts) == 1:
            return parts[0]  # a square and a root would round
        l1, l2, linf = zip(*(part.values for part in parts), strict=True)
        squares = [multiply_up(value, value) for value in l2]
        return Constants(
            reduce(add_up, l1), sqrt_up(reduce(add_up, squares)), reduce(torch.maximum, linf)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constants) and torch.equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(tuple(self.values.flatten().tolist()))

    def __repr__(self) -> str:
        if self.values.dim() > 1:
            return f"Constants(of {self.values[0].numel()} samples)"
        return f"Constants(l1={self.l1}, l2={self.l2}, linf={self.linf})"


@dataclass(frozen=True)
class Value:
    """A tensor that depends on the input of a network: its constants and, where known, its shape.

    Attributes:
        constants: how far it moves.
        shape: of one sample, without the batch.
    """

    constants: Constants
    shape: tuple[int, ...] | None = None

    @property
    def size(self) -> int | None:
        """The number of entries of one sample."""
        return None if self.shape is None else math.prod(self.shape)
