"""Result tables as texts for other places: Markdown and LaTeX."""

import unicodedata
from collections.abc import Sequence

from taut.lab.exhibit import Entry, ResultTable
from taut.report.lab_words import difference_text, mean_text, paper_text

__all__ = ["escape_latex", "escape_markdown", "to_latex", "to_markdown"]

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "[": "{[}",  # after the end of a row it would begin an option of it
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "−": "$-$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "≈": r"$\approx$",
    "→": r"$\to$",
    "∞": r"$\infty$",
    "√": r"$\surd$",
    "ε": r"$\varepsilon$",
    "σ": r"$\sigma$",
    "λ": r"$\lambda$",
    "²": "$^2$",
    "₁": "$_1$",
    "₂": "$_2$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def escape_markdown(text: str) -> str:
    r"""The text in a cell of a Markdown table, where nothing of it is markup.

    Example:
        >>> print(escape_markdown("|x|_1 * 2"))
        \|x\|\_1 \* 2
    """
    for sign in "\\|*_`<>[]":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def escape_latex(text: str) -> str:
    r"""The text where LaTeX takes none of it for a command; what it has no letter for is plain.

    Example:
        >>> print(escape_latex("90 % ± 1, a_b"))
        90 \% $\pm$ 1, a\_b
    """
    return "".join(_latex_sign(sign) for sign in " ".join(text.split()))


def to_markdown(table: ResultTable) -> str:
    """A table in which a cell holds ours, the paper's in brackets, and the difference.

    Example:
        >>> rows = {"MaxMin": [Entry([0.9, 0.92], paper=0.87)], "ReLU": [Entry(paper=0.5)]}
        >>> print(to_markdown(ResultTable("t", ["W"], rows, better="higher", digits=2)))
        | t | W |
        | --- | --- |
        | MaxMin | 0.91 ± 0.01 [0.87; +0.04, better] |
        | ReLU | - [0.50] |
    """
    lines = [
        [table.title, *table.columns],
        ["---"] * (1 + len(table.columns)),
        *([name, *(_cell(entry, table) for entry in row)] for name, row in table.rows.items()),
    ]
    # Brackets that we set are no links: nothing in round ones follows them.
    cells = [
        [escape_markdown(cell).replace("\\[", "[").replace("\\]", "]") for cell in line]
        for line in lines
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def to_latex(table: ResultTable) -> str:
    r"""A `tabular` of plain LaTeX, with the same cells.

    Example:
        >>> rows = {"a_b": [Entry([50.0], paper=40.0)]}
        >>> print(to_latex(ResultTable("t", ["err"], rows, better="lower", digits=0, unit="%")))
        \begin{tabular}{lr}
        \hline
         & err \\
        \hline
        a\_b & 50 \% {[}40 \%; +10, worse] \\
        \hline
        \end{tabular}
    """
    head = _row(["", *table.columns])
    body = [_row([name, *(_cell(e, table) for e in row)]) for name, row in table.rows.items()]
    return "\n".join(
        [
            rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
            r"\hline",
            head,
            r"\hline",
            *body,
            r"\hline",
            r"\end{tabular}",
        ]
    )


def _cell(entry: Entry, table: ResultTable) -> str:
    beside = "; ".join(filter(None, (paper_text(entry, table), difference_text(entry, table))))
    return mean_text(entry, table) + (f" [{beside}]" if beside else "")


def _row(cells: Sequence[str]) -> str:
    return " & ".join(map(escape_latex, cells)) + r" \\"


def _latex_sign(sign: str) -> str:
    if sign in _LATEX:
        return _LATEX[sign]
    if ord(sign) < 256:
        return sign
    return unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode() or "?"
