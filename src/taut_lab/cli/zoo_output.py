"""Table and chart of the zoo."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from taut.bounds import format_bound
from taut.cli.output import say
from taut.plotting import COLOURS, Figure
from taut.report import percent
from taut_lab.benchmarks.layer_zoo import ZooRecord
from taut_lab.cli.bench_tables import print_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = ("layer", "certified", "clean", "steps", "ms a step", "MB", "rate", "constant")

_DATA = {
    "cifar10-25k": "A 25,000-image part of CIFAR-10",
    "cifar10": "CIFAR-10",
    "mnist": "MNIST",
}
_LIBRARIES = {
    "taut": COLOURS["blue"],
    "deel-torchlip": COLOURS["orange"],
    "orthogonium": COLOURS["vermilion"],
    "torch": COLOURS["black"],
}


def summary(record: ZooRecord) -> str:
    """One line about a layer."""
    return (
        f"{record.layer}: certified {_percent(record.certified, 'lower')}, clean {_percent(record.clean)}, "
        f"constant {_constant(record.lipschitz)}, {record.steps} steps, {record.cpu:.0f} s of CPU "
        f"time, {record.wall:.0f} s wall-clock time"
    )


def print_zoo(records: Sequence[ZooRecord]) -> None:
    """Prints the table of the records, and how they were made."""
    if records:
        print_rows(COLUMNS, list(map(cells, records)))
    say(budget(records) if records else "No records.", "italic")


def cells(record: ZooRecord) -> tuple[str, ...]:
    """The row of a layer under `COLUMNS`."""
    return (
        record.layer,
        _percent(record.certified, "lower"),
        _percent(record.clean),
        str(record.steps),
        f"{1e3 * record.step_cpu:.0f}",
        f"{record.memory / 1e6:.0f}",
        f"{record.rate:g}",
        _constant(record.lipschitz),
    )


def draw_zoo(records: Sequence[ZooRecord]) -> Figure:
    """Certified and clean accuracy of each layer, the best on top."""
    shown = [record for record in records if record.certified is not None][::-1]

    def paint(axes: "Axes") -> None:
        for y, record in enumerate(shown):
            colour = _LIBRARIES[record.layer.split()[0]]
            certified, clean = 100 * (record.certified or 0.0), 100 * record.clean
            axes.plot([certified, clean], [y, y], color=colour, linewidth=1.5, alpha=0.4)
            axes.plot([certified], [y], "o", color=colour)
            axes.plot([clean], [y], "o", color=colour, markerfacecolor="white")
        axes.set_yticks(range(len(shown)), [record.layer for record in shown])
        axes.set_xlabel("test accuracy in percent: certified (filled) and clean (hollow)")
        axes.grid(axis="y", visible=False)
        axes.set_xlim(left=0)

    names = ", ".join(f"{r.layer} {_percent(r.certified, 'lower')}" for r in shown[::-1])
    alt = f"Certified and clean accuracy of {len(shown)} layers. Certified: {names}."
    return Figure(paint, alt, budget(records), size=(7.2, 0.8 + 0.32 * len(shown)))


def budget(records: Sequence[ZooRecord]) -> str:
    """Data, radius and training time of all records, in one sentence."""
    settings = records[0].settings
    radius = "1.58" if settings["data"] == "mnist" else "36/255"
    return (
        f"{_DATA[settings['data']]}, certified at L2 radius {radius}; {settings['minutes']:g} "
        f"minutes of CPU time on one thread for each layer, batch {settings['batch']}, seed "
        f"{settings['seed']}."
    )


def _percent(share: float | None, side: str = "") -> str:
    return "not proven" if share is None else percent(share, side)


def _constant(value: float | None) -> str:
    return "not proven" if value is None else format_bound(value, "upper", 7)
