"""Checks of the inputs that are certified or attacked."""

import torch
from torch import Tensor

from taut.errors import ArgumentError
from taut.linalg.rounding import check_floating


def check_batch(subject: str, x: Tensor) -> None:
    """Raises unless `x` is a batch `(n, ...)` of floating-point numbers."""
    check_floating(subject, "x", x)
    if x.dim() < 2:
        rule, got = "must be a batch (n, ...)", f"shape {tuple(x.shape)}"
        raise ArgumentError(subject, "x", rule, got, "Use x[None] for one input.")


def check_labels(subject: str, labels: Tensor, count: int) -> Tensor:
    """The labels as a tensor `(count,)`; raises unless they are one class index for each input."""
    labels = torch.as_tensor(labels)
    if labels.shape != (count,) or labels.is_floating_point() or labels.is_complex():
        got = f"{labels.dtype} of shape {tuple(labels.shape)} for {count} inputs"
        raise ArgumentError(subject, "labels", "must be one class index for each input", got)
    return labels
