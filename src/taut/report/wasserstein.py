"""The page of a distance between two data sets: the answer, what makes it, what it rests on."""

from collections.abc import Sequence

import numpy as np
from torch import Generator

from taut.data import Table as Rows
from taut.pictures import Picture
from taut.report.page import Page, Section, Table
from taut.report.wasserstein_figures import (
    draw_features,
    draw_image,
    draw_images,
    draw_interval,
    draw_scores,
    draw_training,
)
from taut.report.wasserstein_view import View, look_at
from taut.report.wasserstein_words import UNITS, headline, promises, rounded
from taut.wasserstein import WassersteinResult

__all__ = ["wasserstein_page"]

_MOST_FEATURES = 15
_MOST_SHOWN = 6  # features beside a row
_EXTREMES = 8
_IMAGES = 24
_SHARES = "% of the critic's value"


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
    """The page for one result.

    Args:
        result: what `taut.wasserstein` answered.
        x: rows of the first side, or some of them, in the units they came in.
        y: rows of the second.
        names: what the two are called.
        method: how means were bounded, for the small print.
        facts: how it was run: names and values.
        seed: decides which rows are looked at where there are many.
    """
    view = look_at(result, x, y, names, Generator().manual_seed(seed))
    return Page(
        title=headline(result, names),
        lead=_lead(result),
        sections=[
            _answer(result),
            _numbers(result),
            _scores(result, view),
            *_features(view),
            *_extremes(view),
            *_training(result),
            _small_print(result, method),
        ],
        facts=facts,
    )


def _lead(result: WassersteinResult) -> str:
    whose = (
        "The distance between the two populations that the rows were drawn from"
        if result.population
        else "The distance between the two sets of rows, as they are"
    )
    unit = UNITS[result.scaling.method]
    return f"{whose}: the least mean way from a row of one to a row of the other, {unit}."


def _answer(result: WassersteinResult) -> Section:
    return Section(
        "Where the distance lies",
        pictures=[draw_interval(result)],
        note="A difference is shown once the bar leaves 0.",
    )


def _numbers(result: WassersteinResult) -> Section:
    rows = [
        ["Estimate", f"{result.estimate.value:.4g}", result.estimate.method],
        ["At least", rounded(result.lower.value, "lower"), result.lower.method],
        ["At most", rounded(result.upper.value, "upper"), result.upper.method.partition(";")[0]],
    ]
    if result.p_value is not None:
        rows.append(
            ["p-value", f"{result.p_value:.3g}", "if both were one population, by permutation"]
        )
    constant = rounded(result.lipschitz.value, "upper", 7)
    rows.append(["Critic's constant", f"≤\N{NO-BREAK SPACE}{constant}", f"{result.kind}, proven"])
    notes = [note[:1].upper() + note[1:].rstrip(".") + "." for note in result.notes]
    return Section("In numbers", table=Table(["", "value", "how"], rows), note=" ".join(notes))


def _scores(result: WassersteinResult, view: View) -> Section:
    values = [side.double().numpy() for side in result.scores]
    drop = values[0].mean() - values[1].mean()
    whose = "rows that it was not trained on" if result.population else "all rows"
    return Section(
        "How the critic tells them apart",
        [
            "A critic gives every row a number, and is never steeper than 1: two rows that lie "
            "near each other get values near each other. So the means of its values can be no "
            f"further apart than the two sides are; here they are {drop:.4g} apart, on {whose}. "
            "Where the two hills lie on each other, it cannot tell the sides apart."
        ],
        pictures=[draw_scores(values, view.names)],
    )


def _features(view: View) -> list[Section]:
    if view.total <= 0:
        return []
    words = (
        "Rows of both sides are paired so that the way between them is shortest, and the rise of "
        "the critic along each way is split between the features: gradient times displacement, "
        "summed along the line. The parts add up to the whole."
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
            "Which features move it",
            [words],
            pictures=[draw_features(labels, shares)],
            note="A share below zero belongs to a feature that pulls the other way.",
        ),
        Section(
            "Their means",
            table=Table(["feature", *view.names], rows),
            note=_partly(view),
        ),
    ]


def _image_features(view: View, words: str) -> Section:
    means = [table.values.mean(0, dtype=np.float64) for table in view.tables]
    pictures = []
    for name, mean in zip(view.names, means, strict=True):
        image = view.image(mean)
        assert image is not None
        pictures.append(draw_image(image, f"Mean of {name}", f"Mean of {name}.", view.limits))
    maps = {
        f"{view.names[0]} less {view.names[1]}": means[0] - means[1],
        _SHARES: 100 * view.shares.numpy(),
    }
    for title, values in maps.items():
        image = view.image(values)
        assert image is not None
        if image.ndim == 3:
            # One number a pixel: shares of channels add up, differences are of brightness.
            image = image.sum(-1) if title == _SHARES else image.mean(-1)
        pictures.append(draw_image(image, title, f"Map: {title}."))
    return Section(
        "Which pixels move it",
        [words],
        pictures=pictures,
        columns=2,
        note=(
            "Orange and purple are the two signs, white is zero. A share below zero belongs to a "
            "pixel that pulls the other way."
        ),
    )


def _partly(view: View) -> str:
    """Says so where means are not those of all rows."""
    held = [len(table) for table in view.tables]
    if held == list(view.result.rows):
        return ""
    return f"Means of the first {held[0]:,} and {held[1]:,} rows."


def _extremes(view: View) -> list[Section]:
    sections = []
    for side, other in ((0, 1), (1, 0)):
        ranked = view.scores[side].argsort(descending=side == 0, stable=True)
        places = [int(view.picks[side][i]) for i in ranked]
        scores = [float(view.scores[side][i]) for i in ranked]
        one, two = view.names[side], view.names[other]
        ends = ("highest", "lowest") if side == 0 else ("lowest", "highest")
        seen = f"of the critic among {view.extent(side)}"
        if view.image(view.row(side, places[0])) is None:
            title = f"Rows of {one} least like {two}"
            note = f"The {ends[0]} values {seen}; rows are counted from 0."
            sections.append(Section(title, table=_table(view, side, places, scores), note=note))
        else:
            note = f"The {ends[0]} and the {ends[1]} values {seen}."
            pictures = _pictures(view, side, places)
            sections.append(Section(f"Images of {one}", pictures=pictures, columns=2, note=note))
    return sections


def _table(view: View, side: int, places: list[int], scores: list[float]) -> Table:
    shown = view.order[:_MOST_SHOWN]
    rows = [
        [str(place), f"{score:.4g}", *(f"{view.row(side, place)[j]:.4g}" for j in shown)]
        for place, score in zip(places[:_EXTREMES], scores, strict=False)
    ]
    return Table(["row", "critic", *(view.labels[j] for j in shown)], rows)


def _pictures(view: View, side: int, places: list[int]) -> list[Picture]:
    """The rows furthest out, and those that the critic takes for the other side."""
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
                "The distance that the chosen critic claims on the rows it learns from: too much, "
                "for it knows them. The bounds above come from others."
                if result.population
                else "The distance that the critic claims on the batches it learns from."
            ),
        )
    ]


def _small_print(result: WassersteinResult, method: str) -> Section:
    return Section("What is guaranteed", terms=tuple(promises(result, method).items()))
