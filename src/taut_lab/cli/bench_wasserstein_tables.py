"""The tables of `taut bench wasserstein`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from taut_lab.experiments.prob_dim import PAPER_VALUES

if TYPE_CHECKING:
    from rich.console import Console

    from taut_lab.benchmarks.critic_records import CriticRecords, CriticResult

__all__ = ["print_critic_records"]

# Title, table and remark below it.
Section = tuple[str, Table, str]


def print_critic_records(console: "Console", records: "CriticRecords") -> None:
    """Prints a table for every part that has results."""
    header = records.header
    console.print(
        f"{header['machine']['processor']}, one thread; torch {header['versions']['torch']}; "
        f"started {header['date']}; settings {header['settings']}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )
    printers = {
        "table1": _paper_table,
        "funnels": _funnels_tables,
        "coverage": _coverage_table,
        "real": _real_table,
    }
    for part, make in printers.items():
        results = [result for result in records.results.values() if result.part == part]
        for title, table, remark in make(results) if results else ():
            console.print()
            console.print(title, soft_wrap=True, highlight=False, style="bold")
            console.print(table)
            console.print(remark, soft_wrap=True, highlight=False, style="italic")


def _table(columns: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i else "left", no_wrap=True)
    return table


def _paper_table(results: "list[CriticResult]") -> list[Section]:
    """The paper's layout: rows are activations, columns dimension and depth."""
    places = list(dict.fromkeys((c.sizes["dim"], c.sizes["depth"]) for c in results))
    table = _table(["", *(f"{dim}/{depth}" for dim, depth in places), "seconds"])
    for critic in dict.fromkeys(c.critic for c in results):
        own = {(c.sizes["dim"], c.sizes["depth"]): c for c in results if c.critic == critic}
        found = [own[p] if p in own else None for p in places]
        table.add_row(
            critic,
            *("" if c is None else f"{c.estimate:.4f}" for c in found),
            f"{sum(c.cpu for c in own.values()):.0f}",
        )
        bounds = ["" if c is None or c.lower is None else f"{c.lower:.4f}" for c in found]
        table.add_row("  at least", *bounds)
        paper = [PAPER_VALUES.get(p, {}).get(critic) for p in places]
        if any(value is not None for value in paper):
            table.add_row("  paper", *("" if value is None else f"{value:.2f}" for value in paper))
    remark = "Lower bounds at confidence 95 % each; CPU seconds including evaluation."
    return [("Cone of distance 1, by dimension/layers", table, remark)]


def _funnels_tables(results: "list[CriticResult]") -> list[Section]:
    dims = sorted({c.sizes["dim"] for c in results})
    counts = sorted({c.sizes["funnels"] for c in results})
    tables = []
    for critic in dict.fromkeys(c.critic for c in results):
        own = {(c.sizes["dim"], c.sizes["funnels"]): c for c in results if c.critic == critic}
        table = _table(["dimension", *(f"{count} funnels" for count in counts)])
        for dim in dims:
            row = [own.get((dim, count)) for count in counts]
            table.add_row(str(dim), *("" if c is None else _percent(c) for c in row))
        title = f"Funnels, {critic}: relative error in percent"
        tables.append((title, table, _sum_up(list(own.values()))))
    return tables


def _percent(result: "CriticResult") -> str:
    error = result.relative_error
    return "-" if error is None else f"{100 * error:+.2f}"


def _sum_up(results: "list[CriticResult]") -> str:
    errors = [abs(c.relative_error) for c in results if c.relative_error is not None]
    bounds = [c.lower_holds for c in results if c.lower_holds is not None]
    says = f"{sum(bounds)} of {len(bounds)} lower bounds hold" if bounds else "no valid bound"
    return (
        f"Mean absolute error {sum(errors) / max(1, len(errors)):.1%} of {len(errors)} results; "
        f"{says}; {sum(c.cpu for c in results) / 60:.1f} minutes of CPU time."
    )


def _coverage_table(results: "list[CriticResult]") -> list[Section]:
    table = _table(["", "problems", "lower holds", "upper holds", "seconds"])
    groups = {
        "distance zero": [c for c in results if c.truth == 0],
        "distance above zero": [c for c in results if c.truth > 0],
        "all": results,
    }
    for name, group in groups.items():
        if group:
            table.add_row(
                name,
                str(len(group)),
                f"{sum(bool(c.lower_holds) for c in group) / len(group):.1%}",
                f"{sum(bool(c.upper_holds) for c in group) / len(group):.1%}",
                f"{sum(c.cpu for c in group):.0f}",
            )
    remark = f"Confidence level of each bound: {results[0].confidence or 0:.1%}."
    return [("Coverage of the bounds", table, remark)]


def _real_table(results: "list[CriticResult]") -> list[Section]:
    critics = list(dict.fromkeys(c.critic for c in results))
    names = (critic.removeprefix("taut, ") for critic in critics)
    table = _table(["", "points", "exact", "gap", *names])
    for problem in dict.fromkeys(c.problem for c in results):
        own = {c.critic: c for c in results if c.problem == problem}
        first = next(iter(own.values()))
        gaps = [
            c.upper - c.lower for c in own.values() if c.upper is not None and c.lower is not None
        ]
        table.add_row(
            problem,
            f"{first.sizes['n']}+{first.sizes['m']}",
            f"{first.truth:.4f}",
            f"{min(gaps) / first.truth:.0e}" if gaps else "",
            *("" if critic not in own else _percent(own[critic]) for critic in critics),
        )
    held = [c.lower_holds is not False and c.upper_holds is not False for c in results]
    seconds = sum(c.cpu for c in results)
    remark = (
        "Gap: width of the proven interval over the distance; then errors in percent. "
        f"{sum(held)} of {len(held)} bounds hold; {seconds:.0f} seconds."
    )
    return [("Real data: two finite sets against POT's exact distance", table, remark)]
