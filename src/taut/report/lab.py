"""The pages of the lab: what the records hold beside what the paper has, an experiment a page."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from taut.lab import registry
from taut.lab.exhibit import Entry, Exhibit, ResultTable
from taut.lab.experiment import PRESETS, Experiment
from taut.lab.records import Record, Records
from taut.pictures import Figure, Picture
from taut.report.lab_facts import command, duration, facts
from taut.report.lab_tables import escape_latex, escape_markdown, to_latex, to_markdown
from taut.report.lab_words import (
    claim_text,
    compare,
    difference_text,
    mean_text,
    paper_text,
    summary,
    table_note,
)
from taut.report.page import Code, Compared, Link, Page, Section, Table

__all__ = ["Shown", "show_records", "write_report"]

_PRESETS = {
    "smoke": "Seconds of work on small data, to see that all runs: these numbers say nothing about "
    "the paper's.",
    "cpu": "Smaller or shorter than in the paper, for a machine without a graphics card; the page "
    "of an experiment has its settings.",
    "paper": "As the paper has it, as far as it says so.",
}
_NARROW = 5.0  # inches


@dataclass(frozen=True)
class Shown:
    """What the records hold of an experiment.

    Attributes:
        experiment: whose they are.
        preset: the largest that is whole; where none is, the largest with a finished cell; None
            without any.
        found: the records of that preset, in the order of its cells.
        exhibit: what the experiment makes of them.
        counts: preset -> finished cells of all.
        troubles: a sentence for each damaged file, failed cell, and for files that fit no cell.
    """

    experiment: Experiment
    preset: str | None
    found: Sequence[Record]
    exhibit: Exhibit
    counts: dict[str, tuple[int, int]]
    troubles: Sequence[str]


def write_report(records_folder: Path, out: Path) -> Path:
    """Writes a page for every experiment with records, an index, figures and tables.

    Nothing is computed: what is shown is what the records hold. `out` gets `index.html`, a page
    for each experiment, `tables.md`, `tables.tex`, and `figures` as SVG and PNG.

    Args:
        records_folder: where `taut reproduce` has put its records. Damaged ones are named on the
            pages and count as not finished.
        out: made if need be; files of these names are written over.

    Returns:
        Where the index is.
    """
    out = Path(out)
    records = Records(Path(records_folder))
    shown = [show_records(registry.find_experiment(name), records) for name in registry.EXPERIMENTS]
    out.mkdir(parents=True, exist_ok=True)
    for one in shown:
        if one.preset is not None:
            _page(one, one.preset, out).write(out / f"{one.experiment.name}.html")
    ran = [one for one in shown if one.preset is not None]
    (out / "tables.md").write_text(_markdown(ran), encoding="utf-8")
    (out / "tables.tex").write_text(_latex(ran), encoding="utf-8")
    return _index(shown).write(out / "index.html")


def show_records(experiment: Experiment, records: Records) -> Shown:
    """What these records hold of an experiment; runs nothing."""
    held: dict[str, list[Record]] = {}
    counts: dict[str, tuple[int, int]] = {}
    troubles: dict[str, None] = {}
    paths: set[Path] = set()
    for preset in PRESETS:
        cells = experiment.cells(preset)
        found, damaged = records.load(cells)
        held[preset] = list(found.values())
        counts[preset] = (len(found), len(cells))
        paths.update(records.path(cell) for cell in cells)
        troubles.update(dict.fromkeys(damaged))
        for cell in cells:
            if (story := records.error_path(cell)).exists():
                sentence = f"The cell {cell.key} of {experiment.name} failed: see {story}."
                troubles[sentence] = None
    others = set((records.folder / experiment.name).glob("*.json")) - paths
    if others:
        troubles[
            f"{len(others)} of the files in {records.folder / experiment.name} belong to other "
            "versions or settings of the experiment, and are not shown."
        ] = None
    preset = _choose(counts)
    shown = held[preset] if preset else []
    exhibit = experiment.show([record.result for record in shown]) if shown else Exhibit()
    return Shown(experiment, preset, shown, exhibit, counts, list(troubles))


def _choose(counts: dict[str, tuple[int, int]]) -> str | None:
    # A larger preset that has just begun does not hide a smaller one that is finished.
    whole = [preset for preset, (done, cells) in counts.items() if 0 < done == cells]
    begun = [preset for preset, (done, _) in counts.items() if done]
    large = [preset for preset in begun if preset != "smoke"]
    if whole and not (whole[-1] == "smoke" and large):
        return whole[-1]
    return begun[-1] if begun else None


def _index(shown: Sequence[Shown]) -> Page:
    ran = [one for one in shown if one.preset is not None]
    waiting = [one for one in shown if one.preset is None]
    sections = []
    if ran:
        rows = [_index_row(one) for one in ran]
        header = ["Experiment", "Preset", "Cells", "Ours beside the paper's", "Processor time"]
        table = Table(header, rows, wide=True)
        words = [f"Preset {name}: {text}" for name, text in _PRESETS.items() if _has(ran, name)]
        files = [Link("tables.md", "tables.md"), Link("tables.tex", "tables.tex")]
        note = "Better and worse are the directions of each table; chance is a part of both."
        sections.append(Section("What was run", words, table, links=files, note=note))
    if waiting:
        rows = [[one.experiment.title, Code(command(one.experiment, "cpu"))] for one in waiting]
        table = Table(["Experiment", "Command"], rows, wide=True)
        sections.append(Section("Not run yet", table=table))
    troubles = [sentence for one in shown for sentence in one.troubles]
    if troubles:
        sections.append(Section("Files that are not shown", troubles))
    return Page(
        "The paper, computed again",
        f"{len(ran)} of {len(shown)} experiments: the tables and figures of “Sorting out Lipschitz "
        "function approximation” (Anil, Lucas and Grosse, 2019), beside its numbers where it has "
        "any.",
        sections,
    )


def _has(shown: Sequence[Shown], preset: str) -> bool:
    return any(one.preset == preset for one in shown)


def _index_row(one: Shown) -> list[str | Link | Compared]:
    name = one.experiment.name
    done, cells = one.counts[one.preset or "smoke"]
    return [
        Link(one.experiment.title, f"{name}.html", one.experiment.label),
        one.preset or "",
        f"{done}/{cells}",
        Compared(summary(one.exhibit.tables)),
        duration(sum(record.cpu for record in one.found)),
    ]


def _page(one: Shown, preset: str, out: Path) -> Page:
    experiment, exhibit = one.experiment, one.exhibit
    done, cells = one.counts[preset]
    missing = f" {cells - done} of {cells} cells are missing." if done < cells else ""
    words = [f"Preset {preset}. {_PRESETS[preset]}{missing}", *exhibit.words, *one.troubles]
    sections = [Section("What came out", words), *map(_table_section, exhibit.tables)]
    figures = exhibit.figures or {}
    if figures:
        pictures = [_draw(name, figure, out / "figures") for name, figure in figures.items()]
        kinds = ("svg", "png")
        files = [Link(f"{n}.{k}", f"figures/{n}.{k}") for n in figures for k in kinds]
        # Letters of a broad figure are small in half a page.
        broad = any(figure.size[0] > _NARROW for figure in figures.values())
        columns = 1 if len(figures) == 1 or (broad and len(figures) <= 3) else 2
        sections.append(Section("Figures", pictures=pictures, columns=columns, links=files))
    counts = {name: f"{done} of {cells}" for name, (done, cells) in one.counts.items()}
    return Page(
        experiment.title,
        claim_text(experiment),
        sections,
        facts(experiment, preset, one.found, counts),
        links=[Link("All experiments", "index.html")],
    )


def _draw(name: str, figure: Figure, folder: Path) -> Picture:
    """The picture for the page, its files written."""
    folder.mkdir(parents=True, exist_ok=True)
    picture = figure.embed()
    # The file is what the page holds, to the byte.
    (folder / f"{name}.svg").write_bytes(base64.b64decode(picture.source.partition(",")[2]))
    (folder / f"{name}.png").write_bytes(figure.render("png"))
    return picture


def _table_section(table: ResultTable) -> Section:
    rows = [
        [name, *(_compared(entry, table) for entry in entries)]
        for name, entries in table.rows.items()
    ]
    wide = len(table.columns) > 3
    note = table_note(table, "below ours")
    return Section(table.title, table=Table(["", *table.columns], rows, wide=wide), note=note)


def _compared(entry: Entry, table: ResultTable) -> Compared:
    word = compare(entry, table)
    paper = paper_text(entry, table)
    return Compared(
        mean_text(entry, table),
        f"paper {paper}" if paper else "",
        difference_text(entry, table),
        word if word in ("better", "worse") else "even",
    )


def _markdown(ran: Sequence[Shown]) -> str:
    lines = ["# The paper, computed again", ""]
    for one in ran:
        lines += [f"## {escape_markdown(one.experiment.title)}", "", *_source(one), ""]
        for table in one.exhibit.tables:
            lines += [to_markdown(table), ""]
            lines += [escape_markdown(note), ""] if (note := table_note(table)) else []
    return "\n".join(lines)


def _source(one: Shown) -> list[str]:
    done, cells = one.counts[one.preset or "smoke"]
    label = escape_markdown(one.experiment.label)
    return [f"{label}; {done} of {cells} cells: `{command(one.experiment, one.preset or 'smoke')}`"]


def _latex(ran: Sequence[Shown]) -> str:
    lines = ["% Written by taut reproduce report. Plain tabular; wants UTF-8 and no package.", ""]
    for one in ran:
        for table in one.exhibit.tables:
            lines += [
                f"% {one.experiment.name}, preset {one.preset}",
                r"\begin{table}",
                rf"\caption{{{escape_latex(table.title)}}}",
                to_latex(table),
                *([rf"\par {escape_latex(note)}"] if (note := table_note(table)) else []),
                r"\end{table}",
                "",
            ]
    return "\n".join(lines)
