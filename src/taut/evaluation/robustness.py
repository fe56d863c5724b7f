"""`evaluate_robustness`: clean, certified and attacked accuracy side by side."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor

from taut.attacks import (
    AttackResult,
    autoattack,
    check_certificates,
    fgsm,
    minimal_perturbation,
    pgd,
)
from taut.certificates import Certificates
from taut.errors import ArgumentError, ViolatedCertificateError, check_choice, check_count
from taut.evaluation.evaluated_classifier import EvaluatedClassifier, evenly_spaced_rows
from taut.norms import L1

ATTACKS = ("fgsm", "pgd", "autoattack")
_SUBJECT = "evaluate_robustness"

OnAttack = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class RobustnessResult:
    """What attacks found on the examples of a classifier.

    Attributes:
        classifier: the attacked classifier, with the attacked examples alone.
        certificates: certificates of the same examples.
        radii: radii of the attacks, ascending.
        distances: for each attack the smallest distance at which it succeeded, `(n,)`;
            0 where the prediction was wrong without attack, infinite where no attack succeeded.
        minimal_rows: the examples that were also searched for a minimal perturbation.
        minimal: the result of that search; None where there is none, as in L1.
        violations: a sentence for every attack that succeeded inside a certified radius. Each is
            a bug in taut.
        settings: number of steps and restarts, and the random seed.
    """

    classifier: EvaluatedClassifier
    certificates: Certificates
    radii: tuple[float, ...]
    distances: dict[str, Tensor]
    minimal_rows: Tensor
    minimal: AttackResult | None
    violations: tuple[str, ...]
    settings: dict[str, Any]

    @property
    def clean(self) -> float:
        """Accuracy without attack."""
        return float(self.certificates.certified_accuracy())

    def certified(self, radius: float) -> float:
        """Fraction of examples that are classified correctly at every point within `radius`."""
        return float(self.certificates.certified_accuracy(radius))

    def accuracy(self, radius: float, attack: str | None = None) -> float:
        """Accuracy under one attack, or under all of them together, within `radius`."""
        distances = [self.distances[attack]] if attack else list(self.distances.values())
        return float((torch.stack(distances).amin(0) > radius).double().mean())


def evaluate_robustness(
    classifier: EvaluatedClassifier,
    radii: Sequence[float],
    attacks: Sequence[str] = ("pgd",),
    *,
    num_steps: int = 200,
    num_restarts: int = 1,
    num_minimal: int = 6,
    seed: int = 0,
    on_attack: OnAttack | None = None,
) -> RobustnessResult:
    """Attacks every example at every radius, and checks each success against its certificate.

    An example that an attack changed within one radius counts as changed within all larger ones.

    Args:
        classifier: the classifier and its examples.
        radii: radii of the attacks.
        attacks: some of "fgsm", "pgd", "autoattack".
        num_steps: number of PGD steps.
        num_restarts: number of PGD restarts.
        num_minimal: number of examples to search for a minimal perturbation, with at most 50
            steps a round.
        seed: random seed.
        on_attack: called with the name and the radius of an attack before it starts.

    Raises:
        ArgumentError: a gradient attack in L1, where there is none.
    """
    check_count(_SUBJECT, "num_restarts", num_restarts)
    for name in attacks:
        check_choice(_SUBJECT, "attacks", name, ATTACKS)
    if classifier.norm == L1 and set(attacks) != {"autoattack"}:
        rule = "must be autoattack alone in L1"
        raise ArgumentError(_SUBJECT, "attacks", rule, ", ".join(attacks))
    ascending = tuple(sorted(set(map(float, radii))))
    if not ascending or ascending[0] <= 0:
        raise ArgumentError(_SUBJECT, "radii", "must be above 0", str(list(radii)))
    report = on_attack or (lambda name, radius: None)
    certificates = classifier.certify()
    settings = {"num_steps": num_steps, "num_restarts": num_restarts, "seed": seed}
    violations: list[str] = []

    def check(result: AttackResult, rows: Tensor) -> None:
        try:
            check_certificates(result, _take(certificates, rows), classifier.model)
        except ViolatedCertificateError as error:
            violations.append(str(error))

    distances: dict[str, Tensor] = {}
    for name in attacks:
        smallest = torch.full((len(certificates),), torch.inf, dtype=torch.float64)
        for radius in ascending:
            report(name, radius)
            rows = smallest.isinf().nonzero()[:, 0]
            result = _attack(name, classifier.take(rows), radius, **settings)
            check(result, rows)
            smallest[rows] = result.distance.cpu()
        distances[name] = smallest
    rows, minimal = _rows_to_search(certificates, num_minimal), None
    if classifier.norm != L1 and len(rows):
        report("minimal_perturbation", 0.0)
        minimal = _minimal_perturbations(classifier, certificates, rows, min(50, num_steps), seed)
        check(minimal, rows)
    return RobustnessResult(
        classifier, certificates, ascending, distances, rows, minimal, tuple(violations), settings
    )


def _arguments(
    classifier: EvaluatedClassifier, radius: float | Tensor
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that all attacks share."""
    spec, examples = classifier.spec, classifier.examples
    ball = {"radius": radius, "norm": classifier.norm, "low": spec.low, "high": spec.high}
    return (classifier.model, examples.inputs, examples.labels), ball


def _attack(
    name: str,
    classifier: EvaluatedClassifier,
    radius: float,
    num_steps: int,
    num_restarts: int,
    seed: int,
) -> AttackResult:
    batch, ball = _arguments(classifier, radius)
    if name == "fgsm":
        return fgsm(*batch, **ball)
    if name == "pgd":
        ball |= {"num_steps": num_steps, "num_restarts": num_restarts}
        return pgd(*batch, generator=Generator().manual_seed(seed), **ball)
    if ball["low"] is None or ball["high"] is None:
        # AutoAttack needs bounds on the data; these are too far away for it to reach.
        values = classifier.examples.inputs
        low, high = (float(end) for end in values.aminmax()) if values.numel() else (0.0, 1.0)
        ball |= {"low": low - 2 * radius, "high": high + 2 * radius}
    with _autoattack_log_off():
        return autoattack(*batch, seed=seed, **ball)


def _rows_to_search(certificates: Certificates, count: int) -> Tensor:
    """A few correctly classified inputs, from small certified radii to large ones."""
    assert certificates.correct is not None
    correct = certificates.correct.nonzero()[:, 0]
    ranked = correct[certificates.radius[correct].argsort(stable=True)]
    return ranked[evenly_spaced_rows(len(ranked), count)]


def _minimal_perturbations(
    classifier: EvaluatedClassifier,
    certificates: Certificates,
    rows: Tensor,
    num_steps: int,
    seed: int,
) -> AttackResult:
    """The closest adversarial examples of some inputs."""
    assert certificates.correct is not None
    inputs, labels = classifier.examples.inputs, classifier.examples.labels
    limits = torch.zeros(len(rows), dtype=torch.float64)
    for index, row in enumerate(rows.tolist()):
        distance = classifier.norm.vector((inputs - inputs[row]).flatten(1).double())
        # The nearest correctly classified input of another class is already adversarial.
        others = distance[(labels != labels[row]) & certificates.correct]
        limits[index] = others.min() if len(others) else distance.max()
    batch, ball = _arguments(classifier.take(rows), limits)
    generator = Generator().manual_seed(seed)
    return minimal_perturbation(*batch, num_steps=num_steps, generator=generator, **ball)


def _take(certificates: Certificates, rows: Tensor) -> Certificates:
    names = ("prediction", "margin", "radius", "correct")
    return replace(certificates, **{name: getattr(certificates, name)[rows] for name in names})


@contextmanager
def _autoattack_log_off() -> Iterator[None]:
    """AutoAttack writes its progress to the log at a level that test runners show."""
    logger = logging.getLogger("auto-attack")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
