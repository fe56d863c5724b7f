"""The floating-point type of each arithmetic that a certificate can cover."""

import torch

from taut.errors import check_choice
from taut.names import Arithmetic

_DTYPES = {"real": None, "float64": torch.float64, "float32": torch.float32}


def dtype_of(arithmetic: Arithmetic, subject: str) -> torch.dtype | None:
    """The dtype of an execution; None for real numbers."""
    check_choice(subject, "arithmetic", arithmetic, tuple(_DTYPES))
    return _DTYPES[arithmetic]
