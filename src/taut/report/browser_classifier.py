"""A classifier that runs in the browser on drawings of the report's readers."""

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from taut.evaluation import EvaluatedClassifier
from taut.export import flat_layers, fold, margin_lipschitz
from taut.nn import Abs, FullSort, GroupSort, MaxMin, Scale
from taut.norms import L1
from taut.report.figures import as_image

_MOST_PARAMETERS = 300_000  # about 3.2 MB of HTML


@dataclass(frozen=True)
class Drawing:
    r"""Data with which the page classifies a drawing and certifies the prediction.

    With rows $w_i$ of the last layer behind features that are $K$-Lipschitz, the difference of two
    logits changes by at most $K \|w_i - w_j\|_*$ times the change of the image. `rates` holds these
    constants, rounded up; a margin of $m_j$ over every other class gives the certified radius
    $\min_j m_j / \mathrm{rates}_{ij}$, which the page rounds down by $10^{-9}$.
    """

    height: int
    width: int
    norm: str  # norm of the radii
    classes: tuple[str, ...]
    layers: list[dict[str, Any]]  # plain data; tensors as base64 of little-endian float64
    rates: list[list[float]]  # (classes, classes)
    frame: dict[str, float]  # larger side and centre of the ink, as shares of the image
    examples: list[list[float]]  # pixels of one test image of each class, in [0, 1]


def drawing(classifier: EvaluatedClassifier) -> Drawing | None:
    """The data of a small dense classifier of grey images in [0, 1]; None for any other one."""
    spec = classifier.spec
    image = as_image(np.zeros(spec.shape), spec.shape) if len(spec.shape) > 1 else None
    if image is None or image.ndim != 2 or (spec.low, spec.high) != (0.0, 1.0):
        return None
    if classifier.norm == L1 or len(spec.classes) < 2:
        return None
    if sum(p.numel() for p in classifier.model.parameters()) > _MOST_PARAMETERS:
        return None
    modules = flat_layers(fold(classifier.model))
    layers = [_layer(module) for module in modules]
    last = max((i for i, m in enumerate(modules) if isinstance(m, nn.Linear)), default=0)
    if last == 0 or None in layers or not all(isinstance(m, Scale) for m in modules[last + 1 :]):
        return None
    return Drawing(
        *image.shape,
        norm=classifier.norm.name,
        classes=spec.classes,
        layers=[layer for layer in layers if layer],
        rates=margin_lipschitz(classifier.model, classifier.norm, spec.shape).tolist(),
        frame=_frame(classifier.examples.inputs.reshape(-1, *image.shape)),
        examples=_examples(classifier),
    )


def _layer(module: nn.Module) -> dict[str, Any] | None:
    """A layer as plain data: empty for layers without effect, None for unsupported ones."""
    match module:
        case nn.Linear():
            bias = torch.zeros(module.out_features) if module.bias is None else module.bias
            return {"kind": "linear", "weight": _encode(module.weight), "bias": _encode(bias)}
        case Scale():
            return {"kind": "scale", "factor": module.factor}
        case MaxMin():
            return {"kind": "sort", "size": 2, "order": -1}
        case GroupSort():
            return {"kind": "sort", "size": module.group_size, "order": 1}
        case FullSort():
            return {"kind": "sort", "size": 0, "order": 1}
        case Abs():
            return {"kind": "abs"}
        case nn.ReLU():
            return {"kind": "relu"}
        case nn.Flatten() | nn.Identity():
            return {}
    return None


def _encode(tensor: Tensor) -> str:
    return base64.b64encode(tensor.detach().cpu().double().numpy().astype("<f8").tobytes()).decode()


def _frame(images: Tensor) -> dict[str, float]:
    """Medians over the images that have ink."""

    def span(ink: Tensor) -> tuple[Tensor, Tensor]:
        size = ink.shape[1]
        first = ink.long().argmax(1)
        last = size - ink.flip(1).long().argmax(1)
        return (last - first) / size, (last + first) / (2 * size)

    inked = images.cpu() > 0.5
    inked = inked[inked.flatten(1).any(1)]
    if not len(inked):
        return {"size": 1.0, "x": 0.5, "y": 0.5}
    (wide, x), (high, y) = span(inked.any(1)), span(inked.any(2))
    frame = {"size": torch.maximum(wide, high), "x": x, "y": y}
    return {name: float(values.median()) for name, values in frame.items()}


def _examples(classifier: EvaluatedClassifier) -> list[list[float]]:
    labels = classifier.examples.labels
    firsts = [(labels == number).nonzero()[:1, 0] for number in range(len(classifier.spec.classes))]
    rows = torch.cat(firsts)
    return [x.flatten().double().tolist() for x in classifier.examples.inputs[rows].cpu()]
