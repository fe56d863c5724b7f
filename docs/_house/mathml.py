"""Formulas as MathML, which browsers draw by themselves: no script, nothing fetched."""

import re
from typing import Any

from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

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
        return latex2mathml.tex2mathml(tex.strip(), as_block=block)
    except MathError as error:
        _logger.warning("a formula is not understood (%s): %s", error, tex, location=place)
        return f"<code>{tex}</code>"


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
