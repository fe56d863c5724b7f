"""Gradients of a targeted loss with respect to the image."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut.plotting import Figure
from taut_lab.experiments.classifier_training import PLAIN, train_classifier, training_curve
from taut_lab.framework import Check, Config, Experiment, Outcome, Presentation, Result
from taut_lab.framework.result_selection import numbers_of, tabulate

_SHOWN = (0, 1, 2, 3, 4)
_EVALUATED = 200
_NETWORKS = {"standard": "standard", "lipschitz": "Lipschitz"}
_HELD: dict[str, dict[str, Any]] = {
    "standard": {**PLAIN, "constraint": "none", "lr": 1e-3},
    "lipschitz": {"constraint": "orthonormal", "radius": 1.0, "lr": 3e-3},
}
# Ten targets make records of a quarter of a megabyte; only the preset "paper" has them.
_SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"data": "digits", "hidden": [32, 32], "epochs": 3, "batch_size": 64},
    "cpu": {"data": "mnist", "hidden": [256] * 3, "epochs": 3, "batch_size": 256},
    "paper": {"data": "mnist", "hidden": [1024] * 3, "epochs": 200, "batch_size": 128},
}
_TARGETS = {"smoke": [0, 3], "cpu": [0, 3, 6, 8], "paper": list(range(10))}


def _configs(preset: str) -> Iterable[Config]:
    for network in _NETWORKS:
        yield {**_SIZES[preset], "targets": _TARGETS[preset], "network": network, "seed": 0}


def _run(config: Config) -> Outcome:
    settings = dict(config)
    targets = settings.pop("targets")
    training = _HELD[settings.pop("network")]
    run = train_classifier({**training, **settings, "activation": "maxmin"})
    test = run.data().test
    random = torch.Generator().manual_seed(config["seed"])
    order = torch.randperm(len(test), generator=random)
    first = [next(int(row) for row in order if test.labels[row] == label) for label in _SHOWN]
    images = test.inputs[first]
    shown = [targeted_gradients(run.model, images, target)[:, 0] for target in targets]
    evaluated = test.inputs[order[:_EVALUATED]]
    slopes = torch.cat([targeted_gradients(run.model, evaluated, target) for target in targets])
    return Outcome(
        numbers={
            "neighbours": _neighbour_correlation(slopes),
            "border": _border_share(slopes, test.inputs),
            "error": 1 - run.result["clean"],
        },
        curve=training_curve(run),
        series={
            "images": _rounded(images[:, 0]),
            "gradients": [_rounded(_scaled(gradients)) for gradients in shown],
        },
    )


def targeted_gradients(model: nn.Module, images: Tensor, target: int) -> Tensor:
    """The gradient of the cross-entropy towards one class, at each image; the shape of `images`.

    Positive where a brighter pixel increases the loss.
    """
    images = images.detach().requires_grad_()
    labels = torch.full((len(images),), target)
    with torch.enable_grad():
        loss = F.cross_entropy(model(images), labels, reduction="sum")
    return torch.autograd.grad(loss, images)[0]


def _neighbour_correlation(slopes: Tensor) -> float:
    """Mean correlation of neighbouring pixels of the gradients: 0 for noise."""
    flat = slopes[:, 0].double()
    flat = flat / flat.flatten(1).norm(dim=1).clamp_min(1e-300)[:, None, None]
    height, width = flat.shape[1:]
    across = (flat[:, :, 1:] * flat[:, :, :-1]).sum((1, 2)) * (width / (width - 1))
    down = (flat[:, 1:] * flat[:, :-1]).sum((1, 2)) * (height / (height - 1))
    return ((across + down) / 2).mean().item()


def _border_share(slopes: Tensor, inputs: Tensor) -> float:
    """Fraction of the squared gradient on pixels that are blank in 99 % of the images."""
    blank = (inputs[:, 0] > 0).double().mean(0) < 0.01
    energy = slopes[:, 0].double().square()
    shares = energy[:, blank].sum(1) / energy.flatten(1).sum(1).clamp_min(1e-300)
    return shares.mean().item()


def _scaled(gradients: Tensor) -> Tensor:
    """Each divided by its largest magnitude."""
    return gradients / gradients.flatten(1).abs().amax(1).clamp_min(1e-30)[:, None, None]


def _rounded(values: Tensor) -> list[Any]:
    return values.double().numpy().round(3).tolist()


def _checks(results: Sequence[Result]) -> list[Check]:
    standard, lipschitz = (numbers_of(results, "neighbours", network=name) for name in _NETWORKS)
    statement = (
        "gradients of the Lipschitz network are smoother: neighbouring pixels correlate more"
    )
    return [Check(statement, {"correlation": (lipschitz, standard)})]


def _show(results: Sequence[Result]) -> Presentation:
    table = tabulate(
        results,
        "Gradients of a targeted loss with respect to the image",
        {title: {"network": name} for name, title in _NETWORKS.items()},
        {
            "correlation of neighbouring pixels": "neighbours",
            "fraction on blank pixels": "border",
        },
        note="Noise has no correlation, and is not confined to the pixels of digits. The paper shows "
        "images without numbers.",
    )
    both = {r.config["network"]: r for r in reversed(results)}
    figures = {
        f"gradients-{name}": _mosaic(both[name], title)
        for name, title in _NETWORKS.items()
        if name in both
    }
    words = (
        "Every gradient is scaled to its largest pixel. Our Lipschitz network has constant 1 and is "
        "trained with a margin loss."
    )
    return Presentation([table], figures or None, [words])


def _mosaic(result: Result, title: str) -> Figure:
    def paint(axes: Any) -> None:
        images = torch.tensor(result.outcome.series["images"])
        gradients = torch.tensor(result.outcome.series["gradients"])
        size = images.shape[-1]
        gap = max(1, size // 14)
        rows = [(1 - images)[..., None].expand(-1, -1, -1, 3), *map(_red_and_blue, gradients)]
        step = size + gap
        canvas = torch.ones(len(rows) * step - gap, len(images) * step - gap, 3)
        for i, row in enumerate(rows):
            for j, picture in enumerate(row):
                canvas[i * step : i * step + size, j * step : j * step + size] = picture
        axes.imshow(canvas.clamp(0, 1).numpy(), interpolation="nearest")
        names = ["image", *(f"to {target}" for target in result.config["targets"])]
        axes.set_yticks([i * step + size / 2 for i in range(len(rows))], names)
        axes.set_xticks([])
        axes.grid(False)
        for spine in axes.spines.values():
            spine.set_visible(False)

    count = 1 + len(result.config["targets"])
    return Figure(
        paint,
        alt=f"Five digits, and the gradients of the loss towards some classes: {title} network.",
        caption="Red: a brighter pixel increases the loss of the target class; blue: it decreases it.",
        title=f"{title[0].upper()}{title[1:]} network",
        size=(4.0, 0.72 * count + 0.2),
    )


def _red_and_blue(values: Tensor) -> Tensor:
    """`(..., 3)`: white at 0, red for 1, blue for -1."""
    up, down = values.clamp(min=0), (-values).clamp(min=0)
    return torch.stack([1 - down, 1 - up - down, 1 - up], -1)


EXPERIMENT = Experiment(
    name="interpretable-gradients",
    label="Figure 7",
    title="Input gradients",
    claim=(
        "Input gradients of a Lipschitz network show the strokes that would have to change, like "
        "those of adversarially trained networks; those of a standard network look like noise."
    ),
    configs=_configs,
    run=_run,
    show=_show,
    checks=_checks,
)
