"""The tables of `taut bench wasserstein`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from taut.bench.cone_cells import PAPER_VALUES

if TYPE_CHECKING:
    from rich.console import Console

    from taut.bench.cells import Cell
    from taut.bench.ledger import Ledger

__all__ = ["print_ledger"]


def print_ledger(console: "Console", ledger: "Ledger") -> None:
    """Prints a table for every part that has cells."""
    head = ledger.head
    console.print(
        f"{head['machine']['processor']}, one thread; torch {head['versions']['torch']}; "
        f"begun {head['date']}; settings {head['settings']}",
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
        cells = [cell for cell in ledger.cells.values() if cell.part == part]
        for table in make(cells) if cells else ():
            console.print()
            console.print(table)


def _table(title: str, columns: Sequence[str], caption: str | None = None) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        caption=caption,
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i else "left", no_wrap=True)
    return table


def _paper_table(cells: "list[Cell]") -> list[Table]:
    """The paper's layout: rows are activations, columns dimension and depth."""
    places = list(dict.fromkeys((c.sizes["dim"], c.sizes["depth"]) for c in cells))
    table = _table(
        "Cone of distance 1: estimate (proven lower bound), the paper's below",
        ["", *(f"{dim}/{depth}" for dim, depth in places), "processor"],
        f"dimension/layers; bounds at 95 %; {sum(c.cpu for c in cells):.0f} s of processor in all",
    )
    for critic in dict.fromkeys(c.critic for c in cells):
        own = {(c.sizes["dim"], c.sizes["depth"]): c for c in cells if c.critic == critic}
        shown = [f"{own[p].estimate:.3f} ({own[p].lower:.3f})" if p in own else "" for p in places]
        table.add_row(critic, *shown, f"{sum(c.cpu for c in own.values()):.0f} s")
        paper = [PAPER_VALUES.get(p, {}).get(critic) for p in places]
        if any(value is not None for value in paper):
            published = ["-" if value is None else f"{value:.2f}" for value in paper]
            table.add_row("  paper", *published, "", style="dim")
    return [table]


def _funnels_tables(cells: "list[Cell]") -> list[Table]:
    dims = sorted({c.sizes["dim"] for c in cells})
    counts = sorted({c.sizes["funnels"] for c in cells})
    tables = []
    for critic in dict.fromkeys(c.critic for c in cells):
        own = {(c.sizes["dim"], c.sizes["funnels"]): c for c in cells if c.critic == critic}
        errors = [abs(c.relative_error or 0.0) for c in own.values()]
        bounds = [c.lower_holds for c in own.values() if c.lower_holds is not None]
        says = (
            f"{sum(bounds)} of {len(bounds)} lower bounds at most the truth"
            if bounds
            else "no valid bound"
        )
        table = _table(
            f"Funnels, {critic}: relative error in percent",
            ["dimension", *(f"{count} funnels" for count in counts)],
            f"mean absolute error {sum(errors) / len(errors):.1%} of {len(errors)} cells; {says}; "
            f"{sum(c.cpu for c in own.values()) / 60:.1f} min of processor",
        )
        for dim in dims:
            row = [own.get((dim, count)) for count in counts]
            table.add_row(str(dim), *("" if c is None else _percent(c) for c in row))
        tables.append(table)
    return tables


def _percent(cell: "Cell") -> str:
    error = cell.relative_error
    return "-" if error is None else f"{100 * error:+.2f}"


def _coverage_table(cells: "list[Cell]") -> list[Table]:
    table = _table(
        "Coverage of the bounds",
        ["", "problems", "lower holds", "upper holds", "processor"],
        f"each bound at {cells[0].confidence:.1%}" if cells[0].confidence else None,
    )
    groups = {
        "distance zero": [c for c in cells if c.truth == 0],
        "distance above zero": [c for c in cells if c.truth > 0],
        "all": cells,
    }
    for name, group in groups.items():
        if group:
            table.add_row(
                name,
                str(len(group)),
                f"{sum(bool(c.lower_holds) for c in group) / len(group):.1%}",
                f"{sum(bool(c.upper_holds) for c in group) / len(group):.1%}",
                f"{sum(c.cpu for c in group):.0f} s",
            )
    return [table]


def _real_table(cells: "list[Cell]") -> list[Table]:
    table = _table(
        "Real data, two finite sets, against exact transport by POT",
        ["", "critic", "points", "exact", "estimate", "error", "interval", "processor"],
    )
    for c in cells:
        upper = "" if c.upper is None else f"{c.upper:.4f}"
        error = c.relative_error
        table.add_row(
            c.problem,
            c.critic,
            f"{c.sizes['n']}+{c.sizes['m']}x{c.sizes['dim']}",
            f"{c.truth:.4f}",
            f"{c.estimate:.4f}",
            "-" if error is None else f"{error:+.2%}",
            f"[{c.lower:.4f}, {upper}]",
            f"{c.cpu:.1f} s",
            style=None if c.upper else "dim",
        )
    return [table]
