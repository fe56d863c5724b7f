"""`AttackProblem`: the checked arguments of an attack; and `evaluate`, which measures its examples."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from taut.attacks.attack_losses import predict
from taut.attacks.attack_result import AttackResult
from taut.attacks.ball import Ball, distances, per_input
from taut.certificates import check_batch, check_labels
from taut.errors import ArgumentError, check_count
from taut.norms import L1, Norm, NormLike, as_norm


@dataclass(frozen=True, eq=False)
class AttackProblem:
    """A network, its inputs, and the perturbations that are allowed."""

    model: nn.Module  # network, as the caller gave it
    x: Tensor  # `(n, ...)`, without a graph
    labels: Tensor  # `(n,)`, the true classes, on the device of `x`
    radius: Tensor  # `(n,)`, float64: largest perturbations
    norm: Norm  # norm of the perturbations
    low: float | None  # smallest possible value of the data, or None
    high: float | None  # largest possible value of the data, or None
    batch_size: int  # number of inputs at a time

    @classmethod
    def check(
        cls,
        subject: str,
        model: nn.Module,
        x: Tensor,
        labels: Tensor,
        radius: float | Tensor,
        norm: NormLike,
        low: float | None,
        high: float | None,
        batch_size: int = 1024,
        *,
        by_gradient: bool = True,
    ) -> Self:
        """The problem that these arguments state; raises for those that state none.

        Gradient attacks have no steps in L1.
        """
        p = as_norm(norm, subject)
        if by_gradient and p == L1:
            rule = "must be 'l2' or 'linf'"
            raise ArgumentError(subject, "norm", rule, "'l1'", "Use autoattack for L1.")
        check_count(subject, "batch_size", batch_size)
        _check_inputs(subject, x, low, high)
        labels = check_labels(subject, labels, len(x))
        radii = torch.as_tensor(radius, dtype=torch.float64, device=x.device)
        one_or_each = radii.shape in ((), x.shape[:1])
        if not one_or_each or not bool((radii.isfinite() & (radii >= 0)).all()):
            rule = "must be finite and >= 0, one number or one for each input"
            got = f"{radius if radii.dim() == 0 else tuple(radii.shape)} for {len(x)} inputs"
            raise ArgumentError(subject, "radius", rule, got)
        radii = radii.expand(len(x)).clone()
        with torch.inference_mode(False):
            # What was made in inference mode cannot take part in a graph.
            x = x.clone() if x.is_inference() else x.detach()
            labels = labels.to(x.device, torch.int64, copy=labels.is_inference())
        return cls(model, x, labels, radii, p, low, high, batch_size)

    @property
    def device(self) -> torch.device:
        """The device on which the model computes."""
        return next(self.model.parameters(), self.x).device

    @contextmanager
    def evaluating(self) -> Iterator[nn.Module]:
        """The model in evaluation mode with gradients enabled; each module gets its own mode back."""
        model = self.model
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

    def batches(self, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Tensors of `n` rows each, `batch_size` rows at a time."""
        return zip(*(tensor.split(self.batch_size) for tensor in tensors), strict=True)

    def ball(self, x: Tensor, radius: Tensor) -> Ball:
        """The allowed points around some of the inputs."""
        return Ball.around(x, radius, self.norm, self.low, self.high)

    def evaluate(self, examples: Tensor, attack: str) -> AttackResult:
        """Evaluates the examples of any attack; see `evaluate`."""
        x, device = self.x, self.device
        kept, predictions, where = [], [], []
        parts = (x, examples.detach().to(x), self.labels, self.radius)
        with self.evaluating() as network, torch.no_grad():
            for clean, moved, truth, reach in self.batches(*parts):
                if self.norm != L1:
                    moved = self.ball(clean, reach).project(moved)
                at_home = predict(network(clean.to(device))).to(x.device)
                away = predict(network(moved.to(device))).to(x.device)
                distance = distances(clean, moved, self.norm)
                wrong = at_home != truth
                moves = (away != truth) & (distance <= reach) & self._in_range(moved) & ~wrong
                kept.append(torch.where(per_input(moves, x), moved, clean))
                predictions.append(torch.where(moves, away, at_home))
                distance = torch.where(moves, distance, torch.inf)
                where.append(torch.where(wrong, torch.zeros_like(distance), distance))
        distance = torch.cat(where)
        measured = (torch.cat(kept), distance.isfinite(), distance, torch.cat(predictions))
        return AttackResult(attack, *measured, self.labels, self.radius, self.norm)

    def _in_range(self, x: Tensor) -> Tensor:
        low, high = (-torch.inf if self.low is None else self.low), self.high
        inside = x.isfinite() & (x >= low) & (x <= (torch.inf if high is None else high))
        return inside.flatten(1).all(1)


def evaluate(
    model: nn.Module,
    x: Tensor,
    examples: Tensor,
    labels: Tensor,
    *,
    radius: float | Tensor,
    norm: NormLike,
    low: float | None = 0.0,
    high: float | None = 1.0,
    attack: str = "given",
    batch_size: int = 1024,
) -> AttackResult:
    r"""Evaluates adversarial examples made by any attack.

    An example counts if its prediction is not the label, $\|x' - x\| \le r$ in float64, and
    its entries lie in `[low, high]`. One that lies outside, by rounding or by more, is first
    projected back (in L1 it just does not count). Inputs that are misclassified themselves count,
    at distance 0.

    Args:
        model: maps `(n, ...)` to `(n, classes)` or to one output; evaluated in evaluation mode.
        x: `(n, ...)`.
        examples: adversarial examples, of the shape of `x`.
        labels: `(n,)`, the true classes.
        radius: largest perturbation, one for all or `(n,)`.
        norm: norm of the perturbation.
        low: smallest possible value of the data; None for no limit.
        high: largest possible value of the data; None for no limit.
        attack: name of the attack in the result.
        batch_size: number of inputs at a time.

    Example:
        >>> model, x = torch.nn.Identity(), torch.tensor([[0.6, 0.4]])
        >>> evaluate(model, x, x.flip(1), torch.tensor([0]), radius=0.3, norm="linf").distance
        tensor([0.2000], dtype=torch.float64)
    """
    problem = AttackProblem.check(
        "evaluate", model, x, labels, radius, norm, low, high, batch_size, by_gradient=False
    )
    if examples.shape != x.shape:
        rule = f"must have the shape of `x`, {tuple(x.shape)}"
        raise ArgumentError("evaluate", "examples", rule, str(tuple(examples.shape)))
    return problem.evaluate(examples, attack)


def _check_inputs(subject: str, x: Tensor, low: float | None, high: float | None) -> None:
    """Raises unless `x` is a batch of finite numbers in `[low, high]`."""
    check_batch(subject, x)
    if not bool(x.isfinite().all()):
        raise ArgumentError(subject, "x", "must be finite", "NaN or infinity")
    if low is not None and high is not None and not low < high:
        raise ArgumentError(subject, "low", "must lie below `high`", f"low={low}, high={high}")
    below = low is not None and bool((x < low).any())
    above = high is not None and bool((x > high).any())
    if below or above:
        rule, got = f"must lie in [low, high] = [{low}, {high}]", "values from "
        got += f"{float(x.min()):.6g} to {float(x.max()):.6g}"
        remedy = "Give the range of the data, or None for no limit."
        raise ArgumentError(subject, "x", rule, got, remedy)
