"""The computations of `taut demo`: three activations on two known distances, drift, and a classifier.

The critics differ only in their activation. All are 1-Lipschitz by construction, so a critic that
falls short of the distance has lost slope in its activation. Then the distance of shifted data is
bounded, and a classifier with MaxMin is trained, certified, attacked and checked.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor

from taut import nn
from taut.certificates import Certificates
from taut.checker import Refused, check
from taut.evaluation import (
    EvaluatedClassifier,
    RobustnessResult,
    evaluate_robustness,
    evenly_spaced_rows,
    values_and_gradient_norms,
)
from taut.export import save
from taut.names import ActivationName
from taut.norms import L2
from taut.training import Progress, TrainConfig, TrainedRun, train
from taut.transport import (
    CriticFit,
    Problem,
    WassersteinResult,
    absolute_value,
    fit_critic,
    three_cones,
    wasserstein,
)

ACTIVATIONS: tuple[ActivationName, ...] = ("relu", "maxmin", "fullsort")
_RADIUS = 0.5
_SHIFTS = (0.0, 0.25, 0.5, 0.75, 1.0)

OnStep = Callable[[str, str, float], None]
OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class Task:
    """A problem, the training settings of its critics, and `(..., dim)` points for plots."""

    problem: Problem
    hidden: tuple[int, ...]
    num_steps: int
    batch_size: int
    lr: float
    points: Tensor


@dataclass(frozen=True)
class TrainedCritic:
    """A critic with one activation, trained on one problem.

    A critic is determined up to a constant; `values`, at the points of the task, match the potential
    where mass is transported.
    """

    activation: str
    fit: CriticFit
    values: Tensor
    slopes: Tensor  # norm of the gradient at the points
    mean_slope: float  # mean of `slopes` where mass is transported; 1 for the potential
    seconds: float


@dataclass(frozen=True)
class TaskResult:
    """A task and its critics, in the order of `ACTIVATIONS`."""

    task: Task
    critics: tuple[TrainedCritic, ...]


@dataclass(frozen=True, eq=False)
class DigitsResult:
    """The classifier of digits: its training run, its test images, certificates and attacks.

    `checked` is the constant that the independent checker proves of the saved network, None if it
    refuses. `seconds` are the time of the training, and that of the certification and the attacks.
    """

    run: TrainedRun
    classifier: EvaluatedClassifier
    certificates: Certificates
    radius: float
    attacked: RobustnessResult
    checked: float | None
    seconds: tuple[float, float]


@dataclass(frozen=True)
class DemoRun:
    """All results of the demonstration; `drift` holds bounds for each shift of the data."""

    seed: int
    tasks: tuple[TaskResult, ...]
    drift: dict[float, WassersteinResult]
    digits: DigitsResult
    seconds: float


def demo_tasks(quick: bool = False) -> tuple[Task, ...]:
    """The two tasks, with three hidden layers as in the paper; smaller ones if `quick`, for tests."""
    line = torch.linspace(-1.5, 1.5, 300).unsqueeze(-1)
    # Even counts avoid the tips of the cones, which have no gradient.
    sides = torch.linspace(-3.2, 3.2, 256), torch.linspace(-1.4, 1.4, 112)
    plane = torch.stack(torch.meshgrid(*sides, indexing="xy"), dim=-1)
    if quick:
        return (
            Task(absolute_value(), (16, 16), 60, 32, 1e-2, line),
            Task(three_cones(), (24, 24), 60, 64, 1e-2, plane[::8, ::8]),
        )
    return (
        Task(absolute_value(), (128, 128, 128), 300, 64, 3e-3, line),
        Task(three_cones(), (128, 128, 128), 1000, 256, 5e-3, plane),
    )


def run_demo(
    *,
    seed: int,
    tasks: tuple[Task, ...] | None = None,
    quick: bool = False,
    on_step: OnStep | None = None,
    on_progress: OnProgress | None = None,
) -> DemoRun:
    """Trains critics with every activation on every task, and a classifier of digits.

    `quick` is for tests. `on_step` is called with the problem's name, the activation and the dual value.
    """
    start = time.perf_counter()
    results = tuple(
        TaskResult(task, tuple(_train(task, name, seed, on_step) for name in ACTIVATIONS))
        for task in tasks or demo_tasks(quick)
    )
    drift = _drift(seed, *((60, 5) if quick else (1000, 50)))
    digits = _digits(seed, quick, on_progress)
    return DemoRun(seed, results, drift, digits, time.perf_counter() - start)


def _drift(seed: int, rows: int, num_steps: int) -> dict[float, WassersteinResult]:
    """Distances between uniform samples of a square and of squares shifted by known amounts."""
    random = Generator().manual_seed(seed)
    reference = torch.rand(rows, 2, generator=random)
    results = {}
    with torch.random.fork_rng(devices=[]):
        for shift in _SHIFTS:
            batch = torch.rand(rows, 2, generator=random) + torch.tensor([shift, 0.0])
            results[shift] = wasserstein(reference, batch, seed=seed, num_steps=num_steps)
    return results


def _digits(seed: int, quick: bool, on_progress: OnProgress | None) -> DigitsResult:
    start = time.perf_counter()
    hidden, epochs, examples, steps = ((32,), 2, 40, 5) if quick else ((128, 128), 25, 300, 40)
    config = TrainConfig(radius=_RADIUS, hidden=hidden, epochs=epochs, batch_size=64, seed=seed)
    run = train(config, on_progress=on_progress)
    trained = time.perf_counter()
    classifier = EvaluatedClassifier.from_run(run, L2)
    part = classifier.take(evenly_spaced_rows(len(classifier.examples), examples))
    radii = (_RADIUS / 2, _RADIUS, 1.5 * _RADIUS, 2 * _RADIUS)
    attacked = evaluate_robustness(part, radii, ("fgsm", "pgd"), num_steps=steps, seed=seed)
    certificates = classifier.certify()
    seconds = trained - start, time.perf_counter() - trained
    return DigitsResult(
        run, classifier, certificates, _RADIUS, attacked, _check(classifier), seconds
    )


def _check(classifier: EvaluatedClassifier) -> float | None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "digits.safetensors"
        save(classifier.model, file, norm=L2, input_shape=classifier.spec.shape)
        try:
            return check(file.read_bytes())["constant"]
        except Refused:
            return None


def _train(
    task: Task, activation: ActivationName, seed: int, on_step: OnStep | None
) -> TrainedCritic:
    start = time.perf_counter()
    # Layers draw their initial weights from the global generator, which is restored.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.mlp([task.problem.dim, *task.hidden, 1], activation=activation)
    fit = fit_critic(
        net,
        task.problem,
        num_steps=task.num_steps,
        batch_size=task.batch_size,
        lr=task.lr,
        generator=Generator().manual_seed(seed),
        on_step=on_step and (lambda _, dual: on_step(task.problem.name, activation, dual)),
    )
    seconds = time.perf_counter() - start

    net.eval()
    values, slopes = values_and_gradient_norms(net, task.points)
    truth = task.problem.potential(task.points)
    # In these problems mass is transported where the potential is between 0 and 1.
    transported = (truth >= 0) & (truth <= 1)
    shift = (truth - values)[transported].mean()
    mean_slope = slopes[transported].mean().item()
    return TrainedCritic(activation, fit, values + shift, slopes, mean_slope, seconds)
