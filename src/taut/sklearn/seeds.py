"""From scikit-learn's `random_state` to the seed of a torch generator."""

from numbers import Integral

import numpy as np
from sklearn.utils import check_random_state

__all__ = ["RandomState", "seed_of"]

RandomState = int | np.random.RandomState | None


def seed_of(random_state: RandomState) -> int:
    """A whole number as it is, a draw from a generator, or a fresh one for None.

    Example:
        >>> seed_of(7)
        7
    """
    source = check_random_state(random_state)
    return int(random_state) if isinstance(random_state, Integral) else source.randint(2**31 - 1)
