"""Images in the report of a classifier: with certified radii, adversarial, and gradients."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from taut.certificates import Certificates
from taut.evaluation import EvaluatedClassifier, RobustnessResult, input_gradients
from taut.plotting import COLOURS, Picture, draw
from taut.report.figures import Tile, as_image, draw_gallery
from taut.report.page import Section, Table
from taut.report.sentences import NORM_NAMES, format_bound, radius_label, radius_unit, shorten

Part = TypeVar("Part")
_SHOWN = 6
# With more, the text below would be too small on a phone.
_ABREAST = 3


def examples(classifier: EvaluatedClassifier, certificates: Certificates) -> list[Section]:
    """Correct predictions from the largest radius to the smallest; a histogram for tables."""
    ranked = _ranked(certificates)
    if not len(ranked) or not _has_images(classifier):
        note = f"Radii are {radius_unit(classifier.spec)}."
        return [Section("Certified radii", pictures=[_draw_radii(certificates)], note=note)]
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
            radius = format_bound(float(certificates.radius[row]), "lower", 3)
            words = f"{_name(classifier, certificates.prediction[row])}\n{radius}"
            tiles.append(_tile(classifier, classifier.examples.inputs[row], words))
        alt = f"{len(tiles)} test images with their radii: {title.lower()}."
        pictures.append(draw_gallery(_parts(tiles), _limits(classifier), alt, title))
    words = "Correctly classified test images, each with its class and its certified radius."
    return [Section("Images and certified radii", [words], pictures=pictures, columns=3)]


def adversaries(attacked: RobustnessResult | None) -> list[Section]:
    """The nearest adversarial examples found, with the certified radii."""
    if attacked is None or attacked.minimal is None or not bool(attacked.minimal.success.any()):
        return []
    classifier, minimal = attacked.classifier, attacked.minimal
    title, norm = "Minimal adversarial perturbations", NORM_NAMES[classifier.norm.name]
    words = "For each input, the nearest adversarial example that PGD found."
    if not attacked.violations:
        words += " No distance may be smaller than the certified radius, and none is."
    rows: list[list[str]] = []
    tiles: tuple[list[Tile], list[Tile], list[Tile]] = ([], [], [])
    for index in minimal.success.nonzero()[:, 0].tolist():
        row = int(attacked.minimal_rows[index])
        before, after = classifier.examples.inputs[row], minimal.examples[index]
        old, new = (_name(classifier, part[index]) for part in (minimal.labels, minimal.prediction))
        radius = format_bound(float(attacked.certificates.radius[row]), "lower", 3)
        # The nearest adversarial example is at most so far away.
        distance = format_bound(float(minimal.distance[index]), "upper", 3)
        rows.append([f"{old} → {new}", radius, distance])
        if _has_images(classifier):
            tiles[0].append(_tile(classifier, before, f"{old}\ncertified {radius}"))
            tiles[1].append(_tile(classifier, after, f"{new}\nfound {distance}"))
            tiles[2].append(_tile(classifier, after - before, "change", signed=True))
    if not tiles[0]:
        table = Table(["prediction", f"certified radius, {norm}", "distance found"], rows)
        return [Section(title, [words], table=table)]
    pictures = []
    for part, captions in zip(zip(*map(_parts, tiles), strict=True), _parts(rows), strict=True):
        alt = "; ".join(
            f"{name}: certified {certified}, found {far}" for name, certified, far in captions
        )
        pictures.append(draw_gallery(part, _limits(classifier), f"Adversarial examples. {alt}."))
    note = "Original, adversarial example, and their difference on its own colour scale."
    return [Section(title, [words], pictures=pictures, columns=2, note=note)]


def gradients(classifier: EvaluatedClassifier, certificates: Certificates) -> list[Section]:
    """Images and the gradients of their margins; nothing for tables."""
    ranked = _ranked(certificates)
    if not len(ranked) or not _has_images(classifier):
        return []
    labels = classifier.examples.labels[ranked]
    # The correctly classified example with the median radius of each class.
    classes = [ranked[labels == number] for number in range(len(classifier.spec.classes))]
    rows = [int(mine[len(mine) // 2]) for mine in classes if len(mine)][:_SHOWN]
    x = classifier.examples.inputs[rows]
    names = [_name(classifier, certificates.prediction[row]) for row in rows]
    top = [_tile(classifier, image, name) for image, name in zip(x, names, strict=True)]
    slopes = input_gradients(classifier.model, x)
    bottom = [_tile(classifier, slope, signed=True) for slope in slopes]
    pictures = [
        draw_gallery(part, _limits(classifier), "Images and their gradients.")
        for part in zip(_parts(top), _parts(bottom), strict=True)
    ]
    words = (
        "Below each image is the gradient of the margin of its class over the runner-up: the "
        "direction in which the margin grows fastest (orange and purple mark the two signs). "
        "Lipschitz-constrained networks often have interpretable gradients."
    )
    return [Section("Input gradients", [words], pictures=pictures, columns=2)]


def _draw_radii(certificates: Certificates) -> Picture:
    """Stacked histograms of the certified radii of correct and wrong predictions."""
    assert certificates.correct is not None
    radii, correct = certificates.radius.numpy(), certificates.correct.numpy()

    def paint(axes: Any) -> None:
        edges = np.linspace(0, float(radii.max()) or 1.0, 41).tolist()
        both = [radii[correct], radii[~correct]]
        weights = [np.full(len(part), 100 / len(radii)) for part in both]
        style: dict[str, Any] = {"color": [COLOURS["blue"], COLOURS["vermilion"]], "stacked": True}
        axes.hist(both, edges, weights=weights, label=["correct", "wrong"], **style)
        axes.set(xlabel=radius_label(certificates.norm), ylabel="% of inputs", xlim=(0, edges[-1]))
        axes.legend(loc="lower center", ncols=2, bbox_to_anchor=(0.5, 1.0))

    middle = format_bound(float(np.median(radii)), "lower")
    return draw(paint, alt=f"Half of the radii are above {middle}.", size=(4.6, 2.7))


def _ranked(certificates: Certificates) -> Tensor:
    """The rows that are classified correctly, the largest radius first."""
    assert certificates.correct is not None
    right = certificates.correct.nonzero()[:, 0]
    return right[certificates.radius[right].argsort(descending=True, stable=True)]


def _has_images(classifier: EvaluatedClassifier) -> bool:
    shape = classifier.spec.shape
    return len(shape) == 3 and as_image(np.empty(shape), shape) is not None


def _tile(
    classifier: EvaluatedClassifier, values: Tensor, words: str = "", signed: bool = False
) -> Tile:
    image = as_image(values.detach().double().numpy(), classifier.spec.shape)
    assert image is not None
    return Tile(image, words, signed)


def _limits(classifier: EvaluatedClassifier) -> tuple[float, float]:
    low, high = classifier.spec.low, classifier.spec.high
    return (0.0 if low is None else low), (1.0 if high is None else high)


def _parts(row: Sequence[Part]) -> list[Sequence[Part]]:
    """Splits a row into pieces that fit side by side."""
    return [row[start : start + _ABREAST] for start in range(0, len(row), _ABREAST)]


def _name(classifier: EvaluatedClassifier, number: Tensor) -> str:
    return shorten(classifier.spec.classes[int(number)], 12)
