"""Images in the report of a classifier: with certified radii, adversarial, and gradients."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from torch import Tensor

from taut.certificates import Certificates
from taut.evaluation import EvaluatedClassifier, RobustnessResult, input_gradients
from taut.report.classifier_figures import Tile, draw_gallery, draw_radii
from taut.report.classifier_text import NORM_NAMES, radius_label, radius_unit
from taut.report.numbers import format_bound
from taut.report.page import Meter, Section, Table
from taut.report.wasserstein_figures import as_image

__all__ = ["adversaries", "examples", "gradients"]

Part = TypeVar("Part")
_SHOWN = 6
# No more, or the text below is too small to be read on a phone.
_ABREAST = 3


def _ranked(certificates: Certificates) -> Tensor:
    """The rows that are classified correctly, the largest radius first."""
    assert certificates.correct is not None
    right = certificates.correct.nonzero()[:, 0]
    return right[certificates.radius[right].argsort(descending=True, stable=True)]


def _image(classifier: EvaluatedClassifier, values: Tensor) -> np.ndarray | None:
    shape = classifier.spec.shape
    return as_image(values.detach().double().numpy(), shape) if len(shape) == 3 else None


def _limits(classifier: EvaluatedClassifier) -> tuple[float, float]:
    low, high = classifier.spec.low, classifier.spec.high
    return (0.0 if low is None else low), (1.0 if high is None else high)


def examples(classifier: EvaluatedClassifier, certificates: Certificates) -> list[Section]:
    """Correct predictions from the largest radius to the smallest; a histogram for tables."""
    ranked, inputs = _ranked(certificates), classifier.examples.inputs
    label = radius_label(classifier.norm)
    if not len(ranked) or _image(classifier, inputs[0]) is None:
        assert certificates.correct is not None
        radii, right = certificates.radius.numpy(), certificates.correct.numpy()
        picture = draw_radii(radii, right, label)
        return [
            Section(
                "Certified radii",
                pictures=[picture],
                note=f"Radii are {radius_unit(classifier.spec)}.",
            )
        ]
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
            image = _image(classifier, inputs[row])
            assert image is not None
            name = _short(classifier.spec.classes[int(certificates.prediction[row])])
            tiles.append(
                Tile(image, f"{name}\n{format_bound(float(certificates.radius[row]), 'lower', 3)}")
            )
        alt = f"{len(tiles)} test images with their radii: {title.lower()}."
        pictures.append(draw_gallery(_parts(tiles), _limits(classifier), alt, title))
    return [
        Section(
            "Images and certified radii",
            ["Correctly classified test images; below each its class and its certified radius."],
            pictures=pictures,
            columns=3,
        )
    ]


def adversaries(attacked: RobustnessResult | None) -> list[Section]:
    """The nearest adversarial examples that were found, beside the certified radii."""
    if attacked is None or attacked.minimal is None:
        return []
    classifier, found = attacked.classifier, attacked.minimal
    kept = found.success.nonzero()[:, 0].tolist()
    if not kept:
        return []
    title, norm = "Minimal adversarial perturbations", NORM_NAMES[classifier.norm.name]
    words = (
        "For each input the nearest adversarial example that PGD found. Every distance must be at "
        "least the certified radius, and every one is."
    )
    if attacked.violations:
        words = "For each input the nearest adversarial example that PGD found."
    rows: list[list[str | Meter]] = []
    tiles: tuple[list[Tile], list[Tile], list[Tile]] = ([], [], [])
    for place in kept:
        row = int(attacked.minimal_rows[place])
        before, after = classifier.examples.inputs[row], found.examples[place]
        names = [
            _short(classifier.spec.classes[int(number)])
            for number in (found.labels[place], found.prediction[place])
        ]
        radius = format_bound(float(attacked.certificates.radius[row]), "lower", 3)
        distance = f"{float(found.distance[place]):.3g}"
        rows.append([f"{names[0]} → {names[1]}", radius, distance])
        images = [_image(classifier, values) for values in (before, after, after - before)]
        for column, image, text in zip(
            tiles,
            images,
            (f"{names[0]}\ncertified {radius}", f"{names[1]}\nfound {distance}", "change"),
            strict=True,
        ):
            if image is not None:
                column.append(Tile(image, text, signed=text == "change"))
    if not tiles[0]:
        table = Table(["prediction", f"certified radius, {norm}", "distance found"], rows)
        return [Section(title, [words], table=table)]
    pictures = []
    for part, told in zip(zip(*map(_parts, tiles), strict=True), _parts(rows), strict=True):
        alt = "; ".join(
            f"{name}: certified {radius}, found {found}" for name, radius, found in told
        )
        pictures.append(draw_gallery(part, _limits(classifier), f"Adversarial examples. {alt}."))
    note = "Original, adversarial example, and their difference on its own colour scale."
    return [Section(title, [words], pictures=pictures, columns=2, note=note)]


def gradients(classifier: EvaluatedClassifier, certificates: Certificates) -> list[Section]:
    """Images and the gradients of their margins; nothing for tables."""
    ranked = _ranked(certificates)
    if not len(ranked) or _image(classifier, classifier.examples.inputs[0]) is None:
        return []
    labels = classifier.examples.labels[ranked]
    # Of each class the correctly classified example with the median radius.
    rows = []
    for number in range(len(classifier.spec.classes)):
        of_class = ranked[labels == number]
        rows += [int(of_class[len(of_class) // 2])] if len(of_class) else []
    rows = rows[:_SHOWN]
    x = classifier.examples.inputs[rows]
    top, bottom = [], []
    for row, values, slope in zip(rows, x, input_gradients(classifier.model, x), strict=True):
        images = _image(classifier, values), _image(classifier, slope)
        assert images[0] is not None and images[1] is not None
        top.append(
            Tile(images[0], _short(classifier.spec.classes[int(certificates.prediction[row])]))
        )
        bottom.append(Tile(images[1], signed=True))
    pictures = [
        draw_gallery(part, _limits(classifier), "Images and their gradients.")
        for part in zip(_parts(top), _parts(bottom), strict=True)
    ]
    return [
        Section(
            "Input gradients",
            [
                "Below each image the gradient of the margin of its class over the next, the "
                "direction in which the margin grows fastest (orange and purple are the two signs). "
                "Lipschitz-constrained networks often have interpretable gradients."
            ],
            pictures=pictures,
            columns=2,
        )
    ]


def _parts(row: Sequence[Part]) -> list[Sequence[Part]]:
    """A row in pieces that fit side by side."""
    return [row[start : start + _ABREAST] for start in range(0, len(row), _ABREAST)]


def _short(name: str, most: int = 12) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
