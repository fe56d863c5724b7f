r"""Operator norms of padding: how many outputs copy one input?"""

import math
from collections.abc import Sequence
from fractions import Fraction

from taut.bounds import Bound
from taut.errors import ArgumentError, check_choice
from taut.linalg.rounding import float_up, sqrt_up
from taut.norms import L1, L2, LINF, Norm, NormLike, as_norm

# "symmetric" is numpy's word for mirrored with the border; torch has no such mode.
PADDING_MODES = ("zeros", "circular", "reflect", "replicate", "symmetric")


def bound_padding(
    pad: Sequence[int], mode: str, norm: NormLike, input_size: Sequence[int] | None = None
) -> Bound:
    r"""The operator norm of `torch.nn.functional.pad`: $\mu^{1/p}$, exact for a known size.

    Every output is a copy of one input, or constant, so a unit vector at the input copied most
    often, $\mu$ times, has the longest image, and no vector has a longer one. Per dimension with
    `a` entries added in front and `b` behind `n` inputs:

    - constant: 1 (negative amounts, which crop, too);
    - replicate: $1 + \max(a, b)$, and $1 + a + b$ for $n = 1$, the worst size;
    - reflect: 2, and 3 where one input is in reach of both sides: of $1 \dots a$ and of
      $n - 1 - b \dots n - 2$, which the worst size has;
    - symmetric (mirrored, the border included): the same as reflect, of $0 \dots a - 1$ and
      $n - b \dots n - 1$;
    - circular: $\lceil (n + a + b)/n \rceil$, at most 1 plus one for each side.

    Args:
        pad: pairs (front, behind), **last dimension first**, as torch takes them.
        mode: "constant" (or "zeros"), "replicate", "reflect", "symmetric" or "circular".
        norm: the norm `p` of input and output.
        input_size: the sizes of the padded dimensions, in the order of the tensor; None for the
            worst case over all sizes.

    Example:
        >>> bound_padding((1, 1, 1, 1), "reflect", "l2", input_size=(8, 8))
        Bound(<= 2.0, l2, proven)
        >>> bound_padding((1, 1), "circular", "l1")
        Bound(<= 3.0, l1, proven)
    """
    subject = "bound_padding"
    p = as_norm(norm, subject)
    check_choice(subject, "mode", mode, ("constant", *PADDING_MODES))
    if len(pad) % 2:
        rule = "must hold pairs (front, behind)"
        remedy = "Give two numbers for each padded dimension, the last dimension first."
        raise ArgumentError(subject, "pad", rule, f"{len(pad)} numbers", remedy)
    pairs = list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    sizes = [None] * len(pairs) if input_size is None else list(input_size)
    if len(sizes) != len(pairs):
        got = f"{len(sizes)} sizes for {len(pairs)} pairs"
        raise ArgumentError(subject, "input_size", "must have one size per padded dimension", got)
    copies = math.prod(_copies(mode, a, b, n) for (a, b), n in zip(pairs, sizes, strict=True))
    return Bound(norm_of_copies(copies, p), p, method="copies of one input")


def norm_of_copies(copies: int | Fraction, norm: Norm) -> float:
    r"""The norm $\mu^{1/p}$ of a map that copies an input at most $\mu$ times, rounded up."""
    return {L1: float_up(Fraction(copies)), L2: sqrt_up(Fraction(copies)), LINF: 1.0}[norm]


def _copies(mode: str, front: int, behind: int, size: int | None) -> int:
    """The largest number of outputs of one padded dimension that copy one input."""
    if mode in ("constant", "zeros"):
        return 1
    sides = (front > 0) + (behind > 0)
    least = max(front, behind) + 1 if mode == "reflect" else max(front, behind, 1)
    if min(front, behind) < 0 or (
        size is not None and size < (1 if mode == "replicate" else least)
    ):
        rule = f"must be non-negative and shorter than the input in mode {mode!r}"
        raise ArgumentError("bound_padding", "pad", rule, f"({front}, {behind}) for size {size}")
    if mode == "replicate":
        return 1 + (front + behind if size in (None, 1) else max(front, behind))
    if size is None:
        return 1 + sides
    if mode == "circular":
        return -(-(size + front + behind) // size)
    inner = mode == "reflect"  # the border itself is not copied
    shared = max(inner, size - inner - behind) <= min(front - 1 + inner, size - 1 - inner)
    return 3 if shared else 1 + min(sides, 1)
