r"""The three norms as values: `L1`, `L2`, `LINF`.

A norm is an object, not a string compared in many places. Wherever taut takes a norm it also
accepts the names `"l1"`, `"l2"` and `"linf"`.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from taut.errors import ArgumentError
from taut.names import NormName

__all__ = ["L1", "L2", "LINF", "Norm", "NormLike", "NormName", "as_norm"]


@dataclass(frozen=True)
class Norm:
    r"""The vector norm $\|x\|_p = (\sum_i |x_i|^p)^{1/p}$.

    Example:
        >>> L2.vector(torch.tensor([3.0, 4.0]))
        tensor(5.)
        >>> LINF.dual
        L1
    """

    name: NormName
    p: float

    @property
    def dual(self) -> "Norm":
        """The norm of index q with 1/p + 1/q = 1."""
        return {"l1": LINF, "l2": L2, "linf": L1}[self.name]

    def vector(self, x: Tensor, dim: int | tuple[int, ...] = -1) -> Tensor:
        """The norm of `x` over `dim`, in the arithmetic of `x`."""
        return torch.linalg.vector_norm(x, self.p, dim=dim)

    def operator(self, weight: Tensor, output: "Norm | None" = None) -> Tensor:
        r"""The induced norm $\sup_{\|x\|_p = 1} \|W x\|_{p'}$, as computed in the arithmetic of `weight`.

        A computed number, not a bound: `taut.linalg` proves.

        Args:
            weight: `(..., out, in)`.
            output: the norm of the result, by default this one. Mixed pairs are known for an
                output norm of LINF (largest dual norm of a row) and for an input norm of L1
                (largest output norm of a column).
        """
        output = output or self
        if output == LINF:
            return self.dual.vector(weight, -1).amax(-1)
        if self == L1:
            return output.vector(weight, -2).amax(-1)
        if self == output == L2:
            return torch.linalg.matrix_norm(weight, 2)
        rule = "the pair of norms must have a closed form"
        got = f"{self} -> {output}, which is hard to compute"
        remedy = "Use equal norms, an output norm of LINF or an input norm of L1."
        raise ArgumentError("Norm.operator", rule=rule, got=got, remedy=remedy)

    def __repr__(self) -> str:
        return self.name.upper()

    def __str__(self) -> str:
        return self.name


L1 = Norm("l1", 1.0)
L2 = Norm("l2", 2.0)
LINF = Norm("linf", math.inf)

_BY_NAME: dict[str, Norm] = {norm.name: norm for norm in (L1, L2, LINF)}
NormLike = Norm | NormName


def as_norm(norm: NormLike, subject: str = "as_norm", argument: str = "norm") -> Norm:
    """The norm itself, from a norm or its name.

    Example:
        >>> as_norm("linf")
        LINF
    """
    if isinstance(norm, Norm):
        return norm
    if norm in _BY_NAME:
        return _BY_NAME[norm]
    raise ArgumentError(subject, argument, "must be 'l1', 'l2' or 'linf'", f"{argument}={norm!r}")
