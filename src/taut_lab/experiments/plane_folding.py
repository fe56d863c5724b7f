"""Folding the plane: two square pyramids as three folds and a linear function, exactly."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from taut.audit import bound_lipschitz
from taut.evaluation import values_and_gradient_norms
from taut.lattice.affine_maps import as_linear
from taut.nn import Abs
from taut.plotting import COLOURS, Figure
from taut_lab.framework import (
    Check,
    Config,
    Experiment,
    Outcome,
    Presentation,
    Result,
    ResultTable,
    TableEntry,
)
from taut_lab.framework.result_selection import numbers_of, select, values_of

# The folds are exact within this distance, by which the first one shifts a coordinate.
REACH = 4.0
_STEPS = ("the plane", "first fold", "second fold", "third fold")


def pyramids(points: Tensor, angle: float = 0.0) -> Tensor:
    r"""Two square pyramids of slope 1, $1 - (||u| - 1| + |v|)/\sqrt2$, `(..., 2) -> (...)`.

    $(u, v)$ are the coordinates rotated by `angle`, in degrees. The tips are at $u = \pm 1$.

    Example:
        >>> pyramids(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])).tolist()
        [1.0, 1.0]
    """
    u, v = (points @ _rotation(angle, points.dtype).mT).unbind(-1)
    return 1 - ((u.abs() - 1).abs() + v.abs()) / math.sqrt(2)


def folding_network(angle: float = 0.0) -> nn.Sequential:
    r"""The same function as a network: rigid maps with absolute values between them.

    Three folds, each along one line: $u = 0$ maps one pyramid onto the other; $v = 0$ and $u = 1$
    map the four faces onto one, on which the function is linear.

    All weights are orthogonal, except the last, a row of norm 1. The first fold shifts $v$ by 4,
    since the absolute value acts on all coordinates: equal to `pyramids` where $v \ge -4$.

    Returns:
        `(n, 2) -> (n, 1)`, in float64.
    """
    eye = torch.eye(2, dtype=torch.float64)
    last = torch.full((1, 2), -math.sqrt(0.5), dtype=torch.float64)
    return nn.Sequential(
        _rigid(_rotation(angle, torch.float64), [0.0, REACH]),
        Abs(),
        _rigid(eye, [0.0, -REACH]),
        Abs(),
        _rigid(eye, [-1.0, 0.0]),
        Abs(),
        _rigid(last, [1.0]),
    )


def _rotation(angle: float, dtype: torch.dtype) -> Tensor:
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    return torch.tensor([[cos, sin], [-sin, cos]], dtype=dtype)


def _rigid(weight: Tensor, bias: Sequence[float]) -> nn.Linear:
    return as_linear(weight, torch.tensor(bias, dtype=weight.dtype)).requires_grad_(False)


def _configs(preset: str) -> Iterator[Config]:
    points = {"smoke": 24, "cpu": 400, "paper": 400}[preset]
    for angle in (0.0, 30.0):
        yield {"angle": angle, "points": points, "seed": 0}


def _plane(count: int) -> Tensor:
    """A grid, `(count, count, 2)`; for an even count it avoids the folds."""
    line = torch.linspace(-2.25, 2.25, count, dtype=torch.float64)
    return torch.stack(torch.meshgrid(line, line, indexing="xy"), dim=-1)


def _run(config: Config) -> Outcome:
    net, angle = folding_network(config["angle"]), config["angle"]
    plane = _plane(config["points"])
    values, slopes = values_and_gradient_norms(net, plane)
    coarse = _plane(12)
    # A fold is shown after its absolute value, with the shift before it undone.
    points = [coarse @ _rotation(angle, torch.float64).mT]
    points += [
        net[:end](coarse) - torch.tensor([0.0, REACH if end == 2 else 0.0]) for end in (2, 4, 6)
    ]
    rounded = [
        [[[round(c, 3) for c in p] for p in row] for row in step.tolist()] for step in points
    ]
    numbers = {
        "largest_error": (values - pyramids(plane, angle)).abs().max().item(),
        "bound": bound_lipschitz(net, "l2").value,
        "least_slope": slopes.min().item(),
        "largest_slope": slopes.max().item(),
    }
    heights = [[round(v, 3) for v in row] for row in pyramids(_plane(24), angle).tolist()]
    return Outcome(numbers, series={"steps": rounded, "heights": heights})


def _checks(results: Sequence[Result]) -> list[Check]:
    def numbers(number: str) -> dict[str, list[float]]:
        return {f"{a:g} degrees": numbers_of(results, number, angle=a) for a in (0.0, 30.0)}

    errors = {name: (1e-12, values) for name, values in numbers("largest_error").items()}
    constants = {name: (1 + 1e-12, values) for name, values in numbers("bound").items()}
    slopes = {name: (values, 1 - 1e-12) for name, values in numbers("least_slope").items()}
    return [
        Check("the network equals the pyramids", errors),
        Check("its constant is 1", constants),
        Check("its slope is 1 everywhere", slopes),
    ]


def _show(results: Sequence[Result]) -> Presentation:
    angles = values_of(results, "angle") or [0.0, 30.0]
    # Number, and the exact value.
    columns = {
        "largest error": ("largest_error", 0.0),
        "audited constant - 1": ("bound", 1.0),
        "least slope - 1": ("least_slope", 1.0),
        "largest slope - 1": ("largest_slope", 1.0),
    }
    table = ResultTable(
        "Three folds against the formula of two pyramids",
        list(columns),
        {
            f"rotated by {angle:g} degrees": [
                TableEntry([1e15 * (n - due) for n in numbers_of(results, number, angle=angle)])
                for number, due in columns.values()
            ]
            for angle in angles
        },
        digits=1,
        note="In units of 1e-15: float64, over a grid. The audited constant is proven, including the "
        "rounding of weights.",
    )
    figures = {}
    for result in select(results, angle=angles[-1])[:1]:
        series = result.outcome.series
        figures["folding-surface"] = Figure(
            partial(_paint_surface, series["heights"]),
            alt="Surface: two square pyramids side by side.",
            title="The function of the network",
            size=(3.6, 2.8),
            projection="3d",
        )
        for index, name in enumerate(_STEPS):
            figures[f"folding-step-{index}"] = Figure(
                partial(_paint_step, series["steps"][index], series["steps"][0]),
                alt=f"Positions of a grid of points: {name}. Colours are values of the function.",
                title=name.capitalize(),
                size=(2.6, 2.6),
            )
    paragraphs = [
        "Each fold is a rigid map, an absolute value and another rigid map. After the folds, the "
        "function is linear. The construction is exact up to rounding.",
        "Nothing is trained. The paper shows the figure; the numbers are ours.",
    ]
    return Presentation([table], figures, paragraphs)


def _paint_surface(heights: Sequence[Sequence[float]], axes: Any) -> None:
    plane = _plane(len(heights)).numpy()
    field = torch.tensor(heights).numpy()
    axes.plot_surface(
        plane[..., 0], plane[..., 1], field, cmap="viridis", rcount=24, ccount=24, linewidth=0
    )
    axes.set_box_aspect((1, 1, 0.6), zoom=1.2)
    axes.view_init(elev=58, azim=-40)
    axes.set_axis_off()


def _paint_step(points: Any, start: Any, axes: Any) -> None:
    at, first = torch.tensor(points).flatten(0, 1), torch.tensor(start).flatten(0, 1)
    heights = pyramids(first)
    order = heights.argsort()
    axes.scatter(*at[order].mT, c=heights[order], cmap="viridis", s=22, linewidth=0)
    axes.axhline(0, color=COLOURS["black"], linewidth=0.8)
    axes.axvline(0, color=COLOURS["black"], linewidth=0.8)
    axes.set(xlim=(-3.3, 3.3), ylim=(-3.3, 3.3), aspect="equal")


EXPERIMENT = Experiment(
    name="folding",
    label="Figure 2",
    title="Two pyramids as three folds",
    claim="A rigid map, an absolute value and another rigid map fold the plane along any line, so that "
    "three folds and a linear function are a pair of square pyramids.",
    configs=_configs,
    run=_run,
    show=_show,
    checks=_checks,
)
