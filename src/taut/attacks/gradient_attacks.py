"""Gradient attacks: one step (FGSM), many (PGD), and batches for adversarial training."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from taut.attacks.attack_losses import OBJECTIVES, AttackLoss, predict, rivals
from taut.attacks.attack_problem import AttackProblem
from taut.attacks.attack_result import AttackResult
from taut.attacks.ball import Ball
from taut.errors import ArgumentError, check_choice, check_count, check_positive
from taut.norms import NormLike


def fgsm(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    *,
    radius: float | Tensor,
    norm: NormLike = "linf",
    low: float | None = 0.0,
    high: float | None = 1.0,
    loss: AttackLoss = "cw",
    batch_size: int = 1024,
) -> AttackResult:
    r"""The fast gradient sign method: one step of full length.

    $$x' = \operatorname{clip}(x - r\, \operatorname{sign} \nabla \ell(x)) \text{ in L-inf}, \qquad
      \operatorname{clip}(x - r\, \nabla \ell(x) / \|\nabla \ell(x)\|_2) \text{ in L2}$$

    The arguments are those of `pgd`.

    Example:
        >>> model, x = torch.nn.Identity(), torch.tensor([[0.6, 0.4], [0.9, 0.1]])
        >>> fgsm(model, x, torch.tensor([0, 0]), radius=0.2)
        AttackResult(fgsm, linf within 0.2: error 50.00 % of 2 inputs)
    """
    problem = AttackProblem.check("fgsm", model, x, labels, radius, norm, low, high, batch_size)
    return Descent("fgsm", loss, num_steps=1, step_share=1.0).attack(problem)


def pgd(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    *,
    radius: float | Tensor,
    norm: NormLike = "linf",
    num_steps: int = 200,
    num_restarts: int = 1,
    step_size: float | None = None,
    start: float | None = None,
    low: float | None = 0.0,
    high: float | None = 1.0,
    generator: Generator | None = None,
    loss: AttackLoss = "cw",
    batch_size: int = 1024,
) -> AttackResult:
    r"""Projected gradient descent on the margin of the true class, from random starts.

    $$x' \leftarrow \Pi\big(x' - \eta\, d(\nabla \ell(x'))\big), \qquad
      \Pi \text{ onto } \{\|x' - x\| \le r\} \cap [\text{low}, \text{high}]$$

    with $d$ the sign in L-inf and the direction in L2. A row stops as soon as its prediction is
    wrong; `evaluate` measures what was found. The model is run in evaluation mode and left as it
    was: no gradients, no statistics, no mode changed.

    Args:
        model: maps `(n, ...)` to `(n, classes)`, or to one output whose sign is the prediction.
        x: `(n, ...)`, in `[low, high]`, in the dtype of the model.
        labels: `(n,)`, the true classes; 0 and 1 for one output.
        radius: largest perturbation, one for all or `(n,)`.
        norm: norm of the perturbation, "linf" or "l2".
        num_steps: number of PGD steps.
        num_restarts: number of random starts: the first run is against whichever class is best,
            the next ones each against one class, in the order of the logits at `x`. The nearest
            boundary is often not that of the runner-up.
        step_size: $\eta$; by default `2.5 * radius / num_steps`.
        start: largest distance of the random start, by default `radius / 10` as in the paper
            (large starts lose their way in networks with large margins); 0 starts at `x`.
        low: smallest possible value of the data; None for no limit.
        high: largest possible value of the data; None for no limit.
        generator: source of the random starts; None for torch's own.
        loss: "cw", $\max(0, z_t - \max_{i \ne t} z_i + 50)$ of Carlini and Wagner, whose
            gradient does not vanish for confident networks, or "cross_entropy".
        batch_size: number of inputs at a time.

    Example:
        >>> model, x = torch.nn.Identity(), torch.tensor([[0.6, 0.4], [0.9, 0.1]])
        >>> pgd(model, x, torch.tensor([0, 0]), radius=0.2, num_steps=10).success
        tensor([ True, False])
    """
    subject = "pgd"
    shares = _shares(subject, radius, num_steps, step_size, start, 0.1)
    descent = Descent(subject, loss, num_steps, *shares, num_restarts, generator)
    problem = AttackProblem.check(subject, model, x, labels, radius, norm, low, high, batch_size)
    return descent.attack(problem)


def adversarial_batch(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    *,
    radius: float,
    norm: NormLike = "linf",
    num_steps: int = 10,
    step_size: float | None = None,
    start: float | None = None,
    low: float | None = 0.0,
    high: float | None = 1.0,
    generator: Generator | None = None,
    loss: AttackLoss = "cross_entropy",
) -> Tensor:
    """Adversarial inputs for PGD adversarial training.

    Every row takes all steps, so that training sees the worst point found and not the first that
    is misclassified. The arguments are those of `pgd`, with defaults for training: few steps, of
    the cross-entropy, from starts up to `radius` away. The model is left as it was here too.

    Returns:
        The shape and dtype of `x`, without a graph, each row within `radius` of its own.
    """
    subject = "adversarial_batch"
    shares = _shares(subject, radius, num_steps, step_size, start, 1.0)
    descent = Descent(subject, loss, num_steps, *shares, generator=generator)
    problem = AttackProblem.check(subject, model, x, labels, radius, norm, low, high)
    x, labels, radii = (t.to(problem.device) for t in (problem.x, problem.labels, problem.radius))
    with problem.evaluating() as network:
        ball = problem.ball(x, radii)
        point = descent.start(ball)
        for _ in range(num_steps):
            point = descent.step(ball, point, descent.look(network, point, labels)[1])
    return point.to(problem.x.device)


@dataclass(frozen=True)
class Descent:
    """The objective of a gradient attack, and its steps and start as shares of the radius."""

    subject: str
    loss: AttackLoss
    num_steps: int
    step_share: float
    start_share: float = 0.0
    num_restarts: int = 1
    generator: Generator | None = None

    def __post_init__(self) -> None:
        check_choice(self.subject, "loss", self.loss, tuple(OBJECTIVES))
        check_count(self.subject, "num_restarts", self.num_restarts)

    def start(self, ball: Ball) -> Tensor:
        """The points from which a run starts."""
        return ball.draw(self.start_share, self.generator) if self.start_share else ball.x

    def step(self, ball: Ball, point: Tensor, gradient: Tensor) -> Tensor:
        """The next points of a run."""
        return ball.project(point + self.step_share * ball.radius * ball.steepest(gradient))

    def look(
        self, network: nn.Module, point: Tensor, labels: Tensor, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The logits at `point`, and the gradient of the objective, to the input alone."""
        point = point.detach().requires_grad_()
        logits = network(point)
        objective = OBJECTIVES[self.loss](logits, labels, targets)
        (gradient,) = torch.autograd.grad(objective.sum(), point)
        return logits.detach(), gradient

    def run(
        self, network: nn.Module, ball: Ball, labels: Tensor, targets: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The points where each row was first misclassified, or ended, and the rows that never were."""
        point = self.start(ball)
        best = point.clone()
        left = torch.arange(len(point), device=point.device)
        for step in range(self.num_steps + 1):
            if not len(left):
                break
            logits, gradient = self.look(network, point, labels, targets)
            resists = predict(logits) == labels
            best[left] = point
            if not bool(resists.all()):
                left, point, labels = left[resists], point[resists], labels[resists]
                gradient, ball = gradient[resists], ball.rows(resists)
                targets = None if targets is None else targets[resists]
            if step < self.num_steps:
                point = self.step(ball, point, gradient)
        return best, left

    def attack(self, problem: AttackProblem) -> AttackResult:
        """Attacks every input that is classified correctly, and evaluates what is found."""
        device, examples = problem.device, []
        parts = (t.to(device) for t in (problem.x, problem.labels, problem.radius))
        with problem.evaluating() as network:
            for clean, truth, reach in problem.batches(*parts):
                adversarial = clean.clone()
                with torch.no_grad():
                    logits = network(clean)
                left = (predict(logits) == truth).nonzero()[:, 0]
                ball = problem.ball(clean, reach)
                for run in range(self.num_restarts):
                    targets = rivals(logits[left], truth[left], run - 1) if run else None
                    adversarial[left], standing = self.run(
                        network, ball.rows(left), truth[left], targets
                    )
                    left = left[standing]
                examples.append(adversarial.to(problem.x.device))
        return problem.evaluate(torch.cat(examples), self.subject)


def _shares(
    subject: str,
    radius: float | Tensor,
    num_steps: int,
    step_size: float | None,
    start: float | None,
    default_start: float,
) -> tuple[float, float]:
    """The lengths of a step and of the start as shares of the radius, which may differ by row."""
    check_count(subject, "num_steps", num_steps)
    if step_size is not None:
        check_positive(subject, "step_size", step_size)
    each = isinstance(radius, Tensor) and bool(radius.dim())
    for name, value in (("step_size", step_size), ("start", start)):
        if value is not None and each:
            rule = "must be left to its share of the radius where each input has its own"
            raise ArgumentError(subject, name, rule, value, "Leave it out.")
    if start is not None and not 0 <= start <= float(radius):
        rule = "must lie in [0, radius]"
        raise ArgumentError(subject, "start", rule, f"start={start}, radius={radius}")
    whole = 1.0 if each else float(radius) or 1.0
    step = 2.5 / num_steps if step_size is None else step_size / whole
    return step, default_start if start is None else start / whole
