"""The report of a distance between two data sets: bounds, features, extreme rows, guarantees."""

from collections.abc import Sequence

import numpy as np
from torch import Generator

from taut.data import Table as Rows
from taut.pictures import Picture
from taut.report.numbers import format_bound
from taut.report.page import Page, Section, Table
from taut.report.wasserstein_details import Details, collect_details
from taut.report.wasserstein_figures import (
    draw_features,
    draw_image,
    draw_images,
    draw_interval,
    draw_scores,
    draw_training,
)
from taut.report.wasserstein_text import UNITS, distance_guarantees, distance_headline
from taut.transport import WassersteinResult

__all__ = ["wasserstein_page"]

_MOST_FEATURES = 15
_MOST_SHOWN = 6  # features beside a row
_EXTREMES = 8
_IMAGES = 24
_SHARES = "% of the difference of scores"


def wasserstein_page(
    result: WassersteinResult,
    x: Rows,
    y: Rows,
    *,
    names: tuple[str, str] = ("A", "B"),
    method: str = "",
    facts: Sequence[tuple[str, str]] = (),
    seed: int = 0,
) -> Page:
    """The report of one result.

    Args:
        result: result of `taut.wasserstein`.
        x: rows of the first data set, or some of them, in their original units.
        y: rows of the second data set.
        names: names of the two data sets.
        method: confidence bound of the means.
        facts: metadata of the run: names and values.
        seed: random seed of the choice of rows where there are many.
    """
    view = collect_details(result, x, y, names, Generator().manual_seed(seed))
    return Page(
        title=distance_headline(result, names),
        lead=_lead(result),
        sections=[
            _answer(result),
            _numbers(result),
            _scores(result, view),
            *_features(view),
            *_extremes(view),
            *_training(result),
            _guarantees(result, method),
        ],
        facts=facts,
    )


def _lead(result: WassersteinResult) -> str:
    whose = (
        "The distance between the two finite sets of rows"
        if result.finite
        else "The distance between the two populations behind the samples"
    )
    unit = UNITS[result.scaling.method]
    return f"{whose}: the smallest average distance that mass has to travel, {unit}."


def _answer(result: WassersteinResult) -> Section:
    return Section(
        "Bounds of the distance",
        pictures=[draw_interval(result)],
        note="A difference is proven where the bar does not reach 0.",
    )


def _numbers(result: WassersteinResult) -> Section:
    rows = [
        ["Estimate", f"{result.estimate.value:.4g}", result.estimate.method],
        ["At least", format_bound(result.lower.value, "lower"), result.lower.method],
        ["At most", format_bound(result.upper.value, "upper"), result.upper.method],
    ]
    if result.p_value is not None:
        rows.append(
            ["p-value", f"{result.p_value:.3g}", "that both are one population, by permutation"]
        )
    constant = format_bound(result.lipschitz.value, "upper", 7)
    rows.append(
        ["Constant of the critic", f"≤\N{NO-BREAK SPACE}{constant}", f"{result.kind}, proven"]
    )
    notes = [note[:1].upper() + note[1:].rstrip(".") + "." for note in result.notes]
    return Section("In numbers", table=Table(["", "value", "method"], rows), note=" ".join(notes))


def _scores(result: WassersteinResult, view: Details) -> Section:
    values = [side.double().numpy() for side in result.scores]
    drop = values[0].mean() - values[1].mean()
    whose = "all rows" if result.finite else "held-out rows"
    return Section(
        "Scores of the critic",
        [
            "A critic gives every row a score and has Lipschitz constant at most 1: rows that are "
            "close have close scores. So the mean scores of the two data sets differ by at most "
            f"their distance; here they differ by {drop:.4g} on {whose}. Where the two histograms "
            "overlap, the critic cannot tell the data sets apart."
        ],
        pictures=[draw_scores(values, view.names)],
    )


def _features(view: Details) -> list[Section]:
    if view.total <= 0:
        return []
    words = (
        "Rows of both data sets are matched by optimal transport, and the change of the critic along "
        "each line is attributed to the features: gradient times displacement, integrated along the "
        "line. The contributions add up to the total."
    )
    image = view.image(view.parts.numpy())
    if image is not None:
        return [_image_features(view, words)]
    first = view.order[:_MOST_FEATURES]
    labels = [view.labels[j] for j in first]
    shares = [float(view.shares[j]) for j in first]
    if len(view.order) > _MOST_FEATURES:
        rest = view.order[_MOST_FEATURES:]
        labels.append(f"{len(rest)} others")
        shares.append(float(view.shares[rest].sum()))
    means = [table.values.mean(0, dtype=np.float64) for table in view.tables]
    rows = [[view.labels[j], *(f"{mean[j]:.4g}" for mean in means)] for j in first]
    return [
        Section(
            "Contributions of the features",
            [words],
            pictures=[draw_features(labels, shares)],
            note="A negative contribution belongs to a feature that moves the other way.",
        ),
        Section(
            "Means of the features",
            table=Table(["feature", *view.names], rows),
            note=_partly(view),
        ),
    ]


def _image_features(view: Details, words: str) -> Section:
    means = [table.values.mean(0, dtype=np.float64) for table in view.tables]
    pictures = []
    for name, mean in zip(view.names, means, strict=True):
        image = view.image(mean)
        assert image is not None
        pictures.append(draw_image(image, f"Mean of {name}", f"Mean of {name}.", view.limits))
    maps = {
        f"{view.names[0]} minus {view.names[1]}": means[0] - means[1],
        _SHARES: 100 * view.shares.numpy(),
    }
    for title, values in maps.items():
        image = view.image(values)
        assert image is not None
        if image.ndim == 3:
            # One number per pixel: contributions of channels add up, differences are of brightness.
            image = image.sum(-1) if title == _SHARES else image.mean(-1)
        pictures.append(draw_image(image, title, f"Map: {title}."))
    return Section(
        "Contributions of the pixels",
        [words],
        pictures=pictures,
        columns=2,
        note=(
            "Orange and purple are the two signs, white is zero. A negative contribution belongs to "
            "a pixel that moves the other way."
        ),
    )


def _partly(view: Details) -> str:
    """A note where the means are not those of all rows."""
    held = [len(table) for table in view.tables]
    if held == list(view.result.rows):
        return ""
    return f"Means of the first {held[0]:,} and {held[1]:,} rows."


def _extremes(view: Details) -> list[Section]:
    sections = []
    for side, other in ((0, 1), (1, 0)):
        ranked = view.scores[side].argsort(descending=side == 0, stable=True)
        places = [int(view.picks[side][i]) for i in ranked]
        scores = [float(view.scores[side][i]) for i in ranked]
        one, two = view.names[side], view.names[other]
        ends = ("highest", "lowest") if side == 0 else ("lowest", "highest")
        seen = f"scores among {view.extent(side)}"
        if view.image(view.row(side, places[0])) is None:
            title = f"Rows of {one} least like {two}"
            note = f"The {ends[0]} {seen}; rows are counted from 0."
            sections.append(Section(title, table=_table(view, side, places, scores), note=note))
        else:
            note = f"The {ends[0]} and the {ends[1]} {seen}."
            pictures = _pictures(view, side, places)
            sections.append(Section(f"Images of {one}", pictures=pictures, columns=2, note=note))
    return sections


def _table(view: Details, side: int, places: list[int], scores: list[float]) -> Table:
    shown = view.order[:_MOST_SHOWN]
    rows = [
        [str(place), f"{score:.4g}", *(f"{view.row(side, place)[j]:.4g}" for j in shown)]
        for place, score in zip(places[:_EXTREMES], scores, strict=False)
    ]
    return Table(["row", "score", *(view.labels[j] for j in shown)], rows)


def _pictures(view: Details, side: int, places: list[int]) -> list[Picture]:
    """The most extreme rows, and those that look most like the other data set."""
    name, other = view.names[side], view.names[1 - side]
    groups = {f"Least like {other}": places[:_IMAGES], f"Most like {other}": places[::-1][:_IMAGES]}
    pictures = []
    for title, some in groups.items():
        images = [image for i in some if (image := view.image(view.row(side, i))) is not None]
        alt = f"{len(images)} images of {name}: {title.lower()}."
        pictures.append(draw_images(images, view.limits, title, alt))
    return pictures


def _training(result: WassersteinResult) -> list[Section]:
    if not result.history:
        return []
    return [
        Section(
            "Training",
            pictures=[draw_training(result.history)],
            note=(
                "The dual value of the critic on its training batches."
                if result.finite
                else "The dual value of the selected critic on its training rows, which is too "
                "large because of overfitting. The bounds above come from held-out rows."
            ),
        )
    ]


def _guarantees(result: WassersteinResult, method: str) -> Section:
    return Section("Guarantees", terms=tuple(distance_guarantees(result, method).items()))
