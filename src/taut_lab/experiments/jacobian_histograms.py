"""Histograms of the singular values of a network's Jacobians over data."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from taut.evaluation import evenly_spaced_rows, jacobian_singular_values
from taut.pictures import COLOURS, Figure
from taut_lab.framework.experiment import Result
from taut_lab.framework.selection import select

__all__ = ["CONSTANT", "NAMES", "histogram", "shares", "singular_values_at"]

# Lipschitz constant of the networks.
CONSTANT = 10.0
NAMES = {"relu": "ReLU", "maxmin": "GroupSort (MaxMin)"}
_LOOK = {"relu": COLOURS["orange"], "maxmin": COLOURS["blue"]}
_BINS = 100


def singular_values_at(model: nn.Module, inputs: Tensor, count: int) -> Tensor:
    """Singular values at `count` evenly spaced inputs, `(count, outputs)`."""
    part = inputs[evenly_spaced_rows(len(inputs), count)]
    return torch.cat([jacobian_singular_values(model, x) for x in part.split(1000)])


def shares(values: Tensor) -> list[float]:
    """Fraction of the values in each bin of [0, K]."""
    counts = torch.histc(values.flatten().clamp(max=CONSTANT), _BINS, 0.0, CONSTANT)
    return [round(share, 6) for share in (counts / values.numel()).tolist()]


def histogram(results: Sequence[Result], series: str, label: str, **look: Any) -> Figure:
    """Overlaid histograms of both activations, from the series of results.

    Args:
        results: results with the field "activation" in their configurations.
        series: name of the series of fractions.
        label: label of the values.
        **look: fields of the figure to override.
    """

    def paint(axes: Any) -> None:
        ends = [CONSTANT * place / _BINS for place in range(_BINS + 1)]
        for activation, name in NAMES.items():
            held = [r.outcome.series[series] for r in select(results, activation=activation)]
            if held:
                sums = [sum(column) for column in zip(*held, strict=True)]
                # Each scaled to its own peak, so that both are visible.
                heights = [share / max(sums) for share in sums]
                axes.stairs(
                    heights, ends, fill=True, alpha=0.75, color=_LOOK[activation], label=name
                )
        axes.axvline(CONSTANT, color="#777777", linewidth=1, linestyle=":")
        axes.set(xlim=(0, CONSTANT * 1.03), xlabel=label, ylabel="frequency / peak")
        # Above the axes, where it hides no values.
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)

    shown: dict[str, Any] = {
        "alt": f"Histogram of the {label}, for a ReLU and a GroupSort network with constant 10.",
        "caption": "The dotted line is the Lipschitz constant of both networks.",
        "title": label[0].upper() + label[1:],
        **look,
    }
    return Figure(paint, **shown)
