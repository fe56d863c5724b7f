"""Singular values of a network's Jacobians over data: computed, counted, and drawn."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from taut.lab.experiment import Result
from taut.lab.jacobians import jacobian_singular_values
from taut.lab.robustness import spread_rows
from taut.lab.selection import select
from taut.pictures import COLOURS, Figure

__all__ = ["CONSTANT", "NAMES", "histogram", "shares", "spread_values"]

# Of every network whose values are counted here.
CONSTANT = 10.0
NAMES = {"relu": "ReLU", "maxmin": "GroupSort (MaxMin)"}
_LOOK = {"relu": COLOURS["orange"], "maxmin": COLOURS["blue"]}
_BINS = 100


def spread_values(model: nn.Module, inputs: Tensor, count: int) -> Tensor:
    """The singular values at so many of the inputs, spread evenly over them, `(count, outputs)`."""
    part = inputs[spread_rows(len(inputs), count)]
    return torch.cat([jacobian_singular_values(model, x) for x in part.split(1000)])


def shares(values: Tensor) -> list[float]:
    """The share of values in each of the bins that divide [0, K]."""
    counts = torch.histc(values.flatten().clamp(max=CONSTANT), _BINS, 0.0, CONSTANT)
    return [round(share, 6) for share in (counts / values.numel()).tolist()]


def histogram(results: Sequence[Result], series: str, label: str, **look: Any) -> Figure:
    """The shares that results hold under `series`, of the two activations over each other.

    Args:
        results: with the field "activation" in their configurations.
        series: the name of the shares.
        label: what is counted.
        **look: fields of the figure that are to be others.
    """

    def paint(axes: Any) -> None:
        ends = [CONSTANT * place / _BINS for place in range(_BINS + 1)]
        for activation, name in NAMES.items():
            held = [r.outcome.series[series] for r in select(results, activation=activation)]
            if held:
                sums = [sum(column) for column in zip(*held, strict=True)]
                # Each in units of its own peak, or a spike would leave nothing to see of the rest.
                heights = [share / max(sums) for share in sums]
                axes.stairs(
                    heights, ends, fill=True, alpha=0.75, color=_LOOK[activation], label=name
                )
        axes.axvline(CONSTANT, color="#777777", linewidth=1, linestyle=":")
        axes.set(xlim=(0, CONSTANT * 1.03), xlabel=label, ylabel="frequency, of its peak")
        # Above, for the values of a network can be anywhere below its constant.
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)

    shown: dict[str, Any] = {
        "alt": f"Histogram of the {label}, for a ReLU and a GroupSort network of constant 10.",
        "caption": "The dotted line is the constant that both may use.",
        "title": label[0].upper() + label[1:],
        **look,
    }
    return Figure(paint, **shown)
