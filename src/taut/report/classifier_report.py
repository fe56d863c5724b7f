"""The report of a classifier: accuracy, certified radii, attacks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from taut.certificates import Certificates
from taut.evaluation import (
    EvaluatedClassifier,
    RobustnessResult,
    evenly_spaced_rows,
    jacobian_norms,
)
from taut.plotting import COLOURS, Picture, draw
from taut.report.browser_classifier import drawing
from taut.report.classifier_images import adversaries, examples, gradients
from taut.report.page import AccuracyCurve, Meter, Page, Section, Table
from taut.report.sentences import (
    NORM_NAMES,
    accuracy_table,
    certified_guarantees,
    certified_headline,
    format_bound,
    percent,
    radius_unit,
    round_accuracies,
    round_percent,
)
from taut.training import TrainedRun

_SLOPE_ROWS = 500
_MOST_CLASSES = 30
_ATTACK_LINES: dict[str, dict[str, Any]] = {
    "fgsm": {"color": COLOURS["orange"], "marker": "^", "linestyle": (0, (1, 1.5))},
    "pgd": {"color": COLOURS["vermilion"], "marker": "o", "linestyle": (0, (4, 2))},
    "autoattack": {"color": COLOURS["purple"], "marker": "s", "linestyle": (0, (6, 2, 1, 2))},
}


def classifier_page(
    classifier: EvaluatedClassifier,
    certificates: Certificates,
    radius: float,
    *,
    attacked: RobustnessResult | None = None,
    run: TrainedRun | None = None,
    metadata: Sequence[tuple[str, str]] = (),
) -> Page:
    """Creates the report of a classifier.

    Args:
        classifier: the classifier and its test examples.
        certificates: certificates of these examples.
        radius: target radius.
        attacked: attacks on some of the examples.
        run: the training run.
        metadata: names and values that describe the run.
    """
    return Page(
        title=f"{classifier.name}: {certified_headline(certificates, radius)}",
        lead=(
            f"A classifier of {len(classifier.spec.classes)} classes, evaluated on {len(certificates):,} "
            "test examples. Each prediction has a certified radius: no smaller perturbation of the "
            "input can change it. That is a theorem, not a test."
        ),
        sections=classifier_sections(classifier, certificates, radius, attacked=attacked, run=run),
        metadata=metadata,
    )


def classifier_sections(
    classifier: EvaluatedClassifier,
    certificates: Certificates,
    radius: float,
    *,
    attacked: RobustnessResult | None = None,
    run: TrainedRun | None = None,
) -> list[Section]:
    """The sections of the report, also for reports that include it."""
    guarantees = certified_guarantees(certificates, classifier.spec)
    sections = [
        _curve(classifier, certificates, radius, attacked),
        *_drawing(classifier),
        *examples(classifier, certificates),
        *adversaries(attacked),
        *gradients(classifier, certificates),
        _classes(classifier, certificates, radius),
        _slopes(classifier, certificates),
        *_training(run),
        Section("Guarantees", terms=tuple(guarantees.items())),
    ]
    if attacked is not None and attacked.violations:
        title = "An error in taut: a certificate was violated"
        sections.insert(0, Section(title, attacked.violations))
    return sections


def _curve(
    classifier: EvaluatedClassifier,
    certificates: Certificates,
    radius: float,
    attacked: RobustnessResult | None,
) -> Section:
    shown = certificates if attacked is None else attacked.certificates
    radii = [radius / 2, radius, 2 * radius] if attacked is None else list(attacked.radii)
    header, rows = accuracy_table(shown, radii, attacked)
    words = (
        "The share of test examples that are classified correctly under every perturbation up to "
        f"the radius, {radius_unit(classifier.spec)}."
    )
    note = f"The dotted line is the target radius, {radius:.4g}"
    if attacked is not None:
        words += (
            " Certified accuracy is a lower bound on the robust accuracy, and accuracy under attack an "
            "upper bound; the closer they are, the more precisely the robust accuracy is known."
        )
        note += f"; {len(shown):,} of {len(certificates):,} examples were attacked"
    cells = [
        [name, *(Meter(share, 100, digits=1) for share in shares)]
        for name, shares in round_accuracies(rows)
    ]
    return Section(
        "Certified accuracy" if attacked is None else "Certified accuracy and attacks",
        [words],
        table=Table(header, cells, caption=f"% of {len(shown):,} test examples"),
        pictures=[_draw_curve(shown, radius, attacked, header)],
        curve=_slider(shown),
        note=f"{note}.",
    )


def _slider(shown: Certificates) -> AccuracyCurve:
    assert shown.correct is not None
    radii = shown.radius[shown.correct & (shown.radius > 0)].double().sort().values
    # Four digits suffice, rounded so that they never overstate the proof.
    return AccuracyCurve([float(format_bound(r, "lower", 4)) for r in radii.tolist()], len(shown))


def _drawing(classifier: EvaluatedClassifier) -> list[Section]:
    network = drawing(classifier)
    if network is None:
        return []
    words = (
        "This page contains the network itself and runs it in your browser in float64. Draw with "
        "the mouse, a finger or the arrow keys (hold Shift to move the pen without drawing). You "
        "see the prediction, its certified radius, and the nearest image with a different "
        "prediction that a search has found, which is never closer than the radius."
    )
    note = (
        "If a drawing does not look like the training images, its radius still shows how stable the "
        "prediction is, but not that it is right. Radii are rounded down."
    )
    return [Section("Draw your own", [words], drawing=network, note=note)]


def _draw_curve(
    shown: Certificates, radius: float, attacked: RobustnessResult | None, labels: Sequence[str]
) -> Picture:
    """Accuracy against the radius: certified as a curve, under attack as points."""
    radii = [] if attacked is None else [0.0, *attacked.radii]
    lines = {}
    if attacked is not None:
        for name in attacked.distances:
            lines[name] = [100 * attacked.accuracy(each, name) for each in radii]
    reach = max(float(shown.radius.quantile(0.99)), radius, 1e-12, *radii)
    grid = torch.linspace(0, 1.02 * reach, 400, dtype=torch.float64)
    certified = 100 * shown.certified_accuracy(grid).numpy()

    def paint(axes: Any) -> None:
        axes.axvline(radius, color="#999999", linewidth=1, linestyle=":")
        axes.fill_between(grid, certified, color=COLOURS["sky"], alpha=0.25, linewidth=0)
        axes.plot(grid, certified, color=COLOURS["blue"], label=labels[1], gid="lower")
        for (name, shares), label in zip(lines.items(), labels[2:], strict=True):
            # No value is known before the next radius.
            style = {"drawstyle": "steps-post", "markersize": 4.5, "linewidth": 1.2}
            axes.plot(radii, shares, label=label, **style, **_ATTACK_LINES[name])
        axes.set(xlabel=labels[0], ylabel="% correct", xlim=(0, float(grid[-1])), ylim=(0, 102))
        axes.legend(loc="lower center", ncols=4, bbox_to_anchor=(0.5, 1.0), handlelength=1.8)

    sentences = [f"Certified accuracy falls from {certified[0]:.1f} % at 0"]
    for shares, label in zip(lines.values(), labels[2:], strict=True):
        last = percent(shares[-1] / 100, "upper" if radii[-1] else "")
        sentences.append(f"{last} at {radii[-1]:.4g} {label}")
    return draw(paint, alt=f"{'; '.join(sentences)}.", size=(4.6, 3.0))


def _classes(classifier: EvaluatedClassifier, certificates: Certificates, radius: float) -> Section:
    assert certificates.correct is not None
    rows: list[list[str | Meter]] = []
    for number, name in enumerate(classifier.spec.classes[:_MOST_CLASSES]):
        mine = classifier.examples.labels == number
        if not bool(mine.any()):
            continue
        right, radii = certificates.correct[mine], certificates.radius[mine]
        shares = [float(part.double().mean()) for part in (right, right & (radii > radius))]
        percents = [round_percent(shares[0]), round_percent(shares[1], "lower")]
        cells = [Meter(each, 100, digits=1) for each in percents]
        median = format_bound(float(radii.median()), "lower", 3)
        rows.append([name, f"{len(radii):,}", *cells, median])
    header = ["class", "examples", "% correct", f"% certified at {radius:.4g}", "median radius"]
    return Section("Accuracy by class", table=Table(header, rows))


def _slopes(classifier: EvaluatedClassifier, certificates: Certificates) -> Section:
    rows = evenly_spaced_rows(len(certificates), _SLOPE_ROWS)
    constant = certificates.lipschitz.value
    steep = jacobian_norms(classifier.model, classifier.examples.inputs[rows], classifier.norm)
    shares = (steep.double() / constant).numpy()
    median = f"{np.median(shares):.3f}"

    def paint(axes: Any) -> None:
        weights = np.full(len(shares), 100 / len(shares))
        edges = np.linspace(0, 1, 41).tolist()
        axes.hist(np.clip(shares, 0, 1), edges, weights=weights, color=COLOURS["green"], alpha=0.8)
        axes.axvline(1, color="black", linewidth=1)
        label = f"gradient norm / constant (≤ {format_bound(constant, 'upper', 5)})"
        axes.set(xlabel=label, ylabel="% of inputs", xlim=(0, 1.02))

    alt = f"Half of the gradient norms are above {median} of the constant."
    return Section(
        "Gradient norms",
        [
            "The norm of the Jacobian at test inputs, as a share of the proven Lipschitz constant of "
            f"the network. The median is {median}: the closer to 1, the tighter the constant."
        ],
        pictures=[draw(paint, alt=alt, size=(4.6, 2.5))],
        note=f"{NORM_NAMES[classifier.norm.name]} operator norm at {len(rows):,} inputs, not proven.",
    )


def _training(run: TrainedRun | None) -> list[Section]:
    if run is None or not run.history:
        return []
    history, best = run.history, int(run.result["best_epoch"])
    lines = {
        "accuracy": {"label": "training", "color": "#999999", "linewidth": 1.2},
        "clean": {"label": "validation, clean", "color": COLOURS["orange"]},
        "certified": {"label": "validation, certified", "color": COLOURS["blue"]},
    }

    def paint(axes: Any) -> None:
        for key, style in lines.items():
            points = [(row["epoch"], 100 * row[key]) for row in history if row[key] is not None]
            if points:
                marker = "o" if len(points) == 1 else None
                axes.plot(*zip(*points, strict=True), marker=marker, **style)
        axes.axvline(best, color="#999999", linewidth=1, linestyle=":")
        axes.set(xlabel="epoch", ylabel="% correct", ylim=(0, 102))
        axes.locator_params(axis="x", integer=True)
        axes.legend(loc="lower right", frameon=True, framealpha=1, edgecolor="none")

    picture = draw(paint, alt=f"{len(history)} epochs, final loss {history[-1]['loss']:.4g}.")
    note = f"The dotted line is epoch {best}, whose weights were kept"
    if history[-1]["certified"] is not None:
        note += ": the best certified accuracy on validation rows"
    return [Section("Training", pictures=[picture], note=f"{note}.")]


def run_metadata(run: TrainedRun) -> list[tuple[str, str]]:
    """Metadata of a training run, for the end of a report."""
    config, result = run.config, run.result
    sizes = " × ".join(map(str, config.hidden or ()))
    loss: dict[str, Any] = {"margin": config.margin, "temperature": config.temperature}
    settings = ", ".join(f"{name} {value:.4g}" for name, value in loss.items() if value is not None)
    metadata = [
        ("Data", f"{Path(config.data).name}, {result['train_rows']:,} training rows"),
        ("Network", f"hidden {sizes}, {config.activation}, {config.constraint} layers"),
        ("Loss", f"{config.loss}, {settings}"),
        (
            "Training",
            f"{config.optimizer}, lr {config.lr:g}, {config.schedule}, batches of "
            f"{config.batch_size}, {result['epochs']} epochs, seed {config.seed}, {config.dtype}",
        ),
        ("Time", f"{result['seconds']:.0f} s, {result['device']}, threads: {result['threads']}"),
        ("Versions", ", ".join(f"{name} {number}" for name, number in result["versions"].items())),
    ]
    if run.folder is not None:
        again = f"taut train --config {run.folder / 'config.toml'} --out NEW"
        metadata.insert(0, ("Command", again))
    return metadata
