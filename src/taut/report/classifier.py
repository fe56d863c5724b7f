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
from taut.report.classifier_figures import draw_curve, draw_history, draw_slopes
from taut.report.classifier_images import adversaries, examples, gradients
from taut.report.classifier_text import (
    ATTACK_NAMES,
    NORM_NAMES,
    certified_guarantees,
    certified_headline,
    radius_label,
    radius_unit,
)
from taut.report.numbers import format_bound
from taut.report.page import Meter, Page, Section, Table
from taut.training import TrainedRun

__all__ = ["classifier_page", "classifier_sections", "run_facts"]

_SLOPE_ROWS = 500
_MOST_CLASSES = 30


def classifier_page(
    classifier: EvaluatedClassifier,
    certificates: Certificates,
    radius: float,
    *,
    attacked: RobustnessResult | None = None,
    run: TrainedRun | None = None,
    facts: Sequence[tuple[str, str]] = (),
) -> Page:
    """The report of one classifier.

    Args:
        classifier: the classifier and its test examples.
        certificates: certificates of these examples.
        radius: target radius.
        attacked: attacks on some of the examples.
        run: the training run.
        facts: metadata of the run: names and values.
    """
    return Page(
        title=f"{classifier.name}: {certified_headline(certificates, radius)}",
        lead=(
            f"A classifier of {len(classifier.spec.classes)} classes, evaluated on {len(certificates):,} "
            "test examples. Each prediction has a certified radius: no smaller perturbation of the "
            "input can change it. That is a theorem, not a test."
        ),
        sections=classifier_sections(classifier, certificates, radius, attacked=attacked, run=run),
        facts=facts,
    )


def classifier_sections(
    classifier: EvaluatedClassifier,
    certificates: Certificates,
    radius: float,
    *,
    attacked: RobustnessResult | None = None,
    run: TrainedRun | None = None,
) -> list[Section]:
    """The sections of the report, for reports that contain it."""
    return [
        *_violations(attacked),
        _curve(classifier, certificates, radius, attacked),
        *examples(classifier, certificates),
        *adversaries(attacked),
        *gradients(classifier, certificates),
        *_classes(classifier, certificates, radius),
        _slopes(classifier, certificates),
        *_training(run),
        Section(
            "Guarantees", terms=tuple(certified_guarantees(certificates, classifier.spec).items())
        ),
    ]


def _violations(attacked: RobustnessResult | None) -> list[Section]:
    if attacked is None or not attacked.violations:
        return []
    return [Section("An error in taut: a certificate was violated", list(attacked.violations))]


def _curve(
    classifier: EvaluatedClassifier,
    certificates: Certificates,
    radius: float,
    attacked: RobustnessResult | None,
) -> Section:
    shown = certificates if attacked is None else attacked.certificates
    reach = max(float(shown.radius.quantile(0.99)), radius, 1e-12)
    lines: dict[str, tuple[list[float], list[float]]] = {}
    radii = [radius / 2, radius, 2 * radius]
    if attacked is not None:
        radii = list(attacked.radii)
        reach = max(reach, *radii)
        for name in attacked.distances:
            shares = [attacked.accuracy(each, name) for each in radii]
            lines[name] = ([0.0, *radii], [attacked.clean, *shares])
    grid = torch.linspace(0, 1.02 * reach, 400, dtype=torch.float64)
    proven = shown.certified_accuracy(grid).numpy()
    header = [
        radius_label(classifier.norm),
        "certified",
        *(f"under {ATTACK_NAMES[name]}" for name in lines),
    ]
    rows: list[list[str | Meter]] = []
    for place, each in enumerate([0.0, *radii]):
        share = float(shown.certified_accuracy(each))
        cells = [share, *(line[1][place] for line in lines.values())]
        name = f"{each:.4g}" if each else "0 (clean)"
        rows.append([name, *(Meter(100 * cell, 100, digits=1) for cell in cells)])
    words = [
        "The share of test examples that are classified correctly under every perturbation up to "
        f"the radius, {radius_unit(classifier.spec)}. "
    ]
    if lines:
        words[0] += (
            "Certified accuracy is a lower bound of the robust accuracy, accuracy under attack an "
            "upper bound; the closer the two are, the better it is known."
        )
    some = ""
    if attacked is not None:
        some = f"; {len(shown):,} of {len(certificates):,} examples were attacked"
    return Section(
        "Certified accuracy and attacks" if lines else "Certified accuracy",
        words,
        table=Table(header, rows, caption=f"% of {len(shown):,} test examples"),
        pictures=[draw_curve(grid.numpy(), proven, lines, radius, radius_label(classifier.norm))],
        note=f"The dotted line is the target radius, {radius:.4g}{some}.",
    )


def _classes(
    classifier: EvaluatedClassifier, certificates: Certificates, radius: float
) -> list[Section]:
    assert certificates.correct is not None
    names, labels = classifier.spec.classes, classifier.examples.labels
    rows: list[list[str | Meter]] = []
    for number, name in list(enumerate(names))[:_MOST_CLASSES]:
        mine = labels == number
        if not bool(mine.any()):
            continue
        right = certificates.correct[mine]
        held = right & (certificates.radius[mine] > radius)
        shares = [float(part.double().mean()) for part in (right, held)]
        middle = float(certificates.radius[mine].median())
        cells = [Meter(100 * share, 100, digits=1) for share in shares]
        rows.append([name, f"{int(mine.sum()):,}", *cells, format_bound(middle, "lower", 3)])
    header = ["class", "examples", "% correct", f"% certified at {radius:.4g}", "median radius"]
    return [Section("Accuracy by class", table=Table(header, rows))]


def _slopes(classifier: EvaluatedClassifier, certificates: Certificates) -> Section:
    rows = evenly_spaced_rows(len(certificates), _SLOPE_ROWS)
    constant = certificates.lipschitz.value
    steep = jacobian_norms(classifier.model, classifier.examples.inputs[rows], classifier.norm)
    shares = (steep.double() / constant).numpy()
    return Section(
        "Gradient norms",
        [
            "The norm of the Jacobian at test inputs, as a share of the proven Lipschitz constant of "
            f"the network. The median is {np.median(shares):.3f}: the closer to 1, the tighter the "
            "constant."
        ],
        pictures=[draw_slopes(shares, format_bound(constant, "upper", 5))],
        note=f"{NORM_NAMES[classifier.norm.name]} operator norm at {len(rows):,} inputs, not proven.",
    )


def _training(run: TrainedRun | None) -> list[Section]:
    if run is None or not run.history:
        return []
    best = int(run.result["best_epoch"])
    note = f"The dotted line is epoch {best}, whose weights were kept"
    if run.history[-1]["certified"] is not None:
        note += ": the best certified accuracy on validation rows"
    return [Section("Training", pictures=[draw_history(run.history, best)], note=f"{note}.")]


def run_facts(run: TrainedRun) -> list[tuple[str, str]]:
    """Metadata of a training run, for the end of a report."""
    config, result = run.config, run.result
    sizes = " × ".join(map(str, config.hidden or ()))
    loss: dict[str, Any] = {"margin": config.margin, "temperature": config.temperature}
    told = ", ".join(f"{name} {value:.4g}" for name, value in loss.items() if value is not None)
    facts = [
        ("Data", f"{Path(config.data).name}, {result['train_rows']:,} training rows"),
        ("Network", f"hidden {sizes}, {config.activation}, {config.constraint} layers"),
        ("Loss", f"{config.loss}, {told}"),
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
        facts.insert(0, ("Command", again))
    return facts
