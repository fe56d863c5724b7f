"""The arguments of an attack: checked, and the model in evaluation mode."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from taut.attacks.ball import check_range
from taut.errors import ArgumentError, DtypeError
from taut.norms import Norm, NormLike, as_norm

__all__ = ["check_inputs", "device_of", "evaluating", "norm_of", "radii_of"]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """The model in evaluation mode with gradients enabled; each module gets its own mode back."""
    # The wrapper of distributed training waits for a backward pass that an attack never makes.
    if isinstance(model, DistributedDataParallel):
        model = model.module
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.inference_mode(False), torch.enable_grad():
            yield model
    finally:
        for module, mode in modes:
            module.training = mode


def device_of(model: nn.Module, x: Tensor) -> torch.device:
    """Where the model computes."""
    return next(model.parameters(), x).device


def norm_of(subject: str, norm: NormLike) -> Norm:
    """L2 or LINF."""
    p = as_norm(norm, subject)
    if p.name == "l1":
        raise ArgumentError(
            subject=subject,
            argument="norm",
            rule="must be 'l2' or 'linf'",
            got="'l1'",
            remedy="Use autoattack for L1.",
        )
    return p


def radii_of(subject: str, x: Tensor, radius: float | Tensor) -> Tensor:
    """`(n,)` in float64, from one radius or one for each input."""
    radii = torch.as_tensor(radius, dtype=torch.float64, device=x.device)
    if radii.shape not in ((), x.shape[:1]) or not bool((radii.isfinite() & (radii >= 0)).all()):
        raise ArgumentError(
            subject=subject,
            argument="radius",
            rule="must be finite and >= 0, one number or one for each input",
            got=f"{radius if radii.dim() == 0 else tuple(radii.shape)} for {len(x)} inputs",
        )
    return radii.expand(len(x)).clone()


def check_inputs(
    subject: str, x: Tensor, labels: Tensor, low: float | None, high: float | None
) -> tuple[Tensor, Tensor]:
    """The inputs without a graph and the labels beside them."""
    if not x.dtype.is_floating_point:
        raise DtypeError(
            subject=subject,
            argument="x",
            rule="must be of floating point",
            got=str(x.dtype),
            remedy="Convert it with .float().",
        )
    if x.dim() < 2:
        raise ArgumentError(
            subject=subject,
            argument="x",
            rule="must be a batch (n, ...)",
            got=f"shape {tuple(x.shape)}",
            remedy="Use x[None] for one input.",
        )
    labels = torch.as_tensor(labels)
    if labels.shape != x.shape[:1] or labels.is_floating_point() or labels.is_complex():
        raise ArgumentError(
            subject=subject,
            argument="labels",
            rule="must be one class index for each input",
            got=f"{labels.dtype} of shape {tuple(labels.shape)} for {len(x)} inputs",
        )
    check_range(subject, x, low, high)
    with torch.inference_mode(False):
        # What was made in inference mode cannot take part in a graph.
        held = x.clone() if x.is_inference() else x.detach()
        return held, labels.to(x.device, torch.int64, copy=labels.is_inference())
