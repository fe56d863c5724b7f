"""The pictures of a distance between data sets."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from taut.pictures import COLOURS, Picture, draw
from taut.report.numbers import format_bound
from taut.transport import WassersteinResult

__all__ = [
    "as_image",
    "draw_features",
    "draw_image",
    "draw_images",
    "draw_interval",
    "draw_scores",
    "draw_training",
]

_SIDES = (COLOURS["blue"], COLOURS["vermilion"])
_SOFT = "#c8ccd1"


def draw_interval(result: WassersteinResult) -> Picture:
    """The bounds as a bar, the estimate as a mark on it, zero at the left."""
    low, high, middle = result.lower.value, result.upper.value, result.estimate.value

    def paint(axes: Any) -> None:
        reach = max(high, middle, 1e-300) * 1.06
        axes.barh(0, reach, color="#f3f4f5", height=0.34)
        axes.barh(0, max(high - low, reach / 300), left=low, color=COLOURS["sky"], height=0.34)
        # A bar without width would be lost; its ends are drawn as well.
        for end in (low, high):
            axes.plot([end, end], [-0.24, 0.24], color=COLOURS["blue"], solid_capstyle="butt")
        axes.plot(middle, 0, "D", color="black", markersize=6)
        close = high - low < 0.3 * reach
        if close:
            words = f"{format_bound(low, 'lower')} to {format_bound(high, 'upper')}"
            side = "right" if low > reach / 2 else "left"
            axes.text((high if side == "right" else low), 0.36, words, ha=side, va="bottom")
        else:
            left = "left" if low < 0.12 * reach else "center"
            axes.text(low, 0.36, f"at least {format_bound(low, 'lower')}", ha=left, va="bottom")
            axes.text(high, 0.36, f"at most {format_bound(high, 'upper')}", ha="right", va="bottom")
        side = "center" if 0.15 * reach < middle < 0.85 * reach else "right"
        side = "left" if middle <= 0.15 * reach else side
        axes.text(middle, -0.36, f"estimate {middle:.4g}", ha=side, va="top")
        axes.set(xlim=(min(0, middle), reach), ylim=(-0.75, 0.75), yticks=[])
        axes.grid(False)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("Wasserstein-1 distance")

    return draw(
        paint,
        alt=f"Between {low:.4g} and {high:.4g}; estimate {middle:.4g}.",
        size=(4.6, 1.55),
    )


def draw_scores(scores: Sequence[np.ndarray], names: Sequence[str]) -> Picture:
    """Overlaid histograms of the scores of both data sets, with their means."""
    together = np.concatenate(scores)
    edges = np.histogram_bin_edges(together, bins=min(50, max(10, int(math.sqrt(len(together))))))

    def paint(axes: Any) -> None:
        for values, name, colour, line in zip(scores, names, _SIDES, ("-", "--"), strict=True):
            weights = np.full(len(values), 100 / len(values))
            axes.hist(values, edges, weights=weights, color=colour, alpha=0.35)
            axes.hist(values, edges, weights=weights, color=colour, histtype="step", linestyle=line)
            label = f"{name}, mean {values.mean():.4g}"
            axes.axvline(values.mean(), color=colour, linestyle=line, linewidth=1.4, label=label)
        axes.set(xlabel="score", ylabel="% of rows")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2)

    means = " and ".join(
        f"{name} {values.mean():.4g}" for name, values in zip(names, scores, strict=True)
    )
    return draw(paint, alt=f"Histograms of the scores. Means: {means}.", size=(4.6, 3.1))


def draw_features(labels: Sequence[str], shares: Sequence[float]) -> Picture:
    """One bar for each feature, the largest on top."""
    short = [label if len(label) <= 24 else f"{label[:23]}…" for label in labels]

    def paint(axes: Any) -> None:
        places = range(len(shares))[::-1]
        colours = [COLOURS["blue"] if share >= 0 else COLOURS["orange"] for share in shares]
        axes.barh(places, [100 * share for share in shares], color=colours, height=0.7)
        for place, share in zip(places, shares, strict=True):
            axes.annotate(
                f"{100 * share:.3g} %",
                (100 * max(share, 0), place),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        axes.set_yticks(places, short)
        axes.grid(False, axis="y")
        axes.set(xlabel="% of the difference of scores")
        axes.margins(x=0.18, y=0.02)

    told = ", ".join(f"{a} {100 * b:.3g} %" for a, b in zip(labels, shares, strict=True))
    return draw(paint, alt=f"Share of each feature: {told}.", size=(4.6, 0.8 + 0.24 * len(shares)))


def draw_training(history: Sequence[float]) -> Picture:
    """The dual value along the training."""

    def paint(axes: Any) -> None:
        axes.plot(range(1, len(history) + 1), history, color=_SOFT, linewidth=1)
        window = max(1, len(history) // 40)
        smooth = np.convolve(history, np.ones(window) / window, mode="valid")
        axes.plot(np.arange(len(smooth)) + (window + 1) / 2, smooth, color=COLOURS["blue"])
        axes.set(xlabel="step", ylabel="dual value", xlim=(1, max(2, len(history))))

    alt = f"From {history[0]:.4g} to {history[-1]:.4g} in {len(history)} steps."
    return draw(paint, alt=alt, size=(4.6, 2.6))


def as_image(row: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """A row as `(height, width)` or `(height, width, 3)`; None where no picture has that shape.

    Example:
        >>> as_image(np.arange(12), (3, 2, 2)).shape, as_image(np.arange(4), (1, 2, 2)).shape
        ((2, 2, 3), (2, 2))
    """
    image = row.reshape(shape)
    if image.ndim == 3 and image.shape[0] == 1:
        image = image[0]
    elif image.ndim == 3 and image.shape[-1] == 1:
        image = image[..., 0]
    elif image.ndim == 3 and image.shape[0] == 3:
        image = image.transpose(1, 2, 0)
    coloured = image.ndim == 3 and image.shape[-1] == 3
    return image if image.ndim == 2 or coloured else None


def draw_images(
    images: Sequence[np.ndarray], limits: tuple[float, float], title: str, alt: str, across: int = 6
) -> Picture:
    """Images in a grid, all on one scale of brightness."""
    height, width = images[0].shape[:2]
    gap = max(1, round(0.06 * max(height, width)))
    down = math.ceil(len(images) / across)
    room = (down * (height + gap) - gap, across * (width + gap) - gap, *images[0].shape[2:])
    board = np.ones(room)
    for place, image in enumerate(images):
        top, left = (place // across) * (height + gap), (place % across) * (width + gap)
        board[top : top + height, left : left + width] = _brightness(image, limits)

    def paint(axes: Any) -> None:
        axes.imshow(board, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_axis_off()

    return draw(paint, alt=alt, title=title, size=(4.6, 4.6 * room[0] / room[1]))


def draw_image(
    image: np.ndarray, title: str, alt: str, limits: tuple[float, float] | None = None
) -> Picture:
    """One image; without limits it is a map of signed numbers around zero."""

    def paint(axes: Any) -> None:
        if limits is None:
            far = float(np.abs(image).max()) or 1.0
            shown = axes.imshow(image, cmap="PuOr", vmin=-far, vmax=far, interpolation="nearest")
        else:
            shown = axes.imshow(
                _brightness(image, limits), cmap="gray", vmin=0, vmax=1, interpolation="nearest"
            )
        axes.set_axis_off()
        if limits is None:
            bar = axes.figure.colorbar(shown, ax=axes, fraction=0.045, pad=0.03)
            bar.outline.set_visible(False)

    return draw(paint, alt=alt, title=title, size=(3.4, 2.7))


def _brightness(image: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    low, high = limits
    return np.clip((image - low) / max(high - low, 1e-300), 0, 1)
