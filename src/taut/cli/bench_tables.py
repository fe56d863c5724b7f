"""What a benchmark shows: a bar while it runs, a table for each race afterwards."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from taut.bench import Entry, Race, Record, Timing

__all__ = ["measure", "print_record"]


def measure(
    console: "Console", run: Callable[[Callable[[str, str, float], None]], "Record"]
) -> "Record":
    """The record of a run that tells its progress, shown as a bar meanwhile."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(20),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("starting", total=1.0)

        def on_turn(race: str, name: str, done: float) -> None:
            progress.update(bar, completed=done, description=f"{race}: {name}")

        return run(on_turn)


def print_record(console: "Console", record: "Record") -> None:
    """Prints where and when a record was taken, and a table for each race."""
    versions = ", ".join(
        f"{name} {version}" for name, version in record.versions.items() if version
    )
    machine = record.machine
    console.print(versions, soft_wrap=True, highlight=False)
    console.print(
        f"{machine['processor']}, {machine['cores']} cores, one thread used; {record.date}; "
        f"{record.settings['clock']} time; the run took {record.seconds:.0f} s",
        soft_wrap=True,
        highlight=False,
    )
    for line in record.missing:
        console.print(line, soft_wrap=True, highlight=False, markup=False, style="yellow")
    console.print(
        "x plain: ratio of medians. spread: the middle half of the turns over the median. "
        "error: max |σ-1| of the weight after the last step. excess: max σ-1 (above 0: not "
        "1-Lipschitz).",
        highlight=False,
    )
    for race in record.races:
        console.print()
        console.print(_bjorck_table(race) if race.kind == "bjorck" else _race_table(race))
        for entry in race.entries:
            if entry.timing.failure is not None:
                line = f"{entry.timing.name}: {entry.timing.failure}"
                console.print(line, soft_wrap=True, highlight=False, markup=False, style="yellow")


def _race_table(race: "Race") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    judged = race.kind != "activations"
    titles = {
        "dense": "Dense layers, training step: width {width}, batch {batch}",
        "conv": "Convolutions 3 x 3, training step: {in} x {side} x {side} to {out}, batch {batch}",
        "activations": "Activations, forward and backward: {batch} x {width}",
    }
    title = titles[race.kind].format(**race.sizes)
    turns = [entry.timing.rounds for entry in race.entries]
    table = Table(
        title=title,
        title_justify="left",
        caption=f"medians of {max(turns)} turns, {min(turns)} of the slowest",
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    table.add_column("", no_wrap=True)
    for name in ("x plain", "ms", "spread"):
        table.add_column(name, justify="right")
    if judged:
        table.add_column("error", justify="right", no_wrap=True)
        table.add_column("excess", justify="right", no_wrap=True)
    rivals = [e for e in race.entries if e.timing.name != race.baseline and e.timing.median]
    fastest = min(rivals, key=lambda e: e.timing.median or 0.0, default=None)
    truest = min(
        (e for e in rivals if e.error is not None), key=lambda e: e.error or 0.0, default=None
    )
    for entry in race.entries:
        table.add_row(*_cells(race, entry, judged, entry is fastest, entry is truest))
    return table


def _cells(race: "Race", entry: "Entry", judged: bool, fastest: bool, truest: bool) -> list[str]:
    timing = entry.timing
    if timing.median is None or timing.lower_quartile is None or timing.upper_quartile is None:
        return [timing.name, "failed"]
    ratio = race.ratio(timing.name)
    cells = [
        timing.name,
        _bold("-" if ratio is None else f"{ratio:.2f}", fastest),
        _bold(_milliseconds(timing.median), fastest),
        f"{(timing.upper_quartile - timing.lower_quartile) / timing.median:.0%}",
    ]
    if judged and timing.failure is not None:
        cells += ["failed"]
    elif judged:
        cells += [
            _bold("not finite" if entry.error is None else f"{entry.error:.1e}", truest),
            "not finite" if entry.excess is None else f"{entry.excess:+.1e}",
        ]
    return cells


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}" if seconds < 0.1 else f"{1e3 * seconds:.0f}"


def _bold(text: str, best: bool) -> str:
    return f"[bold]{text}[/bold]" if best else text


def _bjorck_table(race: "Race") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from taut.lab.bjorck_runtime import PAPER_SECONDS, full_name, product_name

    size = race.sizes["size"]
    timings = {entry.timing.name: entry.timing for entry in race.entries}
    table = Table(
        title=f"Björck, {size} x {size}, one vector: mean milliseconds",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    columns = (
        "steps",
        "full",
        "products",
        "speed-up",
        "runs",
        "paper: full",
        "products",
        "speed-up",
    )
    for name in columns:
        table.add_column(name, justify="right")
    for k, (paper_full, paper_products) in PAPER_SECONDS.items():
        if full_name(k) in timings:
            table.add_row(
                str(k),
                *_bjorck_cells(timings[full_name(k)], timings[product_name(k)]),
                f"{1e3 * paper_full:.1f}",
                f"{1e3 * paper_products:.1f}",
                f"{paper_full / paper_products:.2f}x",
            )
    return table


def _bjorck_cells(full: "Timing", products: "Timing") -> list[str]:
    if not full.mean or not products.mean:
        return ["-", "-", "-", "-"]
    better = full.mean < products.mean
    return [
        _bold(_milliseconds(full.mean), better),
        _bold(_milliseconds(products.mean), not better),
        f"{full.mean / products.mean:.2f}x",
        f"{full.rounds}, {products.rounds}",
    ]
