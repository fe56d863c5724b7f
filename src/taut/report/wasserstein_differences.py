"""Which features and rows of two datasets differ most, according to the critic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from taut.data import Table as Rows
from taut.plotting import COLOURS, Picture, draw
from taut.report.feature_shares import attribute
from taut.report.figures import Tile, as_image, draw_gallery, draw_image
from taut.report.page import Section, Table
from taut.transport import WassersteinResult

__all__ = ["Details", "collect_details", "extremes", "features"]

# Weights of the critic times points that it scores: seconds for the slowest critic.
_WORK = 3 * 10**9
_MOST_FEATURES = 15
_MOST_SHOWN = 6  # features beside a row, images abreast
_EXTREMES = 8
_IMAGES = 24
_SHARES = "% of the difference of scores"


@dataclass(frozen=True)
class Details:
    """Some rows of both datasets, their scores, and the contributions of the features."""

    result: WassersteinResult
    tables: tuple[Rows, Rows]
    names: tuple[str, str]
    picks: tuple[Tensor, Tensor]
    scores: tuple[Tensor, Tensor]
    parts: Tensor
    total: float

    @property
    def labels(self) -> list[str]:
        """The names of the features."""
        named = self.tables[0].columns or self.tables[1].columns
        return list(named) or [f"column {j}" for j in range(len(self.parts))]

    @property
    def order(self) -> list[int]:
        """The features by their contribution, the largest first."""
        return self.parts.abs().argsort(descending=True, stable=True).tolist()

    @property
    def means(self) -> list[np.ndarray]:
        """The means of the features of both datasets."""
        return [table.values.mean(0, dtype=np.float64) for table in self.tables]

    @property
    def has_images(self) -> bool:
        """Whether rows are pictures."""
        shape = self.tables[0].image_shape
        return shape is not None and as_image(self.tables[0].values[0], shape) is not None

    def image(self, row: np.ndarray) -> np.ndarray:
        """The row as a picture."""
        image = as_image(row, self.tables[0].image_shape or ())
        assert image is not None
        return image

    @property
    def limits(self) -> tuple[float, float]:
        """Black and white, the same for every picture."""
        values = [table.values for table in self.tables]
        low, high = min(v.min() for v in values), max(v.max() for v in values)
        return (min(0.0, float(low)), float(high))


def collect_details(
    result: WassersteinResult, x: Rows, y: Rows, names: tuple[str, str], generator: Generator
) -> Details:
    """Draws rows of both datasets, as many as the critic can score in seconds."""
    size = max(1, sum(parameter.numel() for parameter in result.critic.parameters()))
    most = min(20_000, max(500, _WORK // size))
    picks, scores, points = [], [], []
    for table, known in zip((x, y), result.scores, strict=True):
        pick = torch.randperm(len(table), generator=generator)[:most].sort().values
        rows = torch.from_numpy(np.ascontiguousarray(table.values[pick.numpy()])).double()
        picks.append(pick)
        whole = result.finite and len(known) == len(table)
        scores.append(known[pick] if whole else result.score(rows))
        points.append(result.scaling(rows))
    num_pairs = min(256, max(32, _WORK // size // 16))
    parts, total = attribute(result.critic, *points, num_pairs=num_pairs, generator=generator)
    return Details(result, (x, y), names, (*picks,), (*scores,), parts, total)


def features(details: Details) -> list[Section]:
    """The contribution of each feature to the difference of scores; none where there is none."""
    if details.total <= 0:
        return []
    words = (
        "Rows of both datasets are matched by optimal transport, and the change of the critic along "
        "each line is attributed to the features: gradient times displacement, integrated along the "
        "line. The contributions add up to the total."
    )
    sign = "A negative contribution belongs to a feature that moves the other way."
    shares = (details.parts / details.total).numpy()
    if details.has_images:
        note = f"Orange and purple are the two signs, white is zero. {sign}"
        pictures = _maps(details, shares)
        return [Section("Contributions of the pixels", [words], None, pictures, 2, note)]
    first, rest = details.order[:_MOST_FEATURES], details.order[_MOST_FEATURES:]
    bars = [(details.labels[j], float(shares[j])) for j in first]
    if rest:
        bars.append((f"{len(rest)} others", float(shares[rest].sum())))
    rows = [[details.labels[j], *(f"{mean[j]:.4g}" for mean in details.means)] for j in first]
    held = [len(table) for table in details.tables]
    part = "" if held == list(details.result.rows) else "Means of the first {:,} and {:,} rows."
    return [
        Section("Contributions of the features", [words], pictures=[_bars(bars)], note=sign),
        Section(
            "Means of the features",
            table=Table(["feature", *details.names], rows),
            note=part.format(*held),
        ),
    ]


def _bars(shares: Sequence[tuple[str, float]]) -> Picture:
    """One bar for each feature, the largest on top."""

    def paint(axes: Any) -> None:
        short = [label if len(label) <= 24 else f"{label[:23]}…" for label, _ in shares]
        values = [100 * share for _, share in shares]
        colours = [COLOURS["blue"] if value >= 0 else COLOURS["orange"] for value in values]
        places = range(len(shares))
        bars = axes.barh(places, values, color=colours, height=0.7)
        axes.bar_label(bars, [f"{value:.3g} %" for value in values], padding=4, fontsize=8)
        axes.set_yticks(places, short)
        axes.invert_yaxis()
        axes.grid(False, axis="y")
        axes.set(xlabel=_SHARES)
        axes.margins(x=0.18, y=0.02)

    told = ", ".join(f"{label} {100 * share:.3g} %" for label, share in shares)
    return draw(paint, alt=f"Share of each feature: {told}.", size=(4.6, 0.8 + 0.24 * len(shares)))


def _maps(details: Details, shares: np.ndarray) -> list[Picture]:
    """The mean images, their difference, and the contribution of each pixel."""
    one, two = details.means
    pictures = [
        draw_image(details.image(mean), f"Mean of {name}", f"Mean of {name}.", details.limits)
        for name, mean in zip(details.names, (one, two), strict=True)
    ]
    maps = {" minus ".join(details.names): one - two, _SHARES: 100 * shares}
    for title, values in maps.items():
        image = details.image(values)
        if image.ndim == 3:
            # One number per pixel: contributions of channels add up, differences are of brightness.
            image = image.sum(-1) if title == _SHARES else image.mean(-1)
        pictures.append(draw_image(image, title, f"Map: {title}."))
    return pictures


def extremes(details: Details) -> list[Section]:
    """The rows of each dataset that are least like the other; images also the most like it."""
    sections = []
    for side, name in enumerate(details.names):
        other = details.names[1 - side]
        ranked = details.scores[side].argsort(descending=side == 0, stable=True)
        places = details.picks[side][ranked].tolist()
        ends = ("highest", "lowest") if side == 0 else ("lowest", "highest")
        seen, total = len(places), details.result.rows[side]
        among = f"all {total:,} rows" if seen == total else f"{seen:,} of {total:,} rows"
        if details.has_images:
            groups = {"Least": places[:_IMAGES], "Most": places[::-1][:_IMAGES]}
            pictures = [
                _gallery(details, side, some, f"{word} like {other}")
                for word, some in groups.items()
            ]
            note = f"The {ends[0]} and the {ends[1]} scores among {among}."
            sections.append(Section(f"Images of {name}", pictures=pictures, columns=2, note=note))
        else:
            scores = details.scores[side][ranked].tolist()
            table = _table(details, side, places[:_EXTREMES], scores)
            note = f"The {ends[0]} scores among {among}; rows are counted from 0."
            title = f"Rows of {name} least like {other}"
            sections.append(Section(title, table=table, note=note))
    return sections


def _table(details: Details, side: int, places: Sequence[int], scores: Sequence[float]) -> Table:
    shown, values = details.order[:_MOST_SHOWN], details.tables[side].values
    rows = [
        [str(place), f"{score:.4g}", *(f"{values[place][j]:.4g}" for j in shown)]
        for place, score in zip(places, scores, strict=False)
    ]
    return Table(["row", "score", *(details.labels[j] for j in shown)], rows)


def _gallery(details: Details, side: int, places: Sequence[int], title: str) -> Picture:
    tiles = [Tile(details.image(details.tables[side].values[place])) for place in places]
    rows = [tiles[i : i + _MOST_SHOWN] for i in range(0, len(tiles), _MOST_SHOWN)]
    alt = f"{len(tiles)} images of {details.names[side]}: {title.lower()}."
    return draw_gallery(rows, details.limits, alt, title)
