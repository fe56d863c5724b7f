"""Docstrings of taut, converted to reStructuredText.

Docstrings are written for the terminal: formulas between dollars, tables between bars. Public names
of taut become links to their page.
"""

import re
from typing import Any

from sphinx.application import Sphinx

import taut

_CODE = re.compile(r"``.+?``|`[^`]*`", re.DOTALL)
_INLINE = re.compile(r"(?P<before>\w?)\$(?P<tex>[^$]+?)\$(?P<after>\w?)")
_ROW = r"^[ ]*\|.*\|[ ]*(?:\n|\Z)"
_TABLE = re.compile(rf"{_ROW}^[ ]*\|[-|: ]+\|[ ]*\n(?:{_ROW})+", re.MULTILINE)


def to_restructured(text: str) -> str:
    """The same text with formulas and tables as Sphinx reads them."""
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0"

    text = _CODE.sub(keep, text)
    text = re.sub(r"\$\$.+?\$\$", lambda found: _display(text, found), text, flags=re.DOTALL)
    text = _INLINE.sub(_inline, text)
    text = re.sub(r"(?<=[-/])\*(?=\W)", r"\\*", text)  # as in step-*.png: a star, no emphasis
    text = _CODE.sub(keep, text)
    text = _TABLE.sub(lambda found: _table(found[0]), text)
    while "\0" in text:
        text = re.sub("\0(\\d+)\0", lambda found: kept[int(found[1])], text)
    return text


def _display(text: str, found: re.Match[str]) -> str:
    line = text[text.rfind("\n", 0, found.start()) + 1 :]
    indent = " " * (len(line) - len(line.lstrip(" ")))
    tex = f"\n{indent}   ".join(part.strip() for part in found[0].strip("$").strip().splitlines())
    tail = text[found.end() : found.end() + 1]
    return f"\n\n{indent}.. math::\n\n{indent}   {tex}\n\n" + (
        indent if tail not in ("", "\n") else ""
    )


def _inline(found: re.Match[str]) -> str:
    tex = " ".join(found["tex"].split())
    before = f"{found['before']}\\ " if found["before"] else ""
    after = f"\\ {found['after']}" if found["after"] else ""
    return f"{before}:math:`{tex}`{after}"


def _table(block: str) -> str:
    indent = " " * (len(block) - len(block.lstrip(" ")))
    rows = [line.strip().strip("|").split("|") for line in block.strip().splitlines()]
    lines = [f"{indent}.. list-table::", f"{indent}   :header-rows: 1", ""]
    for row in [rows[0], *rows[2:]]:
        for place, cell in enumerate(row):
            lines.append(f"{indent}   {'*' if place == 0 else ' '} - {cell.strip()}")
    return "\n".join(lines) + "\n\n"


def _translate(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = to_restructured("\n".join(lines)).splitlines()


def _at_home(app: Sphinx, env: Any, node: Any, contnode: Any) -> Any:
    """Links `taut.certify` and `Bound` to the pages of their rooms."""
    target = node.get("reftarget", "")
    name = target.removeprefix("taut.")
    if node.get("refdomain") != "py" or not (target != name or name[:1].isupper()):
        return None
    ends = [full for full in env.domains["py"].objects if full.endswith(f".{name}")]
    homes = sorted((full for full in ends if full.startswith("taut.")), key=len)
    if not homes or name not in {*taut.__all__, *_public()}:
        return None
    found = env.domains["py"].resolve_xref(
        env, node["refdoc"], app.builder, "obj", homes[0], node, contnode
    )
    return found


def _public() -> set[str]:
    rooms = (getattr(taut, name) for name in taut.__all__)
    return {name for room in rooms for name in getattr(room, "__all__", ())}


def setup(app: Sphinx) -> dict[str, bool]:
    """Connects both to Sphinx, the translation after napoleon's."""
    app.connect("autodoc-process-docstring", _translate, priority=600)
    app.connect("missing-reference", _at_home)
    return {"parallel_read_safe": True}
