"""Heat maps of the demonstration: values and slopes of critics over the plane."""

from typing import Any

import numpy as np

from taut.pictures import Picture, draw
from taut.report.demo_run import TaskResult

__all__ = ["draw_map", "draw_surface", "smooth"]


def draw_surface(title: str, heights: np.ndarray, record: TaskResult, low: float) -> Picture:
    """The values of one critic, with contour lines."""
    return draw_map(
        title, heights, record, low, "viridis", "height", f"Heat map: {title}.", lines=True
    )


def draw_map(
    title: str,
    field: np.ndarray,
    record: TaskResult,
    low: float,
    colours: str,
    label: str,
    alt: str,
    ink: str = "white",
    lines: bool = False,
) -> Picture:
    """A heat map over the plane, from `low` to 1, with the supports of both distributions."""
    x, y = (record.task.points[..., axis].numpy() for axis in (0, 1))
    angle = np.linspace(0, 2 * np.pi, 200)

    def paint(axes: Any) -> None:
        extent = (x.min(), x.max(), y.min(), y.max())
        image = axes.imshow(
            field, cmap=colours, vmin=low, vmax=1.0, origin="lower", extent=extent, aspect="equal"
        )
        if lines:
            levels = np.arange(-1, 1.01, 0.25)
            axes.contour(x, y, field, levels=levels, colors="white", linewidths=0.5, alpha=0.7)
        for centre in (-2, 0, 2):
            axes.plot(
                centre + np.cos(angle), np.sin(angle), color=ink, linestyle="--", linewidth=0.9
            )
            axes.plot(centre, 0, "o", color=ink, markersize=2.5)
        axes.grid(False)
        axes.set(xticks=[-2, 0, 2], yticks=[-1, 0, 1])
        axes.spines[:].set_visible(False)
        bar = axes.figure.colorbar(image, ax=axes, fraction=0.022, pad=0.02, label=label)
        bar.outline.set_visible(False)

    return draw(paint, title=title, alt=alt, size=(4.6, 1.95))


def smooth(history: tuple[float, ...], window: int = 25) -> tuple[np.ndarray, np.ndarray]:
    """Moving averages over up to `window` steps, and the step at which each ends."""
    window = min(window, max(1, len(history) // 10))
    values = np.convolve(history, np.ones(window) / window, mode="valid")
    return np.arange(len(values)) + window, values
