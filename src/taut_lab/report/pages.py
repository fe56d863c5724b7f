"""The HTML report of recorded experiments: an index, and a page for each experiment."""

import base64
from collections.abc import Sequence
from pathlib import Path

from taut.plotting import Figure, Picture
from taut.report import Code, Compared, Link, Page, Section, Table
from taut_lab.experiments import registry
from taut_lab.framework import ResultTable, TableEntry, Verdict
from taut_lab.framework.records import Records
from taut_lab.report.claim_sentences import (
    VERDICT_COLUMNS,
    claim_text,
    compare,
    difference_text,
    mean_text,
    paper_text,
    summary,
    table_note,
    verdict_cells,
    verdict_summary,
)
from taut_lab.report.experiment_report import ExperimentReport, collect_report
from taut_lab.report.run_details import command, duration, run_details
from taut_lab.report.table_markup import escape_latex, escape_markdown, to_latex, to_markdown

_PRESETS = {
    "smoke": "Small data and seconds of computation, to test the installation: these numbers cannot be "
    "compared with the paper's.",
    "cpu": "Smaller networks or fewer steps than in the paper, for a machine without a GPU; the page "
    "of an experiment lists its settings.",
    "gpu": "The settings of the paper, with one seed.",
    "paper": "The settings of the paper, as far as it states them.",
}
_NARROW = 5.0  # inches


def write_report(records_folder: Path, out: Path) -> Path:
    """Writes a page for every experiment with records, an index, figures and tables.

    Nothing is computed. The folder `out` gets `index.html`, whose path is returned, a page for each
    experiment, `tables.md`, `tables.tex`, and `figures` as SVG and PNG. Damaged records are listed on
    the pages and count as not finished.
    """
    records = Records(records_folder)
    shown = [
        collect_report(registry.find_experiment(name), records) for name in registry.EXPERIMENTS
    ]
    out.mkdir(parents=True, exist_ok=True)
    for one in shown:
        if one.preset is not None:
            _page(one, one.preset, out).write(out / f"{one.experiment.name}.html")
    ran = [one for one in shown if one.preset is not None]
    (out / "tables.md").write_text(_markdown(ran), encoding="utf-8")
    (out / "tables.tex").write_text(_latex(ran), encoding="utf-8")
    return _index(shown).write(out / "index.html")


def _index(shown: Sequence[ExperimentReport]) -> Page:
    ran = [one for one in shown if one.preset is not None]
    waiting = [one for one in shown if one.preset is None]
    judged = [(one, one.verdict) for one in shown if one.verdict is not None]
    sections = []
    if ran and judged:
        rows = [_verdict_row(one, verdict) for one, verdict in judged]
        table = Table(VERDICT_COLUMNS, rows, wide=True)
        sections.append(Section("Verdicts", [verdict_summary(v for _, v in judged)], table))
    if ran:
        header = ["Experiment", "Preset", "Cells", "Compared with the paper", "CPU time"]
        table = Table(header, [_index_row(one) for one in ran], wide=True)
        words = [
            f"Preset {name}: {text}"
            for name, text in _PRESETS.items()
            if any(one.preset == name for one in ran)
        ]
        files = [Link("tables.md", "tables.md"), Link("tables.tex", "tables.tex")]
        note = "Better and worse refer to the direction of each table; some differences are random."
        sections.append(Section("Results", words, table, links=files, note=note))
    if waiting:
        rows = [[one.experiment.title, Code(command(one.experiment, "cpu"))] for one in waiting]
        table = Table(["Experiment", "Command"], rows, wide=True)
        sections.append(Section("Experiments without records", table=table))
    problems = [sentence for one in shown for sentence in one.problems]
    if problems:
        sections.append(Section("Problems", problems))
    return Page(
        "Experiments of the paper",
        f"{len(ran)} of {len(shown)} experiments: the tables and figures of “Sorting out Lipschitz "
        "function approximation” (Anil, Lucas and Grosse, 2019), beside its numbers where it has "
        "any.",
        sections,
    )


def _verdict_row(one: ExperimentReport, verdict: Verdict) -> list[str | Link | Compared]:
    claim, word, reason, seeds, budget = verdict_cells(one.experiment, verdict)
    label, name = one.experiment.label, one.experiment.name
    source = Link(label, f"{name}.html") if one.preset else label
    kind = {"confirmed": "better", "refuted": "worse"}.get(word, "even")
    return [source, claim, Compared("", verdict=word, kind=kind), reason, seeds, budget]


def _index_row(one: ExperimentReport) -> list[str | Link | Compared]:
    done, cells = one.counts[one.preset or "smoke"]
    return [
        Link(one.experiment.title, f"{one.experiment.name}.html", one.experiment.label),
        one.preset or "",
        f"{done}/{cells}",
        Compared(summary(one.presentation.tables)),
        duration(sum(record.cpu for record in one.found)),
    ]


def _page(one: ExperimentReport, preset: str, out: Path) -> Page:
    experiment, presentation = one.experiment, one.presentation
    done, cells = one.counts[preset]
    missing = f" {cells - done} of {cells} cells are missing." if done < cells else ""
    words = [
        f"Preset {preset}. {_PRESETS[preset]}{missing}",
        *presentation.paragraphs,
        *one.problems,
    ]
    sections = [Section("Findings", words)]
    if one.verdict is not None:
        sections.append(_verdict_section(one.verdict))
    sections += map(_table_section, presentation.tables)
    figures = presentation.figures or {}
    if figures:
        pictures = [_draw(name, figure, out / "figures") for name, figure in figures.items()]
        kinds = ("svg", "png")
        files = [Link(f"{n}.{k}", f"figures/{n}.{k}") for n in figures for k in kinds]
        # A wide figure would be illegible in half a page.
        wide_figure = any(figure.size[0] > _NARROW for figure in figures.values())
        columns = 1 if len(figures) == 1 or (wide_figure and len(figures) <= 3) else 2
        sections.append(Section("Figures", pictures=pictures, columns=columns, links=files))
    counts = {name: f"{done} of {cells}" for name, (done, cells) in one.counts.items()}
    return Page(
        experiment.title,
        claim_text(experiment),
        sections,
        run_details(experiment, preset, one.found, counts),
        links=[Link("All experiments", "index.html")],
    )


def _verdict_section(verdict: Verdict) -> Section:
    rows = [[check.statement, verdict.outcome(check), check.explain()] for check in verdict.checks]
    table = Table(["The claim implies", "Outcome", "Numbers"], rows, wide=True)
    seeds = f"{verdict.seeds} seed{'s' * (verdict.seeds != '1')}"
    words = [f"The claim is {verdict.word}. {seeds}; budget: {verdict.budget or 'none'}."]
    return Section("Verdict", words, table)


def _draw(name: str, figure: Figure, folder: Path) -> Picture:
    """The picture for the page; also writes its files."""
    folder.mkdir(parents=True, exist_ok=True)
    picture = figure.embed()
    # The same bytes as in the page.
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


def _compared(entry: TableEntry, table: ResultTable) -> Compared:
    word = compare(entry, table)
    paper = paper_text(entry, table)
    return Compared(
        mean_text(entry, table),
        f"paper {paper}" if paper else "",
        difference_text(entry, table),
        word if word in ("better", "worse") else "even",
    )


def _markdown(ran: Sequence[ExperimentReport]) -> str:
    lines = ["# Experiments of the paper", ""]
    for one in ran:
        done, cells = one.counts[one.preset or "smoke"]
        label, how = one.experiment.label, command(one.experiment, one.preset or "smoke")
        lines += [f"## {escape_markdown(one.experiment.title)}", ""]
        lines += [f"{escape_markdown(label)}; {done} of {cells} cells: `{how}`", ""]
        for table in one.presentation.tables:
            lines += [to_markdown(table), ""]
            lines += [escape_markdown(note), ""] if (note := table_note(table)) else []
    return "\n".join(lines)


def _latex(ran: Sequence[ExperimentReport]) -> str:
    lines = [
        "% Written by taut reproduce report. Plain tabular in UTF-8; no package is needed.",
        "",
    ]
    for one in ran:
        for table in one.presentation.tables:
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
