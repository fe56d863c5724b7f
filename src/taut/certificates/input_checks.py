"""Checks of the inputs that are certified or attacked."""

import torch
from torch import Tensor, nn

from taut.errors import ArgumentError, DtypeError
from taut.linalg.rounding import check_floating


def check_batch(subject: str, x: Tensor) -> None:
    """Raises unless `x` is a batch `(n, ...)` of floating-point numbers."""
    check_floating(subject, "x", x)
    if x.dim() < 2:
        rule, got = "must be a batch (n, ...)", f"shape {tuple(x.shape)}"
        raise ArgumentError(subject, "x", rule, got, "Use x[None] for one input.")


def check_float32(subject: str, model: nn.Module, *inputs: Tensor) -> None:
    """Raises unless the model, and inputs that it is executed on, are float32 throughout."""
    tensors = (*inputs, *model.parameters(), *model.buffers())
    dtypes = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    if not dtypes <= {torch.float32}:
        rule = f"'float32' must be that of the model{' and of `x`' if inputs else ''}"
        got = ", ".join(sorted(map(str, dtypes)))
        remedy = "Convert with .float(), or use 'real'."
        raise DtypeError(subject, "arithmetic", rule, got, remedy)
    if torch.get_float32_matmul_precision() != "highest":
        rule = "'float32' must mean full float32 products"
        got = f"torch.get_float32_matmul_precision() == {torch.get_float32_matmul_precision()!r}"
        raise ArgumentError(subject, "arithmetic", rule, got, "Set it to 'highest'.")


def check_labels(subject: str, labels: Tensor, count: int) -> Tensor:
    """The labels as a tensor `(count,)`; raises unless they are one class index for each input."""
    labels = torch.as_tensor(labels)
    if labels.shape != (count,) or labels.is_floating_point() or labels.is_complex():
        got = f"{labels.dtype} of shape {tuple(labels.shape)} for {count} inputs"
        raise ArgumentError(subject, "labels", "must be one class index for each input", got)
    return labels
