"""Minimal adversarial perturbations, as small as a search can find them."""

from dataclasses import replace

import torch
from torch import Generator, Tensor, nn

from taut.attacks.attack_losses import predict
from taut.attacks.attack_problem import AttackProblem
from taut.attacks.attack_result import AttackResult
from taut.attacks.ball import distances, per_input
from taut.attacks.gradient_attacks import Descent
from taut.errors import check_count
from taut.norms import NormLike


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
    distance, as `taut.certify` gives a lower one; infinite where nothing was found.

    The arguments are those of `pgd`, which runs in each of `num_rounds` bisections and before them.

    Example:
        >>> model, x = torch.nn.Identity(), torch.tensor([[0.6, 0.4]])
        >>> found = minimal_perturbation(model, x, torch.tensor([0]), radius=1.0, norm="linf")
        >>> round(found.distance.item(), 4)
        0.1
    """
    subject = "minimal_perturbation"
    check_count(subject, "num_rounds", num_rounds, 0)
    check_count(subject, "num_steps", num_steps)
    problem = AttackProblem.check(subject, model, x, labels, radius, norm, low, high, batch_size)
    descent = Descent(subject, "cw", num_steps, 2.5 / num_steps, 0.1, num_restarts, generator)
    best = problem.evaluate(problem.x, subject)
    failed, tried = torch.zeros_like(problem.radius), problem.radius
    for _ in range(num_rounds + 1):
        result = descent.attack(replace(problem, radius=tried))
        failed = torch.where(result.success, failed, tried)
        best = best.nearer(problem.evaluate(_pulled_back(problem, result), subject))
        tried = (failed + torch.where(best.success, best.distance, problem.radius)) / 2
    return best


def _pulled_back(problem: AttackProblem, result: AttackResult) -> Tensor:
    """The examples moved towards their inputs as far as they stay misclassified, by bisection."""
    x, moved = problem.x, []
    with problem.evaluating() as network, torch.no_grad():
        for clean, away, truth in problem.batches(x, result.examples, result.labels):
            near = torch.zeros(len(clean), dtype=torch.float64, device=x.device)
            far = torch.ones_like(near)
            for _ in range(12):
                middle = (near + far) / 2
                point = clean + per_input(middle.to(x.dtype), x) * (away - clean)
                fools = predict(network(point.to(problem.device))).to(x.device) != truth
                far, near = torch.where(fools, middle, far), torch.where(fools, near, middle)
            point = clean + per_input(far.to(x.dtype), x) * (away - clean)
            nearer = distances(clean, point, result.norm) < distances(clean, away, result.norm)
            moved.append(torch.where(per_input(nearer, x), point, away))
    return torch.cat(moved)
