"""The page of a classifier: how often it is right, how far that is proven, and who attacked it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from taut.certificates import Certificates
from taut.lab.jacobians import jacobian_norms
from taut.lab.robustness import Attacked, Subject, spread_rows
from taut.report.classifier_figures import draw_curve, draw_history, draw_slopes
from taut.report.classifier_images import adversaries, examples, gradients
from taut.report.classifier_words import (
    ATTACK_NAMES,
    NORMS,
    guarantees,
    headline,
    radius_label,
    unit,
)
from taut.report.page import Meter, Page, Section, Table
from taut.report.wasserstein_words import rounded
from taut.training import TrainedRun

__all__ = ["classifier_page", "classifier_sections", "run_facts"]

_SLOPE_ROWS = 500
_MOST_CLASSES = 30


def classifier_page(
    subject: Subject,
    certificates: Certificates,
    radius: float,
    *,
    attacked: Attacked | None = None,
    run: TrainedRun | None = None,
    facts: Sequence[tuple[str, str]] = (),
) -> Page:
    """The page for one classifier.

    Args:
        subject: the classifier and its test examples.
        certificates: of these examples.
        radius: the one that was asked for.
        attacked: what attacks found on some of them.
        run: how it was trained.
        facts: how it was run: names and values.
    """
    return Page(
        title=f"{subject.name}: {headline(certificates, radius)}",
        lead=(
            f"A classifier of {len(subject.spec.classes)} classes, judged on {len(certificates):,} "
            "examples that it has not seen. With each prediction comes a radius within which no "
            "change of the input can change it: a theorem, not a test."
        ),
        sections=classifier_sections(subject, certificates, radius, attacked=attacked, run=run),
        facts=facts,
    )


def classifier_sections(
    subject: Subject,
    certificates: Certificates,
    radius: float,
    *,
    attacked: Attacked | None = None,
    run: TrainedRun | None = None,
) -> list[Section]:
    """What the page says, for pages that say more."""
    return [
        *_violations(attacked),
        _curve(subject, certificates, radius, attacked),
        *examples(subject, certificates),
        *adversaries(attacked),
        *gradients(subject, certificates),
        *_classes(subject, certificates, radius),
        _slopes(subject, certificates),
        *_training(run),
        Section("What is guaranteed", terms=tuple(guarantees(certificates, subject.spec).items())),
    ]


def _violations(attacked: Attacked | None) -> list[Section]:
    if attacked is None or not attacked.violations:
        return []
    return [Section("An error of taut: a certificate was violated", list(attacked.violations))]


def _curve(
    subject: Subject, certificates: Certificates, radius: float, attacked: Attacked | None
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
        radius_label(subject.norm),
        "proven",
        *(f"left by {ATTACK_NAMES[name]}" for name in lines),
    ]
    rows: list[list[str | Meter]] = []
    for place, each in enumerate([0.0, *radii]):
        share = float(shown.certified_accuracy(each))
        cells = [share, *(line[1][place] for line in lines.values())]
        name = f"{each:.4g}" if each else "0 (clean)"
        rows.append([name, *(Meter(100 * cell, 100, digits=1) for cell in cells)])
    words = [
        "The share of examples that are right and stay right under every change up to the radius, "
        f"{unit(subject.spec)}. "
    ]
    if lines:
        words[0] += (
            "Below the blue curve nothing can be broken; what the attacks left standing bounds the "
            "truth from above. The nearer the two are, the less is left unknown."
        )
    some = "" if attacked is None else f"; attacks met {len(shown):,} of {len(certificates):,}"
    return Section(
        "Proof against attack" if lines else "How far it is proven",
        words,
        table=Table(header, rows, caption=f"% of {len(shown):,} test examples"),
        pictures=[draw_curve(grid.numpy(), proven, lines, radius, radius_label(subject.norm))],
        note=f"The dotted line is the radius that was asked for, {radius:.4g}{some}.",
    )


def _classes(subject: Subject, certificates: Certificates, radius: float) -> list[Section]:
    assert certificates.correct is not None
    names, labels = subject.spec.classes, subject.examples.labels
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
        rows.append([name, f"{int(mine.sum()):,}", *cells, rounded(middle, "lower", 3)])
    header = ["class", "examples", "% right", f"% proven at {radius:.4g}", "median radius"]
    return [Section("Class by class", table=Table(header, rows))]


def _slopes(subject: Subject, certificates: Certificates) -> Section:
    rows = spread_rows(len(certificates), _SLOPE_ROWS)
    constant = certificates.lipschitz.value
    steep = jacobian_norms(subject.model, subject.examples.inputs[rows], subject.norm)
    shares = (steep.double() / constant).numpy()
    return Section(
        "How much of the slope is used",
        [
            "The norm of the Jacobian at test inputs, as a share of the constant that is proven for "
            f"the network. The median is {np.median(shares):.3f}: the nearer to 1, the "
            "less of the constant is wasted."
        ],
        pictures=[draw_slopes(shares, rounded(constant, "upper", 5))],
        note=f"{NORMS[subject.norm.name]} operator norm at {len(rows):,} inputs; computed, not proven.",
    )


def _training(run: TrainedRun | None) -> list[Section]:
    if run is None or not run.history:
        return []
    best = int(run.result["best_epoch"])
    note = f"The dotted line is epoch {best}, whose network was kept"
    if run.history[-1]["certified"] is not None:
        note += ": the best on validation rows, by proven accuracy"
    return [Section("Training", pictures=[draw_history(run.history, best)], note=f"{note}.")]


def run_facts(run: TrainedRun) -> list[tuple[str, str]]:
    """How a classifier was trained, for the foot of a page."""
    config, result = run.config, run.result
    sizes = " × ".join(map(str, config.hidden or ()))
    loss: dict[str, Any] = {"margin": config.margin, "temperature": config.temperature}
    told = ", ".join(f"{name} {value:.4g}" for name, value in loss.items() if value is not None)
    facts = [
        ("Data", f"{Path(config.data).name}, {result['train_rows']:,} rows to learn from"),
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
        facts.insert(0, ("The same again", again))
    return facts
