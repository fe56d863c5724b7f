"""The capability table, read off the records: `.. capabilities:: taut.nn`."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import taut.nn  # noqa: F401 (its layers register their records)
from taut.rules.layer_capabilities import CAPABILITIES, capability_table

_HEADINGS = {
    "bound": "Lipschitz bound",
    "certify": "certify (real, float64, float32)",
    "interval": "interval bounds",
    "fold": "fold to torch.nn",
    "save": "save, load, verify",
    "export": "ONNX, .pt2",
    "relu": "ReLU-only export",
}


class Capabilities(SphinxDirective):
    """A row for each layer of a package, a column for each capability; refusals with their reason."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The table, and below it what is refused."""
        rows = [row for row in capability_table() if row[0].startswith(self.arguments[0] + ".")]
        able = [row for row in rows if row[1]["bound"]]
        found: list[nodes.Node] = [_table(able)]
        reasons: dict[str, list[str]] = {}
        for name, can, reason in rows:
            if reason:
                what = "not supported" if not can["bound"] else "no export to ONNX"
                reasons.setdefault(f"{what}: {reason}", []).append(name.rpartition(".")[2])
        if reasons:
            listed = nodes.bullet_list()
            for reason, names in reasons.items():
                text = nodes.paragraph(text=f"{', '.join(sorted(names))}: {reason}")
                listed += nodes.list_item("", text)
            found.append(listed)
        return found


def _table(rows: list[tuple[str, dict[str, bool], str]]) -> nodes.table:
    group = nodes.tgroup(cols=1 + len(CAPABILITIES))
    group += [nodes.colspec(colwidth=1) for _ in range(1 + len(CAPABILITIES))]
    head = nodes.thead("", _row(["layer", *(_HEADINGS[name] for name in CAPABILITIES)]))
    body = nodes.tbody()
    for name, can, _ in rows:
        marks = ["yes" if can[capability] else "–" for capability in CAPABILITIES]
        body += _row([name.rpartition(".")[2], *marks])
    group += [head, body]
    return nodes.table("", group, classes=["capabilities"])


def _row(texts: list[str]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph(text=text)) for text in texts))


def setup(app: Sphinx) -> dict[str, bool]:
    """Tells Sphinx of the directive."""
    app.add_directive("capabilities", Capabilities)
    return {"parallel_read_safe": True}
