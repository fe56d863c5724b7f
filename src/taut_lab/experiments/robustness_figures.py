"""Tables and figures of adversarial robustness, with the paper's numbers."""

from collections.abc import Sequence
from typing import Any

from taut.plotting import COLOURS, Figure
from taut_lab.framework import Result, ResultTable
from taut_lab.framework.result_selection import tabulate

_COLUMNS = {
    "clean": "clean_error",
    "FGS 0.1": "fgs_0.1",
    "FGS 0.3": "fgs_0.3",
    "PGD 0.1": "pgd_0.1",
    "PGD 0.3": "pgd_0.3",
}
_PAPER = {
    "Standard ReLU": (1.6, 98.3, 100.0, 100.0, 100.0),
    "Standard MaxMin": (1.5, 98.2, 100.0, 100.0, 100.0),
    "Margin-0.1 ReLU": (6.2, 88.3, 100.0, 89.7, 100.0),
    "Margin-0.1 MaxMin": (1.9, 36.3, 99.2, 44.4, 99.8),
    "Margin-0.3 ReLU": (16.9, 70.1, 100.0, 70.3, 100.0),
    "Margin-0.3 MaxMin": (5.3, 20.5, 62.2, 24.4, 77.7),
    "PGD 0.1": (1.02, 8.6, 74.4, 17.9, 100.0),
    "PGD 0.15": (1.36, 8.1, 52.9, 15.1, 99.7),
}
_COLOURS = {"Standard": "black", "Margin-0.1": "sky", "Margin-0.3": "vermilion", "PGD": "green"}
_COLOURS |= {"Distance": "blue", "Interval": "orange"}


def error_table(results: Sequence[Result], rows: Sequence[str]) -> ResultTable:
    """Errors with and without attack, in the layout of the paper."""
    return tabulate(
        results,
        "Errors under attack in L-inf",
        {row: {"row": row} for row in rows},
        _COLUMNS,
        paper=_PAPER,
        better="lower",
        digits=1,
        unit="%",
        note="Clean errors are over all test examples, the others over the attacked examples.",
    )


def proof_table(results: Sequence[Result], rows: Sequence[str]) -> ResultTable:
    """Certified accuracy, compared with the accuracy by the paper's rules."""
    rules = {"proven": "proven", "figure_rule": "paper's K eps", "text_rule": "paper's K eps / 2"}
    return tabulate(
        results,
        "Certified accuracy, and accuracy by the paper's rules",
        {row: {"row": row} for row in rows},
        {
            f"{title}, {radius}": f"{rule}_{radius}"
            for radius in ("0.05", "0.1", "0.3")
            for rule, title in rules.items()
        },
        better="higher",
        digits=1,
        unit="%",
        note="The paper shows its bounds without numbers; the radii by its rules are too large.",
    )


def attacked_figure(results: Sequence[Result], rows: Sequence[str]) -> Figure:
    """Accuracy on PGD examples against the radius."""

    def paint(axes: Any) -> None:
        for row in rows:
            radii, shares = _mean_series(results, row, "radii", "pgd")
            _, clean = _mean_series(results, row, "radii", "attacked_clean")
            axes.plot([0, *radii], [*clean, *shares], label=row, marker="o", ms=3, **_look(row))
        _finish(axes, "radius of the attack")

    return Figure(
        paint,
        alt="Accuracy on PGD examples against their radius, a line for each network.",
        caption="Accuracy on PGD examples. Solid: MaxMin; dashed: ReLU.",
        title="Accuracy under attack",
        size=(4.6, 3.6),
    )


def proven_figure(results: Sequence[Result], rows: Sequence[str]) -> Figure:
    """Certified accuracy against the radius; thin lines by the rule of the paper's figure."""

    def paint(axes: Any) -> None:
        for row in rows:
            reach, shares = _mean_series(results, row, "reach", "proven")
            axes.plot(reach, shares, label=row, **_look(row))
            if row.startswith("Margin"):
                _, claimed = _mean_series(results, row, "reach", "figure_rule")
                axes.plot(reach, claimed, **{**_look(row), "linewidth": 0.8, "alpha": 0.7})
        axes.plot([], [], color="#777777", linewidth=0.8, label="thin: paper's rule")
        _finish(axes, "radius")

    return Figure(
        paint,
        alt="Certified accuracy against the radius, and the larger values by the paper's rule.",
        caption=(
            "Thick: certified. Thin: margins above K eps, as in the paper, which certify half of "
            "that radius. Solid: MaxMin; dashed: ReLU."
        ),
        title="Certified accuracy",
        size=(4.6, 3.6),
    )


def _finish(axes: Any, xlabel: str) -> None:
    axes.set(xlabel=xlabel, ylabel="accuracy, %", ylim=(0, 102))
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def _look(row: str) -> dict[str, Any]:
    kind, _, activation = row.partition(" ")
    colour = "purple" if row == "PGD 0.15" else _COLOURS[kind]
    return {
        "color": COLOURS[colour],
        "linestyle": (0, (4, 2)) if activation == "ReLU" else "-",
    }


def _mean_series(
    results: Sequence[Result], row: str, at: str, name: str
) -> tuple[list[float], list[float]]:
    """Positions, and the mean over seeds in percent."""
    series = [r.outcome.series for r in results if r.config["row"] == row]
    lists = [s[name] if isinstance(s[name], list) else [s[name]] for s in series]
    means = [100 * sum(column) / len(column) for column in zip(*lists, strict=True)]
    return list(series[0][at]), means
