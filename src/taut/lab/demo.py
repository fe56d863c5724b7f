"""The demonstration: three activations, two problems of known distance, digits with proofs.

The networks differ in their activation alone. All are 1-Lipschitz by construction, so what a
critic falls short of the distance is slope that its activation threw away. Then a classifier that
keeps its slope is trained, certified and attacked.
"""

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

import torch
from torch import Generator, Tensor

from taut import nn
from taut.certificates import Certificates
from taut.lab.critic_run import values_and_slopes
from taut.lab.robustness import Attacked, Subject, attack, spread_rows, subject_of
from taut.norms import L2
from taut.training import Progress, TrainConfig, TrainedRun, train
from taut.wasserstein import CriticFit, Problem, absolute_value, fit_critic, three_cones

__all__ = [
    "ACTIVATIONS",
    "CriticRecord",
    "DemoRun",
    "DigitsRecord",
    "Task",
    "TaskRecord",
    "demo_tasks",
    "run_demo",
]

ACTIVATIONS = ("relu", "maxmin", "fullsort")

OnStep = Callable[[str, str, float], None]
OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class Task:
    """One problem, how to train its critics, and where to look at them.

    Attributes:
        problem: the two distributions.
        hidden: the widths of the hidden layers.
        num_steps: steps of training.
        batch_size: points of each distribution per step.
        lr: the first learning rate.
        points: where values and slopes are recorded, `(..., dim)`.
    """

    problem: Problem
    hidden: tuple[int, ...]
    num_steps: int
    batch_size: int
    lr: float
    points: Tensor


@dataclass(frozen=True)
class CriticRecord:
    """What one activation made of one problem.

    Attributes:
        activation: its name.
        fit: the history and the final estimate.
        values: the critic at the task's points, shifted by the constant that brings it nearest
            to the potential where mass travels: a critic is only known up to a constant.
        slopes: the norm of its gradient there.
        mean_slope: the mean of `slopes` where mass travels. The potential has 1.
        seconds: the time that training took.
    """

    activation: str
    fit: CriticFit
    values: Tensor
    slopes: Tensor
    mean_slope: float
    seconds: float


@dataclass(frozen=True)
class TaskRecord:
    """A task and its critics, in the order of `ACTIVATIONS`."""

    task: Task
    critics: tuple[CriticRecord, ...]


@dataclass(frozen=True, eq=False)
class DigitsRecord:
    """The classifier of digits.

    Attributes:
        run: how it was trained.
        subject: it and its test images.
        certificates: of these.
        radius: what it was trained for.
        attacked: what attacks found.
        seconds: of training, and of proof and attack.
    """

    run: TrainedRun
    subject: Subject
    certificates: Certificates
    radius: float
    attacked: Attacked
    seconds: tuple[float, float]


@dataclass(frozen=True)
class DemoRun:
    """Everything the demonstration found, and how it was run."""

    seed: int
    tasks: tuple[TaskRecord, ...]
    digits: DigitsRecord
    seconds: float
    threads: int
    versions: dict[str, str]


def demo_tasks(quick: bool = False) -> tuple[Task, ...]:
    """The two tasks, three hidden layers as in the paper; `quick` makes them fit for a test."""
    line = torch.linspace(-1.5, 1.5, 300).unsqueeze(-1)
    # Even counts keep the points off the tips of the cones, where no gradient exists.
    plane = torch.stack(
        torch.meshgrid(
            torch.linspace(-3.2, 3.2, 256), torch.linspace(-1.4, 1.4, 112), indexing="xy"
        ),
        dim=-1,
    )
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
    """Trains every activation on every task, and then a classifier of digits.

    Args:
        seed: decides the first weights and the samples; each critic of a task gets the same.
        tasks: by default those of `demo_tasks(quick)`.
        quick: a small classifier, fit for a test.
        on_step: called after each step with the problem's name, the activation and the dual value.
        on_progress: called while the classifier is trained.
    """
    start = time.perf_counter()
    records = []
    for task in tasks or demo_tasks(quick):
        critics = [_train(task, activation, seed, on_step) for activation in ACTIVATIONS]
        records.append(TaskRecord(task, tuple(critics)))
    return DemoRun(
        seed=seed,
        tasks=tuple(records),
        digits=_digits(seed, quick, on_progress),
        seconds=time.perf_counter() - start,
        threads=torch.get_num_threads(),
        versions={
            "taut": version("taut"),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    )


def _digits(seed: int, quick: bool, on_progress: OnProgress | None) -> DigitsRecord:
    start = time.perf_counter()
    hidden, epochs = ((32,), 2) if quick else ((128, 128), 25)
    config = TrainConfig(
        data="digits", radius=0.5, hidden=hidden, epochs=epochs, batch_size=64, seed=seed
    )
    run = train(config, on_progress=on_progress)
    trained = time.perf_counter()
    assert run.config.radius is not None
    subject = subject_of(run, L2)
    part = subject.take(spread_rows(len(subject.examples), 40 if quick else 300))
    steps = 5 if quick else 40
    found = attack(part, (0.25, 0.5, 0.75, 1.0), ("fgs", "pgd"), num_steps=steps, seed=seed)
    record = subject, subject.certify(), run.config.radius, found
    return DigitsRecord(run, *record, (trained - start, time.perf_counter() - trained))


def _train(task: Task, activation: str, seed: int, on_step: OnStep | None) -> CriticRecord:
    start = time.perf_counter()
    # Layers draw their first weights from the global generator: borrow it, and give it back.
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
    values, slopes = values_and_slopes(net, task.points)
    truth = task.problem.potential(task.points)
    # In these problems mass travels between the heights 0 and 1 of the potential.
    travelled = (truth >= 0) & (truth <= 1)
    shift = (truth - values)[travelled].mean()
    mean_slope = slopes[travelled].mean().item()
    return CriticRecord(activation, fit, values + shift, slopes, mean_slope, seconds)
