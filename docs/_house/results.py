"""What the committed records hold, as a part of a page: `.. results:: ../records`."""

import html
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from taut.lab import registry
from taut.lab.exhibit import Entry, ResultTable
from taut.lab.records import Records
from taut.pictures import Figure
from taut.report.lab import Shown, show_records
from taut.report.lab_facts import command
from taut.report.lab_words import (
    claim_text,
    compare,
    difference_text,
    mean_text,
    paper_text,
    table_note,
)


class Results(SphinxDirective):
    """Tables and figures of every experiment that has records in the folder."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """A section for each experiment, in the order of the paper."""
        folder = (Path(self.env.doc2path(self.env.docname)).parent / self.arguments[0]).resolve()
        # A folder's own time tells only of names that came or went.
        for path in (folder, *folder.rglob("*")):
            self.env.note_dependency(str(path))
        records = Records(folder)
        shown = (
            show_records(registry.find_experiment(name), records) for name in registry.EXPERIMENTS
        )
        return [_section(one, one.preset) for one in shown if one.preset]


def _section(one: Shown, preset: str) -> nodes.section:
    section = nodes.section(ids=[nodes.make_id(one.experiment.name)])
    section += nodes.title(text=one.experiment.title)
    source = nodes.paragraph(text=f"{one.experiment.label}: ")
    source += nodes.literal(text=command(one.experiment, preset))
    done, cells = one.counts[preset]
    if done < cells:
        source += nodes.Text(f"; {cells - done} of {cells} cells are missing")
    section += source
    words = (claim_text(one.experiment), *one.exhibit.words, *one.troubles)
    section += [nodes.paragraph(text=text) for text in words]
    for table in one.exhibit.tables:
        section += _table(table)
        if note := table_note(table, "below ours"):
            section += nodes.paragraph(text=note, classes=["small-print"])
    figures = list((one.exhibit.figures or {}).values())
    many = ["many"] if len(figures) > 2 else []
    section += nodes.container("", *map(_figure, figures), classes=["figures", *many])
    return section


def _table(table: ResultTable) -> nodes.table:
    group = nodes.tgroup(cols=1 + len(table.columns))
    group += [nodes.colspec(colwidth=1) for _ in range(1 + len(table.columns))]
    group += nodes.thead("", _row(nodes.paragraph(text=name) for name in ("", *table.columns)))
    body = nodes.tbody()
    for name, entries in table.rows.items():
        cells = [nodes.paragraph(text=name), *(_entry(entry, table) for entry in entries)]
        body += _row(cells)
    group += body
    return nodes.table("", nodes.title(text=table.title), group)


def _row(cells: Iterator[nodes.Node] | list[nodes.Node]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", cell) for cell in cells))


def _entry(entry: Entry, table: ResultTable) -> nodes.Node:
    """Ours; below it the paper's and the difference, in the colour of what it means."""
    cell = nodes.line_block("", nodes.line(text=mean_text(entry, table)))
    if paper := paper_text(entry, table):
        cell += nodes.line(text=f"paper {paper}", classes=["small-print"])
    if difference := difference_text(entry, table):
        cell += nodes.line(text=difference, classes=["small-print", compare(entry, table)])
    return cell


def _figure(figure: Figure) -> nodes.figure:
    # In the page itself, as on the pages of the report: nothing is left behind among the sources.
    picture = figure.embed()
    source = f'<img src="{picture.source}" alt="{html.escape(figure.alt)}">'
    image = nodes.raw("", source, format="html")
    text = ". ".join(filter(None, (figure.title, figure.caption)))
    return nodes.figure("", image, nodes.caption(text=text))


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("results", Results)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
