"""Training of a critic by a plain configuration, and its evaluation on fresh samples."""

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.optim.lr_scheduler import MultiStepLR

from taut.audit import bound_lipschitz
from taut.errors import check_choice
from taut.evaluation import values_and_gradient_norms
from taut.nn import OrthonormalLinear, mlp
from taut.optim import AggMo
from taut.plotting import COLOURS
from taut.transport import Problem, Sampler, bound_difference, bound_mean, fit_critic
from taut_lab.framework.experiment import Config

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class CriticEvaluation:
    """The value of a critic on fresh samples, and a lower bound of the distance."""

    estimate: float
    lower: float
    confidence: float


def evaluate_critic(
    critic: nn.Module, sample: Sampler, *, generator: Generator, num_fresh: int
) -> CriticEvaluation:
    r"""The dual value on fresh samples, and the lower bound of $W_1$ they prove with confidence 95 %.

    A copy in float64 is evaluated and audited, so that rounding does not matter. Values are
    clamped to the range of the critic on a separate sample: clamping is 1-Lipschitz, and the bound
    needs a range that is independent of the samples.

    Args:
        critic: `(n, dim) -> (n, 1)`, with a constant that can be proven.
        sample: sampler of both sides; a side that is a single point may be one row, and its mean is
            then exact.
        generator: random generator.
        num_fresh: number of samples of each side.

    Example:
        >>> from taut.nn import ConeCritic
        >>> from taut.transport import cone
        >>> best = ConeCritic(1, 2).requires_grad_(False)
        >>> best.centres.zero_()
        Parameter containing:
        tensor([[0., 0.]])
        >>> draws = torch.Generator().manual_seed(0)
        >>> evaluation = evaluate_critic(best, cone(2).sample, generator=draws, num_fresh=1000)
        >>> round(evaluation.estimate, 6), evaluation.lower < 1
        (1.0, True)
    """
    exact = deepcopy(critic).double().eval()
    ranged = torch.cat(
        [critic_values(exact, side) for side in sample(max(2, num_fresh // 4), generator)]
    )
    low, high = ranged.min().item(), ranged.max().item()
    points = sample(num_fresh, generator)
    constant = bound_lipschitz(exact, "l2", points[0].shape[1:]).value
    x, y = (critic_values(exact, side) for side in points)
    estimate = (x.mean() - y.mean()).item() / constant
    lower = 0.0
    if high > low:
        x, y = x.clamp(low, high), y.clamp(low, high)
        if len(y) == 1:
            bound = bound_mean(x, low, high, _CONFIDENCE, generator=generator)
            difference = math.nextafter(bound.value - y.item(), -math.inf)
        else:
            difference = bound_difference(x, y, low, high, _CONFIDENCE, generator=generator).value
        lower = max(0.0, difference / constant * (1 - 1e-12))
    return CriticEvaluation(estimate, lower, _CONFIDENCE)


@torch.no_grad()
def critic_values(critic: nn.Module, points: Tensor) -> Tensor:
    """The value of the critic at each point, in its own precision: `(n, dim) -> (n,)`."""
    dtype = next(critic.parameters()).dtype
    return torch.cat([critic(part.to(dtype)).flatten() for part in points.split(8192)])


ACTIVATION_NAMES = {
    "relu": "ReLU",
    "maxout": "Maxout",
    "maxmin": "MaxMin",
    "groupsort4": "GroupSort(4)",
    "fullsort": "FullSort",
}
ACTIVATION_COLOURS = {
    "relu": COLOURS["vermilion"],
    "maxout": COLOURS["orange"],
    "maxmin": COLOURS["blue"],
    "groupsort4": COLOURS["sky"],
    "fullsort": COLOURS["green"],
}

_OPTIMIZERS = {"adam": torch.optim.Adam, "aggmo": AggMo}


@dataclass(frozen=True, eq=False)
class CriticRun:
    """A trained critic, with everything needed to evaluate it."""

    net: nn.Module  # the critic
    history: tuple[float, ...]  # dual value of the batch of each step
    sample: Sampler  # sampler of both distributions
    generator: Generator  # random generator, in its state after training

    def evaluate(self, num_fresh: int) -> CriticEvaluation:
        """Its value on fresh samples of each side, and the lower bound they prove."""
        return evaluate_critic(self.net, self.sample, generator=self.generator, num_fresh=num_fresh)

    def curve(self) -> list[dict[str, float]]:
        """The dual value during training: means over about 40 intervals of equal length."""
        length = max(1, len(self.history) // 40)
        ends = range(length, len(self.history) + 1, length)
        return [
            {"step": end, "objective": round(sum(self.history[end - length : end]) / length, 5)}
            for end in ends
        ]

    def aligned(self, points: Tensor, potential: Tensor) -> tuple[Tensor, float]:
        """The critic at points, shifted by a constant to match the potential.

        A critic is determined up to a constant, and only where mass is transported: where the
        potential is between 0 and 1, in all problems of the paper.

        Args:
            points: `(..., dim)`, none at a kink of the potential.
            potential: the optimal critic at the points, `(...)`.

        Returns:
            The values, `(...)`, and the mean slope where mass is transported, which is at most 1.
        """
        self.net.eval()
        values, slopes = values_and_gradient_norms(self.net, points.to(self.generator.device))
        transported = (potential >= 0) & (potential <= 1)
        values, slopes = values.cpu(), slopes.cpu()
        shift = (potential - values)[transported].mean()
        return values + shift, slopes[transported].mean().item()


def at_point(problem: Problem) -> Sampler:
    """A sampler for problems in which Q is a single point, returned as one row."""
    centre = problem.draw_q(1, Generator())

    def sample(n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        return problem.draw_p(n, generator), centre.to(generator.device)

    return sample


def authors_recipe(
    num_steps: int, epochs: Sequence[int] = (32, 64), lr: float = 0.01, clip: float = 10.0
) -> dict[str, Any]:
    """Training settings of the authors, except for layer sizes.

    The learning rate decays at `epochs`, of which there are assumed to be 100: their number is not
    published.

    Example:
        >>> authors_recipe(3600)["milestones"]
        [1152, 2304]
    """
    return {
        "num_steps": num_steps,
        "batch_size": 32,
        "lr": lr,
        "optimizer": "aggmo",
        "milestones": [num_steps * epoch // 100 for epoch in epochs],
        "clip": clip,
        "constraint": "bjorck",
        "bjorck_steps": 20,
        "device": "auto",
    }


def by_activation(recipe: Config, seeds: int) -> Iterator[Config]:
    """A configuration for each seed and activation, evaluated on 4,096 fresh samples."""
    for seed in range(seeds):
        for activation in ACTIVATION_NAMES:
            yield {"activation": activation, **recipe, "num_fresh": 4096, "seed": seed}


def run_critic(dim: int, sample: Sampler, config: Config) -> CriticRun:
    """Trains the critic of a configuration.

    Args:
        dim: dimension of the points.
        sample: sampler of both distributions.
        config: `seed`, `activation`, `hidden`, `num_steps`, `batch_size`, `lr`; optional, with
            defaults: `constraint` ("orthonormal", by retraction), `bjorck_steps` for "bjorck",
            `optimizer` ("adam"), `milestones` at which the learning rate decays by 0.9 (None: a
            cosine schedule), `clip` for the gradient norm (None) and `device` ("cpu"; "auto" uses
            a GPU if there is one).
    """
    wanted = config.get("device", "cpu")
    check_choice("run_critic", "device", wanted, ("cpu", "auto"))
    device = "cuda" if wanted == "auto" and torch.cuda.is_available() else "cpu"
    generator = Generator(device).manual_seed(config["seed"])
    constraint: Any = config.get("constraint", "orthonormal")
    if constraint == "bjorck" and "bjorck_steps" in config:
        constraint = partial(OrthonormalLinear, method="bjorck", num_steps=config["bjorck_steps"])
    # Layers draw their initial weights from the global generator, which is restored.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config["seed"])
        net = mlp([dim, *config["hidden"], 1], config["activation"], constraint)
    net.to(device)
    optimizer, on_step = _optimizer(net, config)
    fit = fit_critic(
        net,
        sample,
        num_steps=config["num_steps"],
        batch_size=config["batch_size"],
        lr=config["lr"],
        generator=generator,
        optimizer=optimizer,
        num_fresh=1,
        on_step=on_step,
    )
    return CriticRun(net, fit.history, sample, generator)


def _optimizer(net: nn.Module, config: Config) -> tuple[Any, Any]:
    """The optimiser and the callback after each step; None for the defaults of `fit_critic`."""
    milestones = config.get("milestones")
    if milestones is None:
        return None, None
    name = config.get("optimizer", "adam")
    check_choice("run_critic", "optimizer", name, tuple(_OPTIMIZERS))
    optimizer = _OPTIMIZERS[name](net.parameters(), lr=config["lr"])

    def clip(*_: Any) -> None:
        nn.utils.clip_grad_norm_(net.parameters(), config["clip"])

    if config.get("clip") is not None:
        optimizer.register_step_pre_hook(clip)
    schedule = MultiStepLR(optimizer, milestones=list(milestones), gamma=0.9)
    return optimizer, lambda step, dual: schedule.step()
