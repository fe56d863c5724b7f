"""Which features and rows of two datasets differ most, according to the critic."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from taut.bounds import format_number
from taut.data import Table as Rows
from taut.plotting import COLOURS, Picture, draw
from taut.report.feature_attribution import attribute
from taut.report.feature_table import feature_records, feature_sections
from taut.report.figures import Tile, as_image, draw_gallery, draw_image
from taut.report.page import Section, Table
from taut.report.sentences import shorten, shows_difference
from taut.transport import WassersteinResult, compare_features, fit_scaling

# Weights of the critic times number of points to score: seconds for the slowest critic.
_WORK = 3 * 10**9
_MOST_FEATURES = 15
_MOST_SHOWN = 6  # features in a row of the table, images in a row of the gallery
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
        """The names of the columns."""
        encoding = self.tables[0].encoding
        if encoding is not None:
            return [column.name for column in encoding.used]
        named = self.tables[0].columns or self.tables[1].columns
        return list(named) or [f"column {j}" for j in range(len(self.parts))]

    @property
    def groups(self) -> list[slice]:
        """The features of each column."""
        encoding = self.tables[0].encoding
        singles = [slice(j, j + 1) for j in range(len(self.parts))]
        return singles if encoding is None else encoding.groups

    @property
    def shares(self) -> list[float]:
        """The contribution of each column, as a part of the difference of scores."""
        return [float(self.parts[group].sum()) / self.total for group in self.groups]

    @property
    def order(self) -> list[int]:
        """The columns by their contribution, the largest first."""
        sizes = torch.stack([self.parts[group].sum().abs() for group in self.groups])
        return sizes.argsort(descending=True, stable=True).tolist()

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
    """Samples rows of both datasets, as many as the critic can score in seconds."""
    size = max(1, sum(parameter.numel() for parameter in result.critic.parameters()))
    most = min(20_000, max(500, _WORK // size))
    picks, scores, points = [], [], []
    for table, stored in zip((x, y), result.scores, strict=True):
        pick = torch.randperm(len(table), generator=generator)[:most].sort().values
        some = replace(table, values=np.ascontiguousarray(table.values[pick.numpy()]))
        picks.append(pick)
        whole = result.finite and len(stored) == len(table)
        scores.append(stored[pick] if whole else result.score(some))
        points.append(result.scaling(torch.from_numpy(some.values)))
    num_pairs = min(256, max(32, _WORK // size // 16))
    parts, total = attribute(result.critic, *points, num_pairs=num_pairs, generator=generator)
    return Details(result, (x, y), names, (*picks,), (*scores,), parts, total)


def features(details: Details) -> list[Section]:
    """The contribution of each feature to the difference of scores; empty if there is no difference."""
    if details.total <= 0:
        return []
    words = (
        "Rows of both datasets are matched by optimal transport, and the change of the critic along "
        "the line between two matched rows is attributed to the features: gradient times displacement, "
        "integrated along the line. The contributions add up to the total."
    )
    if not (details.result.finite or shows_difference(details.result)):
        words += " The datasets are not shown to differ, so these contributions may be chance."
    sign = "A feature with a negative contribution makes the scores more similar."
    if details.has_images:
        note = f"Orange and purple mark the two signs, white is zero. {sign}"
        pictures = _maps(details, (details.parts / details.total).numpy())
        return [Section("Contributions of the pixels", [words], None, pictures, 2, note)]
    shares = details.shares
    first, rest = details.order[:_MOST_FEATURES], details.order[_MOST_FEATURES:]
    bars = [(details.labels[j], shares[j]) for j in first]
    if rest:
        bars.append((f"{len(rest)} others", sum(shares[j] for j in rest)))
    return [Section("Contributions of the columns", [words], pictures=[_bars(bars)], note=sign)]


def column_records(
    result: WassersteinResult, x: Rows, y: Rows, *, seed: int = 0
) -> list[dict[str, Any]]:
    """The data of each column in the report, for JSON; empty for images. Arguments as for the page."""
    details = collect_details(result, x, y, ("A", "B"), Generator().manual_seed(seed))
    if details.has_images:
        return []
    return feature_records(compare_features(x, y), details.shares if details.total > 0 else None)


def columns(details: Details) -> list[Section]:
    """Distances, tests, means and small plots of each column; empty for images."""
    if details.has_images:
        return []
    compared = compare_features(*details.tables)
    shares = details.shares if details.total > 0 else None
    return feature_sections(compared, shares, details.tables, details.names)


def _bars(shares: Sequence[tuple[str, float]]) -> Picture:
    """Draws one bar for each feature, the largest on top."""

    def paint(axes: Any) -> None:
        values = [100 * share for _, share in shares]
        colours = [COLOURS["blue"] if value >= 0 else COLOURS["orange"] for value in values]
        places = range(len(shares))
        bars = axes.barh(places, values, color=colours, height=0.7)
        texts = [f"{round(value, 1) + 0.0:g} %" for value in values]
        axes.bar_label(bars, texts, padding=4, fontsize=10)
        axes.set_yticks(places, [shorten(label) for label, _ in shares])
        axes.invert_yaxis()
        axes.grid(False, axis="y")
        axes.set(xlabel=_SHARES)
        axes.margins(x=0.22, y=0.02)

    description = ", ".join(f"{label} {100 * share:.3g} %" for label, share in shares)
    return draw(
        paint, alt=f"Share of each feature: {description}.", size=(4.6, 0.8 + 0.24 * len(shares))
    )


def _maps(details: Details, shares: np.ndarray) -> list[Picture]:
    """Draws the mean images, their difference, and the contribution of each pixel."""
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
    """The rows of each dataset least like the other; for images, also those most like it."""
    sections = []
    for side, name in enumerate(details.names):
        other = details.names[1 - side]
        ranked = details.scores[side].argsort(descending=side == 0, stable=True)
        places = details.picks[side][ranked].tolist()
        ends = ("highest", "lowest") if side == 0 else ("lowest", "highest")
        num_scored, total = len(places), details.result.rows[side]
        among = (
            f"all {total:,} rows" if num_scored == total else f"{num_scored:,} of {total:,} rows"
        )
        if details.has_images:
            groups = {"Least": places[:_IMAGES], "Most": places[::-1][:_IMAGES]}
            titles = {f"{word} like {other}": some for word, some in groups.items()}
            pictures = [_gallery(details, side, some, title) for title, some in titles.items()]
            note = f"The {ends[0]} and the {ends[1]} scores among {among}."
            sections.append(Section(f"Images of {name}", pictures=pictures, columns=2, note=note))
        else:
            scores = details.scores[side][ranked].tolist()
            table = _table(details, side, places[:_EXTREMES], scores)
            note = f"The {ends[0]} scores among {among}; rows are counted from 0."
            title = f"Rows of {name} least like {other}"
            sections.append(Section(title, table=table, note=note))
    return sections


def _table(details: Details, side: int, positions: Sequence[int], scores: Sequence[float]) -> Table:
    shown, table = details.order[:_MOST_SHOWN], details.tables[side]
    some = table.values[list(positions)]
    encoding = table.encoding
    cells = [[format_number(value) for value in row] for row in some]
    if encoding is not None:
        cells = encoding.decode(some)
    unlike = _unlike(details, side, some)
    rows = [
        [str(position), format_number(score), most, *(row[j] for j in shown)]
        for position, score, most, row in zip(positions, scores, unlike, cells, strict=False)
    ]
    header = ["row", "score", "most unusual", *(details.labels[j] for j in shown)]
    return Table(header, rows, wide=True)


def _unlike(details: Details, side: int, rows: np.ndarray) -> list[str]:
    """For each row, the column farthest from the other dataset, in standard deviations."""
    scale, _ = fit_scaling("standard", torch.from_numpy(details.tables[1 - side].values))
    steps = scale(torch.from_numpy(rows)).numpy()
    away = np.stack([np.linalg.norm(steps[:, group], axis=1) for group in details.groups], 1)
    return [f"{details.labels[j]} ({away[i, j]:.1f} sd)" for i, j in enumerate(away.argmax(1))]


def _gallery(details: Details, side: int, positions: Sequence[int], title: str) -> Picture:
    tiles = [Tile(details.image(details.tables[side].values[position])) for position in positions]
    rows = [tiles[i : i + _MOST_SHOWN] for i in range(0, len(tiles), _MOST_SHOWN)]
    alt = f"{len(tiles)} images of {details.names[side]}: {title.lower()}."
    return draw_gallery(rows, details.limits, alt, title)
