"""How much of its constant a network uses: singular values of Jacobians over the training data."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from taut.lab.classifiers import PLAIN, train_classifier, training_curve
from taut.lab.exhibit import Entry, Exhibit, ResultTable
from taut.lab.experiment import Config, Experiment, Outcome, Result
from taut.lab.robustness import spread_rows
from taut.lab.selection import numbers_of
from taut.pictures import COLOURS, Figure

__all__ = ["EXPERIMENT"]

_CONSTANT = 10.0
_BINS = 100
_NAMES = {"relu": "ReLU", "maxmin": "GroupSort (MaxMin)"}
_LOOK = {"relu": COLOURS["orange"], "maxmin": COLOURS["blue"]}
_SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"data": "digits", "hidden": [32, 32], "epochs": 3, "batch_size": 64, "rows": 100},
    "cpu": {"data": "mnist", "hidden": [256] * 3, "epochs": 3, "batch_size": 256, "rows": 2000},
    "paper": {
        "data": "mnist",
        "hidden": [1024] * 3,
        "epochs": 200,
        "batch_size": 128,
        "rows": 54_000,
    },
}


def _configs(preset: str) -> Iterable[Config]:
    for seed in (0, 1, 2) if preset == "paper" else (0,):
        for activation in _NAMES:
            yield {**_SIZES[preset], "activation": activation, "seed": seed}


def _run(config: Config) -> Outcome:
    settings = dict(config)
    rows = settings.pop("rows")
    fixed = {"constraint": "orthonormal", "lipschitz": _CONSTANT, "lr": 1e-3}
    run = train_classifier({**PLAIN, **fixed, **settings})
    seen = run.data().train.inputs
    part = seen[spread_rows(len(seen), rows)]
    values = torch.cat([jacobian_singular_values(run.model, x) for x in part.split(1000)])
    norms = values[:, 0]
    return Outcome(
        numbers={
            "mean": norms.mean().item(),
            "median": norms.median().item(),
            "largest": norms.max().item(),
            "smallest": norms.min().item(),
            "mean_singular_value": values.mean().item(),
            "error": 1 - run.result["clean"],
            "lipschitz": run.result["lipschitz"],
        },
        curve=training_curve(run),
        series={"norms": _shares(norms), "singular_values": _shares(values)},
    )


def jacobian_singular_values(model: nn.Module, x: Tensor) -> Tensor:
    """The singular values of the Jacobian at each input, falling, `(n, outputs)`; computed.

    Example:
        >>> jacobian_singular_values(torch.nn.Identity(), torch.ones(2, 3))
        tensor([[1., 1., 1.],
                [1., 1., 1.]])
    """
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        columns = model(x).reshape(len(x), -1).unbind(1)
        rows = [torch.autograd.grad(c.sum(), x, retain_graph=True)[0] for c in columns]
    return torch.linalg.svdvals(torch.stack([row.flatten(1) for row in rows], 1))


def _shares(values: Tensor) -> list[float]:
    """The share of values in each of the bins that divide [0, K]."""
    counts = torch.histc(values.flatten().clamp(max=_CONSTANT), _BINS, 0.0, _CONSTANT)
    return [round(share, 6) for share in (counts / values.numel()).tolist()]


def _show(results: Sequence[Result]) -> Exhibit:
    columns = {
        "mean": "mean",
        "median": "median",
        "smallest": "smallest",
        "largest": "largest",
        "mean_singular_value": "mean of all singular values",
    }
    table = ResultTable(
        title="Spectral norm of the Jacobian on training inputs; the constant is 10",
        columns=list(columns.values()),
        rows={
            title: [
                Entry(
                    numbers_of(results, number, activation=name),
                    # "Closer to 8 than 10": the one figure that the text gives.
                    8.0 if (number, name) == ("largest", "relu") else None,
                )
                for number in columns
            ]
            for name, title in _NAMES.items()
        },
        digits=2,
        note='The paper draws a histogram; of the ReLU network it says "closer to 8 than 10".',
    )
    if not results:
        return Exhibit([table])
    figures = {
        "jacobian-norms": _histogram(results, "norms", "spectral norm of the Jacobian"),
        "jacobian-singular-values": _histogram(
            results, "singular_values", "singular values of the Jacobian"
        ),
    }
    return Exhibit([table], figures, _words(results))


def _histogram(results: Sequence[Result], series: str, label: str) -> Figure:
    def paint(axes: Any) -> None:
        ends = [_CONSTANT * bin / _BINS for bin in range(_BINS + 1)]
        for name, title in _NAMES.items():
            held = [r.outcome.series[series] for r in results if r.config["activation"] == name]
            if held:
                shares = [sum(bin) for bin in zip(*held, strict=True)]
                look = {"color": _LOOK[name], "label": title}
                # Each in units of its own peak, or a spike would leave nothing to see of the rest.
                heights = [share / max(shares) for share in shares]
                axes.stairs(heights, ends, fill=True, alpha=0.75, **look)
        axes.axvline(_CONSTANT, color="#777777", linewidth=1, linestyle=":")
        axes.set_xlim(0, _CONSTANT * 1.03)
        axes.set_xlabel(label)
        axes.set_ylabel("frequency, of its peak")
        # Above, for the values of a network can be anywhere below its constant.
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)

    return Figure(
        paint,
        alt=f"Histogram of the {label}, for a ReLU and a GroupSort network of constant 10.",
        caption="The dotted line is the constant that both may use.",
        title=label[0].upper() + label[1:],
    )


def _words(results: Sequence[Result]) -> list[str]:
    means = {name: Entry(numbers_of(results, "mean", activation=name)).mean for name in _NAMES}
    relu, maxmin = means["relu"], means["maxmin"]
    if relu is None or maxmin is None:
        return []
    return [
        f"Of a constant of 10 the GroupSort network uses {maxmin:.2f} on average, the ReLU "
        f"network {relu:.2f}. Both are proven to stay within it."
    ]


EXPERIMENT = Experiment(
    name="jacobian-norms",
    label="hist_and_stat, left; fig:all_sn_hist",
    title="How much of its constant a network uses",
    claim=(
        "Of two classifiers with orthonormal layers and constant 10, the GroupSort one has "
        "Jacobians of norm near 10 on the training data, nearly isometric ones even; the ReLU one "
        "cannot use its constant and stays nearer to 8."
    ),
    configs=_configs,
    run=_run,
    show=_show,
    needs=("mnist",),
)
