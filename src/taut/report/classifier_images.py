"""Inputs on the page of a classifier: with their radii, attacked, and with their gradients."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from torch import Tensor

from taut.certificates import Certificates
from taut.lab.jacobians import input_gradients
from taut.lab.robustness import Attacked, Subject
from taut.report.classifier_figures import Tile, draw_gallery, draw_radii
from taut.report.classifier_words import NORMS, radius_label, unit
from taut.report.page import Meter, Section, Table
from taut.report.wasserstein_figures import as_image
from taut.report.wasserstein_words import rounded

__all__ = ["adversaries", "examples", "gradients"]

Part = TypeVar("Part")
_SHOWN = 6
# No more, or the words below are too small to be read on a phone.
_ABREAST = 3


def _ranked(certificates: Certificates) -> Tensor:
    """The rows that are right, the largest radius first."""
    assert certificates.correct is not None
    right = certificates.correct.nonzero()[:, 0]
    return right[certificates.radius[right].argsort(descending=True, stable=True)]


def _image(subject: Subject, values: Tensor) -> np.ndarray | None:
    shape = subject.spec.shape
    return as_image(values.detach().double().numpy(), shape) if len(shape) == 3 else None


def _limits(subject: Subject) -> tuple[float, float]:
    low, high = subject.spec.low, subject.spec.high
    return (0.0 if low is None else low), (1.0 if high is None else high)


def examples(subject: Subject, certificates: Certificates) -> list[Section]:
    """Right predictions from the largest radius to the smallest; a histogram for tables."""
    ranked, inputs = _ranked(certificates), subject.examples.inputs
    label = radius_label(subject.norm)
    if not len(ranked) or _image(subject, inputs[0]) is None:
        assert certificates.correct is not None
        radii, right = certificates.radius.numpy(), certificates.correct.numpy()
        picture = draw_radii(radii, right, label)
        return [Section("The radii", pictures=[picture], note=f"Radii are {unit(subject.spec)}.")]
    middle = max(0, (len(ranked) - _SHOWN) // 2)
    groups = {
        "Largest radius": ranked[:_SHOWN],
        "Around the median": ranked[middle : middle + _SHOWN],
        "Smallest radius": ranked[-_SHOWN:],
    }
    pictures = []
    for title, rows in groups.items():
        tiles = []
        for row in rows.tolist():
            image = _image(subject, inputs[row])
            assert image is not None
            name = _short(subject.spec.classes[int(certificates.prediction[row])])
            tiles.append(
                Tile(image, f"{name}\n{rounded(float(certificates.radius[row]), 'lower', 3)}")
            )
        alt = f"{len(tiles)} test images with their radii: {title.lower()}."
        pictures.append(draw_gallery(_parts(tiles), _limits(subject), alt, title))
    return [
        Section(
            "Images with their radii",
            ["Rightly classified test images; below each its class and its proven radius."],
            pictures=pictures,
            columns=3,
        )
    ]


def adversaries(attacked: Attacked | None) -> list[Section]:
    """The nearest other predictions that were found, beside what is proven."""
    if attacked is None or attacked.nearest is None:
        return []
    subject, found = attacked.subject, attacked.nearest
    kept = found.success.nonzero()[:, 0].tolist()
    if not kept:
        return []
    title, norm = "The closest adversarial examples found", NORMS[subject.norm.name]
    words = (
        "From each input the nearest other prediction that a search by projected gradients found. "
        "Every distance must be at least the proven radius, and every one is."
    )
    if attacked.violations:
        words = "From each input the nearest other prediction that a search found."
    rows: list[list[str | Meter]] = []
    tiles: tuple[list[Tile], list[Tile], list[Tile]] = ([], [], [])
    for place in kept:
        row = int(attacked.nearest_rows[place])
        before, after = subject.examples.inputs[row], found.examples[place]
        names = [
            _short(subject.spec.classes[int(number)])
            for number in (found.labels[place], found.prediction[place])
        ]
        radius = rounded(float(attacked.certificates.radius[row]), "lower", 3)
        distance = f"{float(found.distance[place]):.3g}"
        rows.append([f"{names[0]} → {names[1]}", radius, distance])
        images = [_image(subject, values) for values in (before, after, after - before)]
        for column, image, text in zip(
            tiles,
            images,
            (f"{names[0]}\nproven {radius}", f"{names[1]}\nfound {distance}", "change"),
            strict=True,
        ):
            if image is not None:
                column.append(Tile(image, text, signed=text == "change"))
    if not tiles[0]:
        table = Table(["prediction", f"proven radius, {norm}", "distance found"], rows)
        return [Section(title, [words], table=table)]
    pictures = []
    for part, told in zip(zip(*map(_parts, tiles), strict=True), _parts(rows), strict=True):
        alt = "; ".join(f"{name}: proven {radius}, found {found}" for name, radius, found in told)
        pictures.append(draw_gallery(part, _limits(subject), f"Adversarial examples. {alt}."))
    note = "Original, adversarial example, and their difference on its own scale of colours."
    return [Section(title, [words], pictures=pictures, columns=2, note=note)]


def gradients(subject: Subject, certificates: Certificates) -> list[Section]:
    """Images beside the gradient of their lead; nothing for tables."""
    ranked = _ranked(certificates)
    if not len(ranked) or _image(subject, subject.examples.inputs[0]) is None:
        return []
    labels = subject.examples.labels[ranked]
    # Of each class the right example in the middle of its radii.
    rows = []
    for number in range(len(subject.spec.classes)):
        of_class = ranked[labels == number]
        rows += [int(of_class[len(of_class) // 2])] if len(of_class) else []
    rows = rows[:_SHOWN]
    x = subject.examples.inputs[rows]
    top, bottom = [], []
    for row, values, slope in zip(rows, x, input_gradients(subject.model, x), strict=True):
        images = _image(subject, values), _image(subject, slope)
        assert images[0] is not None and images[1] is not None
        top.append(Tile(images[0], _short(subject.spec.classes[int(certificates.prediction[row])])))
        bottom.append(Tile(images[1], signed=True))
    pictures = [
        draw_gallery(part, _limits(subject), "Images and their gradients.")
        for part in zip(_parts(top), _parts(bottom), strict=True)
    ]
    return [
        Section(
            "What the classifier looks at",
            [
                "Below each image the gradient of the lead of its class over the next: along it the "
                "lead grows fastest (orange and purple are the two signs). A network that must "
                "spend its slope where it matters has gradients that can be read."
            ],
            pictures=pictures,
            columns=2,
        )
    ]


def _parts(row: Sequence[Part]) -> list[Sequence[Part]]:
    """A row in pieces of as many as stand side by side."""
    return [row[start : start + _ABREAST] for start in range(0, len(row), _ABREAST)]


def _short(name: str, most: int = 12) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
