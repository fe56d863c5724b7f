"""Figures in one style, as files and embedded in reports."""

import base64
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
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

_MOST_POINTS = 200  # of a line, in a page
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
    "font.size": 11,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.fontsize": 10,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "savefig.dpi": 144,
    "svg.fonttype": "path",
    "svg.hashsalt": "taut",  # equal figures give equal bytes
    "text.color": _INK,
    "xtick.color": "#666666",
    "xtick.major.size": 0,
    "xtick.major.pad": 7,  # the first labels of both axes do not touch
    "ytick.color": "#666666",
    "ytick.major.size": 0,
}


@dataclass(frozen=True)
class Picture:
    """A drawn figure; its `source` is a `data:` address that holds the image.

    A `chart` consists of lines and letters alone, so that dark pages may invert its colours. `data`
    is what the page needs to show values at the pointer ("lines"), or a surface to turn ("heights").
    """

    source: str
    alt: str
    caption: str = ""
    title: str = ""
    chart: bool = False
    data: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Figure:
    """A figure to be drawn, for a report or for a paper.

    Attributes:
        paint: draws on the axes that it is given.
        alt: description for readers who cannot see the figure.
        caption: a line below it; may be empty.
        title: a line above it; may be empty.
        size: width and height in inches. The text is 11 points high, so a narrow figure has
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
        return self._draw(kind)[0]

    def embed(self) -> Picture:
        """The figure as part of a report; readers can point at its lines to see their values."""
        drawn, axes = self._draw("svg")
        source = f"data:image/svg+xml;base64,{base64.b64encode(drawn).decode('ascii')}"
        chart = self.projection is None and b"<image" not in drawn
        data = _pointed(axes) if chart else None
        return Picture(source, self.alt, self.caption, self.title, chart, data)

    def _draw(self, kind: str) -> "tuple[bytes, Axes]":
        matplotlib = require("matplotlib", "report", "drawing a figure")
        figures = require("matplotlib.figure", "report", "drawing a figure")
        if self.projection == "3d":
            require("mpl_toolkits.mplot3d", "report", "drawing a surface")
        with matplotlib.rc_context(STYLE):
            figure = figures.Figure(figsize=self.size, layout="constrained")
            axes = figure.add_subplot(projection=self.projection)
            self.paint(axes)
            buffer = io.BytesIO()
            stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
            figure.savefig(buffer, format=kind, metadata=stamp)
        return buffer.getvalue(), axes


def _pointed(axes: "Axes") -> dict[str, Any] | None:
    """Where the axes are in the figure, their limits, and the values of lines and bars; None without any.

    A line whose `gid` is "lower" or "upper" is a bound, and its values are rounded outward.
    """
    lines = [*_lines(axes), *_bars(axes)]
    if not lines:
        return None
    place = axes.get_position()
    return {
        "box": [place.x0, 1 - place.y1, place.width, place.height],
        "label": axes.get_xlabel(),
        "limits": list(axes.get_xlim()),
        "log": axes.get_xscale() == "log",
        "lines": lines,
    }


def _lines(axes: "Axes") -> Iterator[dict[str, Any]]:
    for line in axes.get_lines():
        points: Any = line.get_xydata()
        known = [(x, y) for x, y in points.astype(float).tolist() if math.isfinite(x + y)]
        named = not str(line.get_label()).startswith("_")
        rising = all(a[0] <= b[0] for a, b in pairwise(known))
        if known and named and rising and line.get_transform() == axes.transData:
            thin = known[:: 1 + len(known) // _MOST_POINTS]
            thin += known[-1:] if thin[-1:] != known[-1:] else []
            steps = str(line.get_drawstyle()).startswith("steps-post")
            yield _values(str(line.get_label()), thin, steps, line.get_gid() or "")


def _bars(axes: "Axes") -> Iterator[dict[str, Any]]:
    for bars in axes.containers:
        if getattr(bars, "orientation", None) == "vertical":
            boxes: list[Any] = list(bars)
            ends = [(box.get_x(), box.get_height()) for box in boxes]
            ends.append((boxes[-1].get_x() + boxes[-1].get_width(), 0.0))
            names = [str(each.get_label()) for each in (bars, boxes[0])]
            named = [name for name in names if not name.startswith("_")]
            yield _values(named[0] if named else axes.get_ylabel(), ends, True)


def _values(
    name: str, points: Sequence[tuple[float, float]], steps: bool, bound: str = ""
) -> dict[str, Any]:
    x, y = [_rounded(a) for a, _ in points], [_rounded(b, bound) for _, b in points]
    return {"name": name, "x": x, "y": y, "steps": steps, "bound": bound}


def _rounded(value: float, bound: str = "") -> float:
    """To five digits; down where it is a lower bound, up where it is an upper one."""
    near = float(f"{value:.5g}")
    if (bound == "lower" and near > value) or (bound == "upper" and near < value):
        digit = 10.0 ** (math.floor(math.log10(abs(value))) - 4)
        near = float(f"{near + (digit if near < value else -digit):.5g}")
    return near


def draw(paint: "Callable[[Axes], None]", **options: Any) -> Picture:
    """Draws one figure for a report; the options are those of `Figure`.

    Small multiples are several pictures side by side, not one picture with several axes: the page
    can then stack them on a narrow screen, and their letters stay legible.
    """
    return Figure(paint, **options).embed()
