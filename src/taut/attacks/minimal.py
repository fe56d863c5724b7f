"""Minimal adversarial perturbations, as small as a search can find them."""

from functools import partial

import torch
from torch import Generator, Tensor, nn

from taut.attacks.ball import distances
from taut.attacks.evaluation import evaluate
from taut.attacks.gradient import pgd
from taut.attacks.inputs import check_inputs, device_of, evaluating, norm_of, radii_of
from taut.attacks.objectives import predict
from taut.attacks.result import AttackResult
from taut.errors import check_count
from taut.norms import NormLike

__all__ = ["minimal_perturbation"]


def minimal_perturbation(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    *,
    radius: float | Tensor,
    norm: NormLike = "l2",
    num_rounds: int = 8,
    num_steps: int = 50,
    num_restarts: int = 3,
    low: float | None = 0.0,
    high: float | None = 1.0,
    generator: Generator | None = None,
    batch_size: int = 1024,
) -> AttackResult:
    """For each input the nearest adversarial example that a bisection of radii finds.

    `pgd` within `radius` first, then within half-way between the largest radius that failed and
    the smallest distance that was found, separately for every input; what is found is pulled back
    along the segment to its input as far as it is still misclassified. An upper bound of the true
    distance, as `taut.certify` gives a lower one.

    Args:
        model: as for `pgd`.
        x: `(n, ...)`, in `[low, high]`.
        labels: `(n,)`, the true classes.
        radius: largest perturbation, one for all or `(n,)`.
        norm: norm of the perturbation, "l2" or "linf".
        num_rounds: number of bisection rounds.
        num_steps: number of PGD steps in each run.
        num_restarts: number of random starts in each round.
        low: smallest possible value of the data; None for no limit.
        high: largest possible value of the data; None for no limit.
        generator: source of the random starts; None for torch's own.
        batch_size: number of inputs at a time.

    Returns:
        The distances are infinite where nothing was found within `radius`.

    Example:
        >>> model, x = torch.nn.Identity(), torch.tensor([[0.6, 0.4]])
        >>> found = minimal_perturbation(model, x, torch.tensor([0]), radius=1.0, norm="linf")
        >>> round(found.distance.item(), 4)
        0.1
    """
    subject = "minimal_perturbation"
    check_count(subject, "num_rounds", num_rounds, 0)
    p = norm_of(subject, norm)
    x, labels = check_inputs(subject, x, labels, low, high)
    largest = radii_of(subject, x, radius)
    options = {"norm": p, "low": low, "high": high, "batch_size": batch_size}
    descent = {"num_steps": num_steps, "num_restarts": num_restarts, "generator": generator}
    search = partial(pgd, model, x, labels, **descent, **options)
    measure = partial(evaluate, model, x, labels=labels, radius=largest, attack=subject, **options)
    best = measure(examples=x)
    failed, tried = torch.zeros_like(largest), largest
    for _ in range(num_rounds + 1):
        found = search(radius=tried)
        failed = torch.where(found.success, failed, tried)
        best = best.nearer(measure(examples=_pulled(model, x, found, batch_size)))
        tried = (failed + torch.where(best.success, best.distance, largest)) / 2
    return best


@torch.no_grad()
def _pulled(model: nn.Module, x: Tensor, found: AttackResult, batch_size: int) -> Tensor:
    """The examples moved towards their inputs as far as they stay misclassified, by bisection."""
    device = device_of(model, x)
    made = []
    with evaluating(model) as network, torch.no_grad():
        parts = (x, found.examples, found.labels)
        for clean, away, truth in zip(*(t.split(batch_size) for t in parts), strict=True):
            near = torch.zeros(len(clean), dtype=torch.float64, device=x.device)
            far = torch.ones_like(near)
            shape = (-1, *[1] * (x.dim() - 1))
            for _ in range(12):
                middle = (near + far) / 2
                point = clean + middle.to(x.dtype).view(shape) * (away - clean)
                fools = predict(network(point.to(device))).to(x.device) != truth
                far, near = torch.where(fools, middle, far), torch.where(fools, near, middle)
            point = clean + far.to(x.dtype).view(shape) * (away - clean)
            moved = distances(clean, point, found.norm) < distances(clean, away, found.norm)
            made.append(torch.where(moved.view(shape), point, away))
    return torch.cat(made) if made else x
