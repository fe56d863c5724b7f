"""The figures of a classifier: accuracy against radius, images, gradient norms, training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.pictures import COLOURS, Picture, draw
from taut.report.classifier_text import ATTACK_NAMES

__all__ = [
    "Tile",
    "draw_curve",
    "draw_gallery",
    "draw_history",
    "draw_radii",
    "draw_slopes",
]

_LINES: dict[str, dict[str, Any]] = {
    "fgsm": {"color": COLOURS["orange"], "marker": "^", "linestyle": (0, (1, 1.5))},
    "pgd": {"color": COLOURS["vermilion"], "marker": "o", "linestyle": (0, (4, 2))},
    "autoattack": {"color": COLOURS["purple"], "marker": "s", "linestyle": (0, (6, 2, 1, 2))},
}
_GAP = 0.08


def draw_curve(
    radii: np.ndarray,
    certified: np.ndarray,
    attacked: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    radius: float,
    label: str,
) -> Picture:
    """Accuracy against the radius: certified as a curve, under attack as points.

    Args:
        radii: growing, from 0.
        certified: certified accuracy at each.
        attacked: for each attack its radii and the accuracy at each.
        radius: target radius, marked.
        label: label of the axis of radii.
    """

    def paint(axes: Any) -> None:
        axes.axvline(radius, color="#999999", linewidth=1, linestyle=":")
        axes.fill_between(radii, 100 * certified, color=COLOURS["sky"], alpha=0.25, linewidth=0)
        axes.plot(radii, 100 * certified, color=COLOURS["blue"], label="certified")
        for name, (places, shares) in attacked.items():
            line = {"markersize": 4.5, "linewidth": 1.2, **_LINES[name]}
            line["drawstyle"] = "steps-post"  # nothing is known until the next radius
            axes.plot(places, 100 * np.array(shares), label=f"under {ATTACK_NAMES[name]}", **line)
        axes.set(xlabel=label, ylabel="% correct", xlim=(0, radii[-1]), ylim=(0, 102))
        axes.legend(loc="lower center", ncols=4, bbox_to_anchor=(0.5, 1.0), handlelength=1.8)

    told = f"Certified accuracy falls from {100 * certified[0]:.1f} % at 0"
    for name, (places, shares) in attacked.items():
        told += f"; {100 * shares[-1]:.1f} % at {places[-1]:.4g} under {ATTACK_NAMES[name]}"
    return draw(paint, alt=f"{told}.", size=(4.6, 3.0))


@dataclass(frozen=True)
class Tile:
    """An image with text below it.

    Attributes:
        image: `(height, width)` or `(height, width, 3)`.
        words: at most three short lines.
        signed: whether it is a map of signed numbers around zero, each on its own scale.
    """

    image: np.ndarray
    words: str = ""
    signed: bool = False


def draw_gallery(
    rows: Sequence[Sequence[Tile]], limits: tuple[float, float], alt: str, title: str = ""
) -> Picture:
    """Rows of tiles of one size; unsigned ones share the scale of brightness `limits`."""
    # At least three places, so that a last tile alone is no larger than those before it.
    across = max(3, *(len(row) for row in rows))
    height, width = rows[0][0].image.shape[:2]
    ratio = height / width
    # Letters keep their size, so fewer tiles abreast leave less of a tile to a line of words.
    lines = [max(tile.words.count("\n") + bool(tile.words) for tile in row) for row in rows]
    # A phone shows a width of 3.6 inches at 1.25 pixels a point, so letters of 9 points are read.
    size = 3.6
    heights = [ratio + _GAP + 0.056 * across * count for count in lines]

    def paint(axes: Any) -> None:
        top = 0.0
        for row, tall in zip(rows, heights, strict=True):
            for place, tile in enumerate(row):
                left = place * (1 + _GAP)
                where = (left, left + 1, top + ratio, top)
                axes.imshow(_visible(tile, limits), extent=where, **_colours(tile))
                axes.text(left + 0.5, top + ratio + 0.04, tile.words, ha="center", va="top", size=9)
            top += tall
        axes.set(xlim=(0, across * (1 + _GAP) - _GAP), ylim=(top, 0))
        axes.set_aspect("equal")
        axes.set_axis_off()

    return draw(
        paint, alt=alt, title=title, size=(size, size * sum(heights) / (across * (1 + _GAP)))
    )


def draw_slopes(shares: np.ndarray, constant: str) -> Picture:
    """Histogram of gradient norms as shares of the Lipschitz constant."""

    def paint(axes: Any) -> None:
        weights = np.full(len(shares), 100 / len(shares))
        edges = np.linspace(0, 1, 41).tolist()
        axes.hist(np.clip(shares, 0, 1), edges, weights=weights, color=COLOURS["green"], alpha=0.8)
        axes.axvline(1, color="black", linewidth=1)
        axes.set(
            xlabel=f"gradient norm / constant (≤ {constant})", ylabel="% of inputs", xlim=(0, 1.02)
        )

    alt = f"Half of the gradient norms are above {np.median(shares):.3f} of the constant."
    return draw(paint, alt=alt, size=(4.6, 2.5))


def draw_radii(radii: np.ndarray, correct: np.ndarray, label: str) -> Picture:
    """Stacked histograms of the certified radii of correct and wrong predictions."""

    def paint(axes: Any) -> None:
        edges = np.linspace(0, float(radii.max()) or 1.0, 41).tolist()
        both = [radii[correct], radii[~correct]]
        weights = [np.full(len(part), 100 / len(radii)) for part in both]
        axes.hist(
            both,
            edges,
            weights=weights,
            stacked=True,
            color=[COLOURS["blue"], COLOURS["vermilion"]],
            label=["correct", "wrong"],
        )
        axes.set(xlabel=label, ylabel="% of inputs", xlim=(0, edges[-1]))
        axes.legend(loc="lower center", ncols=2, bbox_to_anchor=(0.5, 1.0))

    return draw(paint, alt=f"Half of the radii are above {np.median(radii):.4g}.", size=(4.6, 2.7))


def draw_history(history: Sequence[dict[str, Any]], best: int) -> Picture:
    """Accuracy of each epoch, and the epoch that was kept."""
    lines = {
        "accuracy": ("training", {"color": "#999999", "linewidth": 1.2}),
        "clean": ("validation, clean", {"color": COLOURS["orange"]}),
        "certified": ("validation, certified", {"color": COLOURS["blue"]}),
    }

    def paint(axes: Any) -> None:
        for key, (label, style) in lines.items():
            known = [(row["epoch"], 100 * row[key]) for row in history if row[key] is not None]
            if known:
                marker = "o" if len(known) == 1 else None
                axes.plot(*zip(*known, strict=True), label=label, marker=marker, **style)
        axes.axvline(best, color="#999999", linewidth=1, linestyle=":")
        axes.set(xlabel="epoch", ylabel="% correct", ylim=(0, 102))
        axes.legend(loc="lower right")

    last = history[-1]
    return draw(paint, alt=f"{len(history)} epochs, loss {last['loss']:.4g} at the end.")


def _visible(tile: Tile, limits: tuple[float, float]) -> np.ndarray:
    if tile.signed:
        image = tile.image.sum(-1) if tile.image.ndim == 3 else tile.image
        return image / (float(np.abs(image).max()) or 1.0)
    low, high = limits
    return np.clip((tile.image - low) / max(high - low, 1e-300), 0, 1)


def _colours(tile: Tile) -> dict[str, Any]:
    if tile.signed:
        return {"cmap": "PuOr", "vmin": -1, "vmax": 1, "interpolation": "nearest"}
    return {"cmap": "gray", "vmin": 0, "vmax": 1, "interpolation": "nearest"}
