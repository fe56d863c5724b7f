"""Pages of text, pictures and tables, rendered to one HTML file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from taut.errors import check_choice, check_positive, require
from taut.plotting import Picture
from taut.report.browser_classifier import Drawing


def check_extras() -> None:
    """Raises if the packages for reports are missing, to be called before any long computation."""
    for name in ("matplotlib", "jinja2"):
        require(name, "report", "a report")


@dataclass(frozen=True)
class Meter:
    """A number beside its true value, drawn as a bar.

    Attributes:
        value: the measured number.
        truth: the true value, above zero.
        digits: number of decimals.

    Example:
        >>> Meter(0.51, truth=2.0).share
        0.255
        >>> Meter(0.51, truth=2.0).text
        '0.510'
    """

    value: float
    truth: float
    digits: int = 3

    def __post_init__(self) -> None:
        check_positive("Meter", "truth", self.truth)

    @property
    def share(self) -> float:
        """`value / truth`, within [0, 1]."""
        return min(max(self.value / self.truth, 0.0), 1.0)

    @property
    def text(self) -> str:
        """The formatted value."""
        return f"{self.value:.{self.digits}f}"


@dataclass(frozen=True)
class Link:
    """A link to another file.

    Attributes:
        text: text of the link.
        target: target, relative to the page.
        note: a line in small print below, if there is room; may be empty.
    """

    text: str
    target: str
    note: str = ""


@dataclass(frozen=True)
class Code:
    """A command line; it is not wrapped."""

    text: str


@dataclass(frozen=True)
class Compared:
    """A number and its reference.

    Attributes:
        text: the number.
        other: the reference; may be empty.
        verdict: the difference in words; may be empty.
        kind: "better", "worse" or "even": decides the colour of the verdict.
    """

    text: str
    other: str = ""
    verdict: str = ""
    kind: str = "even"

    def __post_init__(self) -> None:
        check_choice("Compared", "kind", self.kind, ("better", "worse", "even"))


@dataclass(frozen=True)
class Table:
    """Rows of text and numbers; the first cell is the name of the row.

    A `wide` table takes the full width of the page, and keeps the names of its rows visible when it
    is scrolled sideways.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str | Meter | Link | Code | Compared]]
    caption: str = ""
    wide: bool = False


@dataclass(frozen=True)
class AccuracyCurve:
    """Certified accuracy at every radius, for a slider."""

    radii: Sequence[float]  # of the correct predictions, ascending, rounded down
    total: int  # number of examples


@dataclass(frozen=True)
class Section:
    """A heading and, in this order: text, terms, table, pictures, slider, drawing, links, note.

    Attributes:
        title: the heading.
        paragraphs: plain text; it is escaped.
        terms: terms and their explanations.
        table: a table, or None.
        pictures: shown in a grid of `columns` columns if the screen is wide enough.
        columns: 1, 2 or 3.
        note: a line in small print.
        links: to other files, in one line.
        curve: certified accuracy by radius, as a slider below the pictures.
        drawing: a network that classifies drawings of the reader, above the note.
    """

    title: str
    paragraphs: Sequence[str] = ()
    table: Table | None = None
    pictures: Sequence[Picture] = ()
    columns: int = 1
    note: str = ""
    terms: Sequence[tuple[str, str]] = ()
    links: Sequence[Link] = ()
    curve: AccuracyCurve | None = None
    drawing: Drawing | None = None


@dataclass(frozen=True)
class Page:
    """One self-contained HTML page; `links` stand above its title.

    Example:
        >>> page = Page("Slopes", lead="A < B", sections=[Section("First", ["Some words."])])
        >>> "A &lt; B" in page.render()
        True
    """

    title: str
    lead: str = ""
    sections: Sequence[Section] = ()
    metadata: Sequence[tuple[str, str]] = ()
    links: Sequence[Link] = ()

    def render(self) -> str:
        """Renders the page as HTML with embedded style and pictures."""
        jinja2 = require("jinja2", "report", "a report")
        environment = jinja2.Environment(
            loader=jinja2.PackageLoader("taut.report"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        environment.tests["a"] = isinstance
        kinds = {kind.__name__: kind for kind in (Meter, Link, Code, Compared)}
        return environment.get_template("page.html").render(page=self, **kinds)

    def write(self, path: str | Path) -> Path:
        """Writes the page, creating its folder if needed, and returns its path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.render(), encoding="utf-8")
        return path
