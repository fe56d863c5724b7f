"""Evaluation of adversarial examples: each is measured again, whoever made it."""

import torch
from torch import Tensor, nn

from taut.attacks.ball import Ball, distances
from taut.attacks.inputs import check_inputs, device_of, evaluating, radii_of
from taut.attacks.objectives import predict
from taut.attacks.result import AttackResult
from taut.errors import ArgumentError, check_count
from taut.norms import L1, NormLike, as_norm

__all__ = ["evaluate"]


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
        examples: the shape of `x`.
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
    p = as_norm(norm, "evaluate")
    check_count("evaluate", "batch_size", batch_size)
    x, labels = check_inputs("evaluate", x, labels, low, high)
    if examples.shape != x.shape:
        raise ArgumentError(
            subject="evaluate",
            argument="examples",
            rule=f"must have the shape of `x`, {tuple(x.shape)}",
            got=str(tuple(examples.shape)),
        )
    radii = radii_of("evaluate", x, radius)
    device = device_of(model, x)
    kept, found, where = [], [], []
    with evaluating(model) as network, torch.no_grad():
        parts = (x, examples.detach().to(x), labels, radii)
        for clean, moved, truth, reach in zip(*(t.split(batch_size) for t in parts), strict=True):
            if p != L1:
                moved = Ball.around(clean, reach, p, low, high).project(moved)
            at_home = predict(network(clean.to(device))).to(x.device)
            away = predict(network(moved.to(device))).to(x.device)
            distance = distances(clean, moved, p)
            valid = (away != truth) & (distance <= reach) & _inside(moved, low, high)
            wrong = at_home != truth
            moves = valid & ~wrong
            kept.append(torch.where(moves.view(-1, *[1] * (x.dim() - 1)), moved, clean))
            found.append(torch.where(moves, away, at_home))
            distance = torch.where(moves, distance, torch.inf)
            where.append(torch.where(wrong, torch.zeros_like(distance), distance))
    return AttackResult(
        attack=attack,
        examples=torch.cat(kept) if kept else x,
        success=(distance := torch.cat(where)).isfinite(),
        distance=distance,
        prediction=torch.cat(found),
        labels=labels,
        radius=radii,
        norm=p,
    )


def _inside(x: Tensor, low: float | None, high: float | None) -> Tensor:
    flat = x.flatten(1)
    inside = flat.isfinite().all(1)
    if low is not None:
        inside &= (flat >= low).all(1)
    if high is not None:
        inside &= (flat <= high).all(1)
    return inside
