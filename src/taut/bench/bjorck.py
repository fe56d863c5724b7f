"""The paper's table of running times: Björck's iteration in full, and by products with vectors."""

from collections.abc import Iterable

import torch

from taut.lab.timing import Contestant
from taut.linalg import apply_bjorck, bjorck, bound_by_scaling

__all__ = ["PAPER_SECONDS", "bjorck_contestants", "full_name", "product_name"]

# Iterations -> seconds for the full form and for products with one vector, as published for a
# matrix of 1000 by 1000 and the mean of 10 runs (Anil, Lucas and Grosse, 2019, appendix).
PAPER_SECONDS: dict[int, tuple[float, float]] = {
    1: (0.020, 0.0002),
    2: (0.039, 0.0005),
    3: (0.059, 0.0011),
    5: (0.095, 0.012),
    10: (0.21, 2.88),
}


def full_name(num_steps: int) -> str:
    """The contestant that forms the matrix."""
    return f"full, {num_steps}"


def product_name(num_steps: int) -> str:
    """The contestant that multiplies one vector."""
    return f"products, {num_steps}"


def bjorck_contestants(
    size: int, iterations: Iterable[int] = tuple(PAPER_SECONDS), *, seed: int = 0
) -> list[Contestant]:
    """Both forms for each number of iterations, on a normal matrix scaled by its inf-norm bound."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(size, size, generator=generator)
    weight = weight / bound_by_scaling(weight, "inf")
    vector = torch.randn(size, generator=generator)
    contestants = []
    for k in iterations:
        contestants += [
            Contestant(full_name(k), lambda k=k: bjorck(weight, num_steps=k, scaling=None)),
            Contestant(product_name(k), lambda k=k: apply_bjorck(weight, vector, k)),
        ]
    return contestants
