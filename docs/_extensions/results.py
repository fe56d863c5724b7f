"""Committed records as tables and figures: `.. results:: ../records`, `.. zoo:: ../benchmarks/zoo`."""

import html
from collections.abc import Sequence
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from taut.plotting import Figure
from taut_lab.benchmarks.layer_zoo import read_zoo
from taut_lab.cli.zoo_output import COLUMNS, budget, cells, draw_zoo
from taut_lab.experiments import registry
from taut_lab.framework.presentation import ResultTable, TableEntry
from taut_lab.framework.records import Records
from taut_lab.report.claim_sentences import (
    VERDICT_COLUMNS,
    claim_text,
    compare,
    difference_text,
    mean_text,
    paper_text,
    table_note,
    verdict_cells,
    verdict_summary,
)
from taut_lab.report.experiment_report import ExperimentReport, collect_report
from taut_lab.report.run_details import command


class Results(SphinxDirective):
    """Verdicts on all claims, then tables and figures of every experiment with records."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The verdicts, and a section for each experiment, in the order of the paper."""
        folder = (Path(self.env.doc2path(self.env.docname)).parent / self.arguments[0]).resolve()
        # The modification time of a folder changes only with the names in it.
        for path in (folder, *folder.rglob("*")):
            self.env.note_dependency(str(path))
        records = Records(folder)
        shown = [
            collect_report(registry.find_experiment(name), records) for name in registry.EXPERIMENTS
        ]
        return [_verdicts(shown), *(_section(one, one.preset) for one in shown if one.preset)]


class Zoo(SphinxDirective):
    """The table and the chart of `taut bench zoo`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The budget, the table and the figure."""
        folder = (Path(self.env.doc2path(self.env.docname)).parent / self.arguments[0]).resolve()
        for path in (folder, *folder.glob("*.json")):
            self.env.note_dependency(str(path))
        if not (records := read_zoo(folder)):
            raise self.error(f"zoo: {folder} holds no records")
        rows = [[nodes.paragraph(text=cell) for cell in cells(record)] for record in records]
        return [
            nodes.paragraph(text=budget(records)),
            _grid(COLUMNS, rows),
            nodes.container("", _figure(draw_zoo(records)), classes=["figures"]),
        ]


def _verdicts(shown: list[ExperimentReport]) -> nodes.section:
    judged = [(one, one.verdict) for one in shown if one.verdict is not None]
    section = nodes.section(ids=["verdicts"])
    section += nodes.title(text="Verdicts")
    section += nodes.paragraph(text=verdict_summary(verdict for _, verdict in judged))
    colours = {"confirmed": ["better"], "refuted": ["worse"]}
    rows = [
        [
            nodes.paragraph(text=text, classes=colours.get(text, []))
            for text in (one.experiment.label, *verdict_cells(one.experiment, verdict))
        ]
        for one, verdict in judged
    ]
    section += _grid(VERDICT_COLUMNS, rows)
    return section


def _section(one: ExperimentReport, preset: str) -> nodes.section:
    section = nodes.section(ids=[nodes.make_id(one.experiment.name)])
    section += nodes.title(text=one.experiment.title)
    source = nodes.paragraph(text=f"{one.experiment.label}: ")
    source += nodes.literal(text=command(one.experiment, preset))
    done, cells = one.counts[preset]
    if done < cells:
        source += nodes.Text(f"; {cells - done} of {cells} cells are missing")
    section += source
    words = (claim_text(one.experiment), *one.presentation.paragraphs, *one.problems)
    section += [nodes.paragraph(text=text) for text in words]
    for table in one.presentation.tables:
        section += _table(table)
        if note := table_note(table, "below ours"):
            section += nodes.paragraph(text=note, classes=["small-print"])
    figures = list((one.presentation.figures or {}).values())
    many = ["many"] if len(figures) > 2 else []
    section += nodes.container("", *map(_figure, figures), classes=["figures", *many])
    return section


def _table(table: ResultTable) -> nodes.table:
    rows = [
        [nodes.paragraph(text=name), *(_entry(entry, table) for entry in entries)]
        for name, entries in table.rows.items()
    ]
    return _grid(("", *table.columns), rows, table.title)


def _grid(
    header: Sequence[str], rows: Sequence[Sequence[nodes.Node]], title: str = ""
) -> nodes.table:
    group = nodes.tgroup(cols=len(header))
    group += [nodes.colspec(colwidth=1) for _ in header]
    group += nodes.thead("", _row([nodes.paragraph(text=name) for name in header]))
    group += nodes.tbody("", *map(_row, rows))
    return nodes.table("", *([nodes.title(text=title)] if title else []), group)


def _row(cells: Sequence[nodes.Node]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", cell) for cell in cells))


def _entry(entry: TableEntry, table: ResultTable) -> nodes.Node:
    """Our value; below it the paper's value and the coloured difference."""
    cell = nodes.line_block("", nodes.line(text=mean_text(entry, table)))
    if paper := paper_text(entry, table):
        cell += nodes.line(text=f"paper {paper}", classes=["small-print"])
    if difference := difference_text(entry, table):
        cell += nodes.line(
            text=difference, classes=["small-print", compare(entry, table).replace(" ", "-")]
        )
    return cell


def _figure(figure: Figure) -> nodes.figure:
    # Embedded, so that no files are left among the sources.
    picture = figure.embed()
    source = f'<img src="{picture.source}" alt="{html.escape(figure.alt)}">'
    image = nodes.raw("", source, format="html")
    text = ". ".join(filter(None, (figure.title, figure.caption)))
    return nodes.figure("", image, nodes.caption(text=text))


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directives."""
    app.add_directive("results", Results)
    app.add_directive("zoo", Zoo)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
