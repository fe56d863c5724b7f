"""Tables of the benchmarks."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from taut.bounds import format_bound
from taut.cli.output import print_table, say
from taut_lab.benchmarks import Comparison, TimingEntry, TimingRecord
from taut_lab.benchmarks.critic_records import CriticRecords, CriticResult
from taut_lab.benchmarks.drift_detectors import DriftRecord
from taut_lab.experiments.bjorck_runtime import PAPER_SECONDS, full_name, product_name
from taut_lab.experiments.cone_dimensions import PAPER_VALUES
from taut_lab.framework.timing import Timing

Row = Sequence[RenderableType]
# Title, header, rows and remark below them.
Section = tuple[str, Sequence[str], Sequence[Row], str]

_TITLES = {
    "dense": "Dense layers, small steps: width {width}, batch {batch}",
    "networks": "Training step of 784-{width}-{width}-{width}-10: batch {batch}, Adam at {rate:g}",
    "conv": "Convolutions 3 x 3, training step: {in} x {side} x {side} to {out}, batch {batch}",
    "activations": "Activations, forward and backward: {batch} x {width}",
    "distances": "Distances, forward and backward: {batch} points to {width} of length {width} (kernels "
    "were compiled in {seconds} s)",
}


def print_drift_record(record: DriftRecord) -> None:
    """Prints a table of detectors."""
    settings, pairs = record.settings, record.settings.pairs
    say(
        f"False alarms and shifts found, of {pairs} pairs each: {settings.rows} + {settings.rows} rows, "
        f"{settings.dim} columns; shift {settings.shift:g} of one "
        f"column. Time and memory of a large pair: {settings.large_rows} + {settings.large_rows} rows. "
        f"{record.date}. emd2: 19 permutations; sliced: 99; MMDDrift: 100; ks_2samp: each column, "
        "Bonferroni; its answer is the largest distance of a column. evidently tests each column at the "
        "level 0.05; by default it reports drift if half of the columns drift. ADWIN: each column, delta "
        "0.05 / columns.",
    )
    rows = []
    for one in record.results:
        cells = [str(one.false_alarms), str(one.found)]
        cells += [_number(answer, 3) for answer in one.answers]
        cells += [f"{one.seconds:.3f}", _number(one.large_answer, 3), f"{one.large_seconds:.2f}"]
        rows.append([one.name, *cells, f"{one.large_megabytes:.0f}"])
    print_rows(["detector", "false", "found", "none", "shift", "s", "large", "s", "MB"], rows)


def print_timing_record(record: TimingRecord) -> None:
    """Prints the provenance of a record, and a table for each comparison."""
    machine = record.machine
    versions = [f"{name} {version}" for name, version in record.versions.items() if version]
    say(", ".join(versions))
    say(
        f"{machine['processor']}, {machine['cores']} cores, one thread used; {record.date}; "
        f"{record.settings['clock']} time; took {record.seconds:.0f} s",
    )
    for line in record.missing:
        say(line, "yellow")
    say(
        "x plain: ratio of medians. spread: interquartile range over the median. "
        "error: max |σ-1| of the weight after the last step. excess: max σ-1 (above 0: not "
        "1-Lipschitz).",
    )
    for comparison in record.comparisons:
        bjorck = comparison.kind == "bjorck"
        _print(*(_bjorck_table(comparison) if bjorck else _comparison_table(comparison)))
        for entry in comparison.entries:
            if entry.timing.failure is not None:
                say(f"{entry.timing.name}: {entry.timing.failure}", "yellow")


def print_critic_records(records: CriticRecords) -> None:
    """Prints the tables of every part that has results."""
    header = records.header
    say(
        f"{header['machine']['processor']}, one thread; torch {header['versions']['torch']}; "
        f"started {header['date']}; settings {header['settings']}",
    )
    makers = {
        "table1": _paper_table,
        "funnels": _funnels_tables,
        "grid": _funnels_tables,
        "coverage": _coverage_table,
        "real": _real_table,
    }
    for part, make in makers.items():
        results = [result for result in records.results.values() if result.part == part]
        for section in make(results) if results else ():
            _print(*section)


def _print(title: str, header: Sequence[str], rows: Sequence[Row], remark: str) -> None:
    say(f"\n{title}", "bold")
    print_rows(header, rows)
    if remark:
        say(remark, "italic")


def print_rows(header: Sequence[str], rows: Sequence[Row]) -> None:
    """Prints a table in which names may wrap, and numbers may not."""
    print_table(header, rows, whole=range(1, len(header)))


def _comparison_table(comparison: Comparison) -> Section:
    with_errors = comparison.kind not in ("activations", "distances")
    header = ["", "x plain", "ms", "spread", *(("error", "excess") if with_errors else ())]
    others = [
        e for e in comparison.entries if e.timing.name != comparison.baseline and e.timing.median
    ]
    fastest = min(others, key=lambda e: e.timing.median or 0.0, default=None)
    measured = [e for e in others if e.error is not None]
    most_accurate = min(measured, key=lambda e: e.error or 0.0, default=None)
    rows = []
    for entry in comparison.entries:
        cells = _timing_cells(comparison, entry, entry is fastest)
        if with_errors and entry.timing.failure is None:
            cells += _error_cells(entry, entry is most_accurate)
        elif with_errors and len(cells) > 2:
            cells += ["failed"]
        rows.append(cells)
    runs = [entry.timing.rounds for entry in comparison.entries]
    remark = f"medians of {max(runs)} runs, {min(runs)} of the slowest"
    return _TITLES[comparison.kind].format(**comparison.sizes), header, rows, remark


def _timing_cells(
    comparison: Comparison, entry: TimingEntry, fastest: bool
) -> list[RenderableType]:
    timing = entry.timing
    if timing.median is None or timing.lower_quartile is None or timing.upper_quartile is None:
        return [timing.name, "failed"]
    ratio = comparison.ratio(timing.name)
    return [
        timing.name,
        _bold("-" if ratio is None else f"{ratio:.2f}", fastest),
        _bold(_milliseconds(timing.median), fastest),
        f"{(timing.upper_quartile - timing.lower_quartile) / timing.median:.0%}",
    ]


def _error_cells(entry: TimingEntry, most_accurate: bool) -> list[RenderableType]:
    return [
        _bold("not finite" if entry.error is None else f"{entry.error:.1e}", most_accurate),
        "not finite" if entry.excess is None else f"{entry.excess:+.1e}",
    ]


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}" if seconds < 0.1 else f"{1e3 * seconds:.0f}"


def _bold(text: str, best: bool) -> Text:
    return Text(text, "bold" if best else "")


def _bjorck_table(comparison: Comparison) -> Section:
    timings = {entry.timing.name: entry.timing for entry in comparison.entries}
    ours = ("steps", "full", "products", "speed-up", "runs")
    rows = [
        [
            str(k),
            *_bjorck_cells(timings[full_name(k)], timings[product_name(k)]),
            f"{1e3 * full:.1f}",
            f"{1e3 * products:.1f}",
            f"{full / products:.2f}x",
        ]
        for k, (full, products) in PAPER_SECONDS.items()
        if full_name(k) in timings
    ]
    title = "Björck, {size} x {size}, one vector: mean milliseconds".format(**comparison.sizes)
    return title, [*ours, "paper: full", "products", "speed-up"], rows, ""


def _bjorck_cells(full: Timing, products: Timing) -> list[RenderableType]:
    if not full.mean or not products.mean:
        return ["-", "-", "-", "-"]
    better = full.mean < products.mean
    return [
        _bold(_milliseconds(full.mean), better),
        _bold(_milliseconds(products.mean), not better),
        f"{full.mean / products.mean:.2f}x",
        f"{full.rounds}, {products.rounds}",
    ]


def _paper_table(results: Sequence[CriticResult]) -> Iterator[Section]:
    """The paper's layout: rows are activations, columns dimension and depth."""
    settings = list(dict.fromkeys((c.sizes["dim"], c.sizes["depth"]) for c in results))
    rows = []
    for critic in dict.fromkeys(c.critic for c in results):
        own = {(c.sizes["dim"], c.sizes["depth"]): c for c in results if c.critic == critic}
        estimates = {setting: c.estimate for setting, c in own.items()}
        seconds = f"{sum(c.cpu for c in own.values()):.0f}"
        rows.append([critic, *(_number(estimates.get(p), 4) for p in settings), seconds])
        bounds = {setting: c.lower for setting, c in own.items()}
        rows.append(["  at least", *(_lower(bounds.get(p)) for p in settings)])
        paper = [PAPER_VALUES.get(p, {}).get(critic) for p in settings]
        if any(value is not None for value in paper):
            rows.append(["  paper", *(_number(value, 2) for value in paper)])
    remark = "Lower bounds at confidence 95 % each; CPU seconds including evaluation."
    header = ["", *(f"{dim}/{depth}" for dim, depth in settings), "seconds"]
    yield "Cone of distance 1, by dimension/layers", header, rows, remark


def _lower(bound: float | None) -> str:
    return "" if bound is None else format_bound(bound, "lower")


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _funnels_tables(results: Sequence[CriticResult]) -> Iterator[Section]:
    dims = sorted({c.sizes["dim"] for c in results})
    counts = sorted({c.sizes["funnels"] for c in results})
    for critic in dict.fromkeys(c.critic for c in results):
        own = {(c.sizes["dim"], c.sizes["funnels"]): c for c in results if c.critic == critic}
        rows = [[str(d), *(_percent(own.get((d, count))) for count in counts)] for d in dims]
        title = f"Funnels, {critic}: relative error in percent"
        header = ["dimension", *(f"{count} funnels" for count in counts)]
        yield title, header, rows, _sum_up(list(own.values()))


def _percent(result: CriticResult | None) -> str:
    if result is None:
        return ""
    error = result.relative_error
    return "-" if error is None else f"{100 * error:+.2f}"


def _sum_up(results: Sequence[CriticResult]) -> str:
    errors = [abs(c.relative_error) for c in results if c.relative_error is not None]
    bounds = [c.lower_holds for c in results if c.lower_holds is not None]
    says = f"{sum(bounds)} of {len(bounds)} lower bounds hold" if bounds else "no valid bound"
    return (
        f"Mean absolute error {sum(errors) / max(1, len(errors)):.1%} of {len(errors)} results; "
        f"{says}; {sum(c.cpu for c in results) / 60:.1f} minutes of CPU time."
    )


def _coverage_table(results: Sequence[CriticResult]) -> Iterator[Section]:
    groups = {
        "distance zero": [c for c in results if c.truth == 0],
        "distance above zero": [c for c in results if c.truth > 0],
        "all": results,
    }
    rows = [
        [
            name,
            str(len(group)),
            f"{sum(bool(c.lower_holds) for c in group) / len(group):.1%}",
            f"{sum(bool(c.upper_holds) for c in group) / len(group):.1%}",
            f"{sum(c.cpu for c in group):.0f}",
        ]
        for name, group in groups.items()
        if group
    ]
    remark = f"Confidence level of each bound: {results[0].confidence or 0:.1%}."
    header = ["", "problems", "lower holds", "upper holds", "seconds"]
    yield "Coverage of the bounds", header, rows, remark


def _real_table(results: Sequence[CriticResult]) -> Iterator[Section]:
    critics = list(dict.fromkeys(c.critic for c in results))
    names = (critic.removeprefix("taut, ") for critic in critics)
    rows = []
    for problem in dict.fromkeys(c.problem for c in results):
        own = {c.critic: c for c in results if c.problem == problem}
        first = next(iter(own.values()))
        gaps = [
            c.upper - c.lower for c in own.values() if c.upper is not None and c.lower is not None
        ]
        gap = f"{min(gaps) / first.truth:.0e}" if gaps else ""
        points = f"{first.sizes['n']}+{first.sizes['m']}"
        errors = (_percent(own.get(critic)) for critic in critics)
        rows.append([problem, points, f"{first.truth:.4f}", gap, *errors])
    valid = [c.lower_holds is not False and c.upper_holds is not False for c in results]
    remark = (
        "Gap: width of the proven interval over the distance; then errors in percent. "
        f"{sum(valid)} of {len(valid)} bounds hold; {sum(c.cpu for c in results):.0f} seconds."
    )
    title = "Real data: two finite sets against POT's exact distance"
    yield title, ["", "points", "exact", "gap", *names], rows, remark
