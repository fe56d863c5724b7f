"""Folding the plane: two square pyramids by three folds and a linear function, exactly."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from taut.audit import bound_lipschitz
from taut.lab.critic_run import values_and_slopes
from taut.lab.exhibit import Entry, Exhibit, ResultTable
from taut.lab.experiment import Config, Experiment, Outcome, Result
from taut.lab.selection import numbers_of, select, values_of
from taut.lattice.affine import as_linear
from taut.nn import Abs
from taut.pictures import COLOURS, Figure

__all__ = ["EXPERIMENT", "folding_network", "pyramids"]

# Where the folds are exact: the first one lifts a coordinate by this much to spare it.
REACH = 4.0
_STEPS = ("the plane", "first fold", "second fold", "third fold")


def pyramids(points: Tensor, angle: float = 0.0) -> Tensor:
    r"""Two square pyramids of slope 1, $1 - (||u| - 1| + |v|)/\sqrt2$, `(..., 2) -> (...)`.

    $(u, v)$ are the coordinates turned by `angle`, in degrees. The tips are at $u = \pm 1$.

    Example:
        >>> pyramids(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])).tolist()
        [1.0, 1.0]
    """
    u, v = (points @ _rotation(angle, points.dtype).mT).unbind(-1)
    return 1 - ((u.abs() - 1).abs() + v.abs()) / math.sqrt(2)


def folding_network(angle: float = 0.0) -> nn.Sequential:
    r"""The same function as a network: rigid maps with absolute values between them.

    Three folds, each of one line: $u = 0$, which lays one pyramid on the other; $v = 0$ and
    $u = 1$, which lay the four faces on one another. One linear function is left.

    Every weight is orthogonal but the last, a row of norm 1. The first fold lifts $v$ by 4, for
    the absolute value acts on all coordinates: equal to `pyramids` where $v \ge -4$.

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
    turn = math.radians(angle)
    rows = [[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]]
    return torch.tensor(rows, dtype=dtype)


def _rigid(weight: Tensor, bias: Sequence[float]) -> nn.Linear:
    return as_linear(weight, torch.tensor(bias, dtype=weight.dtype)).requires_grad_(False)


def _configs(preset: str) -> Iterator[Config]:
    points = {"smoke": 24, "cpu": 400, "paper": 400}[preset]
    for angle in (0.0, 30.0):
        yield {"angle": angle, "points": points, "seed": 0}


def _plane(count: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """`(count, count, 2)`, off the folds for an even count."""
    line = torch.linspace(-2.25, 2.25, count, dtype=dtype)
    return torch.stack(torch.meshgrid(line, line, indexing="xy"), dim=-1)


def _run(config: Config) -> Outcome:
    net, angle = folding_network(config["angle"]), config["angle"]
    plane = _plane(config["points"])
    values, slopes = values_and_slopes(net, plane)
    coarse = _plane(12)
    # A fold is seen behind its absolute value and the rigid map that undoes what came before it.
    seen = [coarse @ _rotation(angle, torch.float64).mT]
    seen += [
        net[:end](coarse) - torch.tensor([0.0, REACH if end == 2 else 0.0]) for end in (2, 4, 6)
    ]
    kept = [[[[round(c, 3) for c in p] for p in row] for row in step.tolist()] for step in seen]
    numbers = {
        "largest_error": (values - pyramids(plane, angle)).abs().max().item(),
        "bound": bound_lipschitz(net, "l2").value,
        "least_slope": slopes.min().item(),
        "largest_slope": slopes.max().item(),
    }
    heights = [[round(v, 3) for v in row] for row in pyramids(_plane(24), angle).tolist()]
    return Outcome(numbers, series={"steps": kept, "heights": heights})


def _show(results: Sequence[Result]) -> Exhibit:
    angles = values_of(results, "angle") or [0.0, 30.0]
    # What should be 0 and what should be 1.
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
            f"turned by {angle:g} degrees": [
                Entry([1e15 * (n - due) for n in numbers_of(results, number, angle=angle)])
                for number, due in columns.values()
            ]
            for angle in angles
        },
        digits=1,
        note="In units of 1e-15: float64, over a grid. The audit proves its constant, rounding of "
        "weights included.",
    )
    figures = {}
    for result in select(results, angle=angles[-1])[:1]:
        series = result.outcome.series
        figures["folding-surface"] = Figure(
            partial(_paint_surface, series["heights"]),
            alt="Surface: two square pyramids side by side.",
            title="What the network computes",
            size=(3.6, 2.8),
            projection="3d",
        )
        for place, name in enumerate(_STEPS):
            figures[f"folding-step-{place}"] = Figure(
                partial(_paint_step, series["steps"][place], series["steps"][0]),
                alt=f"Where a grid of the plane lies: {name}. Colours are heights of the function.",
                title=name.capitalize(),
                size=(2.6, 2.6),
            )
    words = [
        "Each fold is a rigid map, an absolute value and another rigid map; the plane keeps its "
        "distances along the way, and points of equal height come to lie where one linear function "
        "gives all of them theirs. The construction is exact: errors are those of rounding.",
        "Nothing is trained here. The paper shows the picture; the numbers are ours.",
    ]
    return Exhibit([table], figures, words)


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
    label="fig:folding",
    title="Two pyramids by three folds",
    claim="A rigid map, an absolute value and another rigid map fold the plane along any line. "
    "Three folds make a pair of square pyramids a linear function of the last layer.",
    configs=_configs,
    run=_run,
    show=_show,
)
