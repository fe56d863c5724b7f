"""Figures in one style, as files and embedded in reports."""

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from taut.errors import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "STYLE", "Figure", "Picture", "draw"]

# Okabe and Ito's palette: distinguishable with any kind of colour vision.
COLOURS = {
    "black": "#000000",
    "orange": "#e69f00",
    "sky": "#56b4e9",
    "green": "#009e73",
    "yellow": "#f0e442",
    "blue": "#0072b2",
    "vermilion": "#d55e00",
    "purple": "#cc79a7",
}

_INK = "#333333"
STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#999999",
    "axes.grid": True,
    "axes.labelcolor": _INK,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",  # bundled with matplotlib, so every machine draws the same
    "font.size": 10,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "savefig.dpi": 144,
    "svg.fonttype": "path",
    "svg.hashsalt": "taut",  # equal figures give equal bytes
    "text.color": _INK,
    "xtick.color": "#666666",
    "xtick.major.size": 0,
    "ytick.color": "#666666",
    "ytick.major.size": 0,
}


@dataclass(frozen=True)
class Picture:
    """A drawn figure; its `source` is a `data:` address that holds the image.

    A `chart` consists of lines and letters alone, so that dark pages may invert its colours.
    """

    source: str
    alt: str
    caption: str = ""
    title: str = ""
    chart: bool = False


@dataclass(frozen=True)
class Figure:
    """A figure to be drawn, for a report or for a paper.

    Attributes:
        paint: draws on the axes that it is given.
        alt: description for readers who cannot see the figure.
        caption: a line below it; may be empty.
        title: a line above it; may be empty.
        size: width and height in inches. The text is 10 points high, so a narrow figure has
            larger letters once it is scaled to the page.
        projection: projection of the axes: None for a plane, "3d" for a surface.
    """

    paint: "Callable[[Any], None]"
    alt: str
    caption: str = ""
    title: str = ""
    size: tuple[float, float] = (4.6, 2.9)
    projection: str | None = None

    def render(self, kind: str = "svg") -> bytes:
        """The content of a file of that kind: "svg", "png" or "pdf". Equal figures, equal bytes."""
        matplotlib = require("matplotlib", "report", "drawing a figure")
        figures = require("matplotlib.figure", "report", "drawing a figure")
        if self.projection == "3d":
            require("mpl_toolkits.mplot3d", "report", "drawing a surface")
        with matplotlib.rc_context(STYLE):
            figure = figures.Figure(figsize=self.size, layout="constrained")
            self.paint(figure.add_subplot(projection=self.projection))
            buffer = io.BytesIO()
            stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
            figure.savefig(buffer, format=kind, metadata=stamp)
        return buffer.getvalue()

    def embed(self) -> Picture:
        """The figure as part of a report."""
        drawn = self.render("svg")
        source = f"data:image/svg+xml;base64,{base64.b64encode(drawn).decode('ascii')}"
        chart = self.projection is None and b"<image" not in drawn
        return Picture(source, self.alt, self.caption, self.title, chart)


def draw(paint: "Callable[[Axes], None]", **options: Any) -> Picture:
    """Draws one figure for a report; the options are those of `Figure`.

    Small multiples are several pictures side by side, not one picture with several axes: the page
    can then stack them on a narrow screen, and their letters stay legible.
    """
    return Figure(paint, **options).embed()
