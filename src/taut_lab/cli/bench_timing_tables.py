"""Progress bar and tables of the timing benchmarks."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from taut_lab.benchmarks import Comparison, TimingEntry, TimingRecord
    from taut_lab.framework.timing import Timing

__all__ = ["benchmark_bar", "print_record", "run_with_progress"]


def benchmark_bar(console: "Console") -> "Progress":
    """A progress bar with the percentage, the elapsed time and a description."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(20),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    return Progress(*columns, console=console, transient=True)


def run_with_progress(
    console: "Console", run: Callable[[Callable[[str, str, float], None]], "TimingRecord"]
) -> "TimingRecord":
    """The record of a benchmark, with a progress bar while it runs."""
    with benchmark_bar(console) as progress:
        bar = progress.add_task("starting", total=1.0)

        def on_run(comparison: str, name: str, done: float) -> None:
            progress.update(bar, completed=done, description=f"{comparison}: {name}")

        return run(on_run)


def print_record(console: "Console", record: "TimingRecord") -> None:
    """Prints the provenance of a record, and a table for each comparison."""
    versions = ", ".join(
        f"{name} {version}" for name, version in record.versions.items() if version
    )
    machine = record.machine
    console.print(versions, soft_wrap=True, highlight=False)
    console.print(
        f"{machine['processor']}, {machine['cores']} cores, one thread used; {record.date}; "
        f"{record.settings['clock']} time; took {record.seconds:.0f} s",
        soft_wrap=True,
        highlight=False,
    )
    for line in record.missing:
        console.print(line, soft_wrap=True, highlight=False, markup=False, style="yellow")
    console.print(
        "x plain: ratio of medians. spread: interquartile range over the median. "
        "error: max |σ-1| of the weight after the last step. excess: max σ-1 (above 0: not "
        "1-Lipschitz).",
        highlight=False,
    )
    for comparison in record.comparisons:
        console.print()
        console.print(
            _bjorck_table(comparison)
            if comparison.kind == "bjorck"
            else _comparison_table(comparison)
        )
        for entry in comparison.entries:
            if entry.timing.failure is not None:
                line = f"{entry.timing.name}: {entry.timing.failure}"
                console.print(line, soft_wrap=True, highlight=False, markup=False, style="yellow")


def _comparison_table(comparison: "Comparison") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    with_errors = comparison.kind != "activations"
    titles = {
        "dense": "Dense layers, training step: width {width}, batch {batch}",
        "conv": "Convolutions 3 x 3, training step: {in} x {side} x {side} to {out}, batch {batch}",
        "activations": "Activations, forward and backward: {batch} x {width}",
    }
    title = titles[comparison.kind].format(**comparison.sizes)
    runs = [entry.timing.rounds for entry in comparison.entries]
    table = Table(
        title=title,
        title_justify="left",
        caption=f"medians of {max(runs)} runs, {min(runs)} of the slowest",
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    table.add_column("", no_wrap=True)
    for name in ("x plain", "ms", "spread"):
        table.add_column(name, justify="right")
    if with_errors:
        table.add_column("error", justify="right", no_wrap=True)
        table.add_column("excess", justify="right", no_wrap=True)
    others = [
        e for e in comparison.entries if e.timing.name != comparison.baseline and e.timing.median
    ]
    fastest = min(others, key=lambda e: e.timing.median or 0.0, default=None)
    most_accurate = min(
        (e for e in others if e.error is not None), key=lambda e: e.error or 0.0, default=None
    )
    for entry in comparison.entries:
        table.add_row(
            *_cells(comparison, entry, with_errors, entry is fastest, entry is most_accurate)
        )
    return table


def _cells(
    comparison: "Comparison",
    entry: "TimingEntry",
    with_errors: bool,
    fastest: bool,
    most_accurate: bool,
) -> list[str]:
    timing = entry.timing
    if timing.median is None or timing.lower_quartile is None or timing.upper_quartile is None:
        return [timing.name, "failed"]
    ratio = comparison.ratio(timing.name)
    cells = [
        timing.name,
        _bold("-" if ratio is None else f"{ratio:.2f}", fastest),
        _bold(_milliseconds(timing.median), fastest),
        f"{(timing.upper_quartile - timing.lower_quartile) / timing.median:.0%}",
    ]
    if with_errors and timing.failure is not None:
        cells += ["failed"]
    elif with_errors:
        cells += [
            _bold("not finite" if entry.error is None else f"{entry.error:.1e}", most_accurate),
            "not finite" if entry.excess is None else f"{entry.excess:+.1e}",
        ]
    return cells


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}" if seconds < 0.1 else f"{1e3 * seconds:.0f}"


def _bold(text: str, best: bool) -> str:
    return f"[bold]{text}[/bold]" if best else text


def _bjorck_table(comparison: "Comparison") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from taut_lab.experiments.bjorck_runtime import PAPER_SECONDS, full_name, product_name

    size = comparison.sizes["size"]
    timings = {entry.timing.name: entry.timing for entry in comparison.entries}
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
