"""Tables of committed benchmark records: `.. measurements:: ../../benchmarks/layers.json`."""

import json
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Measurements(SphinxDirective):
    """Rows are layers or critics, columns the sizes at which they were measured.

    `:kind:` chooses comparisons of a timing record (dense, conv, activations) and `:width:` their
    size; of a record of distances, the part "table1": estimates of a distance that is 1.
    """

    required_arguments = 1
    option_spec: ClassVar = {
        "kind": directives.unchanged_required,
        "width": directives.positive_int,
    }

    def run(self) -> list[nodes.Node]:
        """The table, and a line that says when and on what it was measured."""
        path = (Path(self.env.doc2path(self.env.docname)).parent / self.arguments[0]).resolve()
        self.env.note_dependency(str(path))
        record = json.loads(path.read_text(encoding="utf-8"))
        table = self._distances(record) if "results" in record else self._timings(record)
        names = ("taut", "torch", "deel-torchlip", "orthogonium")
        versions = ", ".join(f"{name} {record['versions'][name]}" for name in names)
        machine, date = record["machine"], record["date"][:10]
        text = f"{date}, one thread of {machine['processor']}, {machine['cores']} cores; {versions}"
        return [table, nodes.paragraph(text=text, classes=["small-print"])]

    def _timings(self, record: dict[str, Any]) -> nodes.table:
        width = self.options.get("width")
        chosen = [
            one
            for one in record["comparisons"]
            if one["kind"] == self.options["kind"] and width in (None, one["sizes"].get("width"))
        ]
        exact = any(entry.get("excess") is not None for one in chosen for entry in one["entries"])
        head, rows = [""], {e["timing"]["name"]: [] for one in chosen for e in one["entries"]}
        for one in chosen:
            sizes = ", ".join(
                f"{name} {size}" for name, size in one["sizes"].items() if size != width
            )
            head += [f"time ({sizes})", "largest σ - 1"][: 2 if exact else 1]
            for entry in one["entries"]:
                cells = rows[entry["timing"]["name"]]
                cells.append(f"{entry['ratio']:.1f}x")
                if exact:
                    cells.append(f"{entry['excess']:+.0e}")
        return _table(head, rows)

    def _distances(self, record: dict[str, Any]) -> nodes.table:
        head, rows = [""], {}
        for one in record["results"].values():
            if one["part"] == self.options["kind"]:
                sizes = one["sizes"]
                title = f"dimension {sizes['dim']}, {sizes['depth']} layers"
                if title not in head:
                    head.append(title)
                rows.setdefault(one["critic"], []).append(f"{one['estimate']:.3f}")
        return _table(head, rows)


def _table(head: list[str], rows: dict[str, list[str]]) -> nodes.table:
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    group += nodes.thead("", _row(head))
    group += nodes.tbody("", *(_row([name, *cells]) for name, cells in rows.items()))
    return nodes.table("", group)


def _row(cells: list[str]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        text = nodes.strong if cell.startswith("taut ") else nodes.inline
        row += nodes.entry("", nodes.paragraph("", "", text(text=cell)))
    return row


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("measurements", Measurements)
    return {"parallel_read_safe": True}
