"""A critic trained on a problem of known distance, as a plain configuration says."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.optim.lr_scheduler import MultiStepLR

from taut.errors import check_choice
from taut.lab.experiment import Config
from taut.lab.verdict import Verdict, judge_critic
from taut.nn import OrthonormalLinear, mlp
from taut.optim import AggMo
from taut.pictures import COLOURS
from taut.wasserstein import Problem, Sampler, fit_critic

__all__ = [
    "ACTIVATION_COLOURS",
    "ACTIVATION_NAMES",
    "CriticRun",
    "at_point",
    "authors_recipe",
    "by_activation",
    "run_critic",
    "values_and_slopes",
]

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
    """A trained critic, and what is needed to judge it.

    Attributes:
        net: the critic.
        history: the dual value on the batch of each step.
        sample: draws of both distributions.
        generator: the source of draws, where training left it.
    """

    net: nn.Module
    history: tuple[float, ...]
    sample: Sampler
    generator: Generator

    def judge(self, num_fresh: int) -> Verdict:
        """Its value on so many fresh points of each side, and the lower bound they prove."""
        return judge_critic(self.net, self.sample, generator=self.generator, num_fresh=num_fresh)

    def curve(self, num_points: int = 40) -> list[dict[str, float]]:
        """The dual value along training: means over stretches of equal length."""
        length = max(1, len(self.history) // num_points)
        ends = range(length, len(self.history) + 1, length)
        return [
            {"step": end, "objective": round(sum(self.history[end - length : end]) / length, 5)}
            for end in ends
        ]

    def aligned(self, points: Tensor, potential: Tensor) -> tuple[Tensor, float]:
        """The critic at points, as near to the potential as a constant brings it.

        A critic is only known up to a constant, and only where mass travels: between the heights
        0 and 1 of the potential in all problems of the paper.

        Args:
            points: `(..., dim)`, none of them where the potential has a kink.
            potential: the best critic there, `(...)`.

        Returns:
            The values, `(...)`, and the mean slope where mass travels, which is 1 at best.
        """
        self.net.eval()
        values, slopes = values_and_slopes(self.net, points.to(self.generator.device))
        travelled = (potential >= 0) & (potential <= 1)
        values, slopes = values.cpu(), slopes.cpu()
        shift = (potential - values)[travelled].mean()
        return values + shift, slopes[travelled].mean().item()


def values_and_slopes(net: nn.Module, points: Tensor) -> tuple[Tensor, Tensor]:
    """The critic and the l2 norm of its gradient, both `(...)` for points `(..., dim)`."""
    flat = points.flatten(0, -2).clone().requires_grad_()
    values = net(flat).squeeze(-1)
    (gradient,) = torch.autograd.grad(values.sum(), flat)
    shape = points.shape[:-1]
    return values.detach().reshape(shape), gradient.norm(dim=-1).reshape(shape)


def at_point(problem: Problem) -> Sampler:
    """Draws of a problem whose Q is one point: one copy of it is all of Q, its mean exact."""
    centre = problem.draw_q(1, Generator())

    def sample(n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        return problem.draw_p(n, generator), centre.to(generator.device)

    return sample


def authors_recipe(
    num_steps: int, epochs: Sequence[int] = (32, 64), lr: float = 0.01, clip: float = 10.0
) -> dict[str, Any]:
    """How the authors trained critics, but for the sizes of their layers.

    The rate falls at `epochs`. How many there were is not published; it is taken to be 100.

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
    """A configuration for each seed and activation, judged on 4,096 fresh points."""
    for seed in range(seeds):
        for activation in ACTIVATION_NAMES:
            yield {"activation": activation, **recipe, "num_fresh": 4096, "seed": seed}


def run_critic(dim: int, sample: Sampler, config: Config) -> CriticRun:
    """Trains the critic of a configuration.

    Args:
        dim: of the points.
        sample: draws of both distributions.
        config: `seed`, `activation`, `hidden`, `num_steps`, `batch_size`, `lr`; and, where they
            are not these, `constraint` ("orthonormal", retracted), `bjorck_steps` for "bjorck",
            `optimizer` ("adam"), `milestones` at which the rate falls to nine tenths (None: it
            falls to zero along a half cosine), `clip` for the gradient's norm (None) and `device`
            ("cpu"; "auto" is a GPU where there is one).
    """
    wanted = config.get("device", "cpu")
    check_choice("run_critic", "device", wanted, ("cpu", "auto"))
    device = "cuda" if wanted == "auto" and torch.cuda.is_available() else "cpu"
    generator = Generator(device).manual_seed(config["seed"])
    # Layers draw their first weights from the global generator: borrow it, and give it back.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config["seed"])
        net = mlp([dim, *config["hidden"], 1], config["activation"], _constraint(config))
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


def _constraint(config: Config) -> Any:
    name = config.get("constraint", "orthonormal")
    if name == "bjorck" and "bjorck_steps" in config:
        return partial(OrthonormalLinear, method="bjorck", num_steps=config["bjorck_steps"])
    return name


def _optimizer(net: nn.Module, config: Config) -> tuple[Any, Any]:
    """The optimiser and what to do after each step; None for what `fit_critic` does by itself."""
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
