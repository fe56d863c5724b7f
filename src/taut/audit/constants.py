r"""How steeply one tensor of a network follows the network's input, in all three norms at once.

Keeping three constants instead of one lets the best path be found by itself: a layer from L2 to
L-inf followed by L-inf layers (the paper's universal networks) composes through the middle norm,
and no pair of norms is ever joined that does not match.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from taut.linalg.rounding import float_up, sqrt_up
from taut.norms import L1, L2, LINF, Norm

__all__ = ["Constants", "Value", "product_up", "root_up", "sum_up"]

_ORDER = (L1, L2, LINF)


def product_up(*factors: float) -> float:
    """The least float that is not below the product of non-negative numbers; 0 wins over infinity."""
    if 0 in factors:
        return 0.0
    if math.inf in factors:
        return math.inf
    return float_up(math.prod(map(Fraction, factors), start=Fraction(1)))


def sum_up(terms: Iterable[float]) -> float:
    """The least float that is not below the sum of non-negative numbers."""
    terms = list(terms)
    return math.inf if math.inf in terms else float_up(sum(map(Fraction, terms), Fraction(0)))


def root_up(x: float) -> float:
    """A float that is not below the square root, at most one unit in the last place above."""
    return math.inf if x == math.inf else sqrt_up(Fraction(x))


@dataclass(frozen=True)
class Constants:
    r"""Numbers $K_q$ with $\|t(x) - t(x')\|_q \le K_q \|x - x'\|_p$ for $q = 1, 2, \infty$.

    Infinity where nothing is known. Since $\|v\|_\infty \le \|v\|_2 \le \|v\|_1$, a constant also
    serves every larger norm index; this is applied on construction.

    Example:
        >>> Constants.of_input(L2).scaled(3.0)
        Constants(l1=inf, l2=3.0, linf=3.0)
    """

    l1: float
    l2: float
    linf: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "l2", min(self.l1, self.l2))
        object.__setattr__(self, "linf", min(self.l2, self.linf))

    @classmethod
    def of_input(cls, norm: Norm, size: int | None = None) -> "Constants":
        """The constants of the input itself, measured in `norm`; `size` is its number of entries."""
        known = {q: 1.0 if q.p >= norm.p else math.inf for q in _ORDER}
        return cls(known[L1], known[L2], known[LINF]).within(size)

    def __getitem__(self, norm: Norm) -> float:
        return {"l1": self.l1, "l2": self.l2, "linf": self.linf}[norm.name]

    def within(self, size: int | None) -> "Constants":
        r"""The same for a tensor of `size` entries: $\|v\|_1 \le \sqrt n \|v\|_2 \le n \|v\|_\infty$."""
        if size is None:
            return self
        root = root_up(size)
        l2 = min(self.l2, product_up(root, self.linf))
        return Constants(
            min(self.l1, product_up(root, l2), product_up(size, self.linf)), l2, self.linf
        )

    def scaled(self, factor: float) -> "Constants":
        """After a map that is `factor`-Lipschitz in every norm."""
        return Constants(*(product_up(self[norm], factor) for norm in _ORDER))

    def through(self, gain: Callable[[Norm, Norm], float]) -> "Constants":
        """After a map whose constant from norm q to norm r is at most `gain(q, r)`.

        `gain` may answer infinity for pairs that it does not know, and is asked only where this
        side of the pair is known.
        """
        return Constants(
            *(
                min(
                    (product_up(self[q], gain(q, r)) for q in _ORDER if self[q] < math.inf),
                    default=math.inf,
                )
                for r in _ORDER
            )
        )

    def repeated(self, times: int) -> "Constants":
        """After copying every entry `times` times."""
        return Constants(product_up(self.l1, times), product_up(self.l2, root_up(times)), self.linf)

    @staticmethod
    def added(parts: Iterable["Constants"]) -> "Constants":
        """Of a sum of tensors of one shape."""
        parts = list(parts)
        return Constants(*(sum_up(part[norm] for part in parts) for norm in _ORDER))

    @staticmethod
    def joined(parts: Iterable["Constants"]) -> "Constants":
        """Of several tensors side by side: concatenated, or the larger of each pair of entries."""
        parts = list(parts)
        squares = sum_up(product_up(part.l2, part.l2) for part in parts)
        return Constants(
            sum_up(part.l1 for part in parts),
            root_up(squares),
            max((part.linf for part in parts), default=0.0),
        )


@dataclass(frozen=True)
class Value:
    """A tensor in the graph: its constants and, where known, its shape without the batch."""

    constants: Constants
    shape: tuple[int, ...] | None = None

    @property
    def size(self) -> int | None:
        """The number of entries of one sample."""
        return None if self.shape is None else math.prod(self.shape)
