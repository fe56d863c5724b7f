"""Result tables in Markdown and LaTeX."""

import unicodedata
from collections.abc import Sequence

from taut_lab.framework.presentation import ResultTable, TableEntry
from taut_lab.report.claim_sentences import difference_text, mean_text, paper_text

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "[": "{[}",  # after the end of a row it would start an optional argument
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
    r"""The text escaped for a cell of a Markdown table.

    Example:
        >>> print(escape_markdown("|x|_1 * 2"))
        \|x\|\_1 \* 2
    """
    for sign in "\\|*_`<>[]":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def escape_latex(text: str) -> str:
    r"""The text escaped for LaTeX; characters without a command lose their accents.

    Example:
        >>> print(escape_latex("90 % ± 1, a_b"))
        90 \% $\pm$ 1, a\_b
    """
    return "".join(_latex_sign(sign) for sign in " ".join(text.split()))


def to_markdown(table: ResultTable) -> str:
    """A Markdown table: our value, and in brackets the paper's value and the difference.

    Example:
        >>> rows = {"MaxMin": [TableEntry([0.9, 0.92], paper=0.87)], "ReLU": [TableEntry(paper=0.5)]}
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
    # Brackets without parentheses after them are not links, and need no escape.
    cells = [
        [escape_markdown(cell).replace("\\[", "[").replace("\\]", "]") for cell in line]
        for line in lines
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def to_latex(table: ResultTable) -> str:
    r"""A `tabular` in plain LaTeX, with the same cells.

    Example:
        >>> rows = {"a_b": [TableEntry([50.0], paper=40.0)]}
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


def _cell(entry: TableEntry, table: ResultTable) -> str:
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
