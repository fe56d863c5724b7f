"""Formulas as MathML, which browsers draw by themselves: no script, nothing fetched."""

import html
import re
from typing import Any
from xml.etree import ElementTree

from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

_SPACE = "{http://www.w3.org/1998/Math/MathML}"
_ACCENTS = ("~", "˜", "ˆ", "^", "ˉ", "¯", "˙")
_logger = logging.getLogger(__name__)

# What docutils' converter does not know, or reads otherwise than TeX, in words that it knows:
# \tfrac38 is three eighths, not thirty-eight over what follows.
_SPELLINGS = (
    (r"\\([td]?frac)(?:\s*([^\s\\{}a-zA-Z])|\s+([a-zA-Z]))", r"\\\1{\2\3}"),
    (r"(\\[td]?frac\{(?:[^{}]|\{[^{}]*\})*\})\s*([^\s\\{}])", r"\1{\2}"),
    (r"\\sqrt\s*(\d)", r"\\sqrt{\1}"),
    (r"\\[bB]ig(?![a-zA-Z])", ""),
    (r"\\textstyle(?![a-zA-Z])", ""),
    (r"\\dots(?![a-zA-Z])", r"\\ldots"),
)


def convert(tex: str, block: bool, place: Any = None) -> str:
    """The MathML of a formula, or its source where it is not understood, with a warning."""
    for pattern, known in _SPELLINGS:
        tex = re.sub(pattern, known, tex)
    try:
        return _mend(latex2mathml.tex2mathml(tex.strip(), as_block=block))
    except MathError as error:
        _logger.warning("a formula is not understood (%s): %s", error, tex, location=place)
        return f"<code>{tex}</code>"


def _mend(source: str) -> str:
    """Indices beside accented letters, not below them; bars close to what they enclose."""
    ElementTree.register_namespace("", _SPACE[1:-1])
    named = re.compile(r"&(?!(?:amp|lt|gt);)[a-zA-Z]+;")  # those of HTML, which XML does not know
    root = ElementTree.fromstring(named.sub(lambda found: html.unescape(found[0]), source))
    for node in list(root.iter(f"{_SPACE}munderover")):
        letter, index, accent = node
        if accent.text in _ACCENTS:
            node.tag = f"{_SPACE}msub"
            whole = ElementTree.Element(f"{_SPACE}mover", {"accent": "true"})
            whole.extend([letter, accent])
            node[:] = [whole, index]
    for parent in root.iter():
        for node in parent:
            if node.text in ("|", "∥", "‖"):
                node.attrib |= {"lspace": "0", "rspace": "0"}
                # Only \left and \right ask for bars as high as what they enclose. Browsers stretch
                # the closing bar of a norm to its index, which draws it below the line.
                delimiter = parent.tag == f"{_SPACE}mrow" and node in (parent[0], parent[-1])
                node.set("stretchy", "true" if delimiter else "false")
    return ElementTree.tostring(root, encoding="unicode")


def _inline(writer: Any, node: Any) -> None:
    writer.body.append(convert(node.astext(), block=False, place=node))
    raise _skip()


def _block(writer: Any, node: Any) -> None:
    writer.body.append(f'<div class="math">{convert(node.astext(), block=True, place=node)}</div>')
    raise _skip()


def _skip() -> Exception:
    from docutils.nodes import SkipNode

    return SkipNode()


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the renderer `mathml`."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_inline, None), block_renderers=(_block, None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
