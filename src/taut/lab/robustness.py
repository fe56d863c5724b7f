"""A classifier between proof and attack: what is certain, what was broken, and how steep it is."""

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from taut.attacks import AttackResult, autoattack, check_certificates, closest, fgs, pgd
from taut.certificates import Certificates, certify
from taut.errors import ArgumentError, ViolatedCertificateError, check_choice, check_count
from taut.norms import L1, Norm
from taut.training import Examples, InputSpec, TrainedRun

__all__ = [
    "ATTACKS",
    "Attacked",
    "Subject",
    "attack",
    "spread_rows",
    "subject_of",
]

ATTACKS = ("fgs", "pgd", "autoattack")

OnAttack = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class Subject:
    """A classifier, and the examples that it is judged on.

    Attributes:
        name: of the data.
        model: in evaluation mode.
        spec: what it expects of inputs.
        examples: in the dtype of its weights.
        norm: of the radii.
        rounded: whether they were rounded to float32, as the rows of a table are.
    """

    name: str
    model: nn.Module
    spec: InputSpec
    examples: Examples
    norm: Norm
    rounded: bool = False

    def certify(self, arithmetic: str = "real") -> Certificates:
        r"""Proves a radius for every example.

        Where rows are rounded to float32 on their way into the network the radius is that of the
        row before, for rows that are rounded as well: each is moved by at most $u = 2^{-24}$ of
        its length, so $r (1 - 2 u) - 3 u \|x\|$ is left.
        """
        x, labels = self.examples.inputs, self.examples.labels
        found = certify(self.model, x, self.norm, labels=labels, arithmetic=arithmetic)
        if not self.rounded:
            return found
        lengths = self.norm.vector(x.double().flatten(1)).to(found.radius.device)
        # Numbers below the normal ones of float32 are moved by at most half of the least of all.
        moved = 3 * 2.0**-24 * lengths + math.prod(x.shape[1:]) * 2.0**-148
        left = found.radius * (1 - 2.0**-23) - moved
        return replace(found, radius=left.clamp(min=0))

    def take(self, rows: Tensor) -> "Subject":
        """The same classifier on some of the examples."""
        some = Examples(self.examples.inputs[rows], self.examples.labels[rows])
        return replace(self, examples=some)


def subject_of(run: TrainedRun, norm: Norm) -> Subject:
    """A trained classifier with its test examples."""
    held = next(run.model.parameters())
    test = run.data().test.to(held.device, held.dtype)
    name, rounded = Path(run.config.data).name, bool(run.inputs.shift)
    return Subject(name, run.model, run.inputs, test, norm, rounded)


def spread_rows(rows: int, limit: int) -> Tensor:
    """At most `limit` of so many rows, evenly from first to last: files are sorted by all sorts.

    Example:
        >>> spread_rows(10, 4)
        tensor([0, 2, 5, 7])
    """
    count = min(rows, limit)
    return torch.arange(count) * rows // max(count, 1)


@dataclass(frozen=True, eq=False)
class Attacked:
    """What attacks found on the examples of a subject.

    Attributes:
        subject: who was attacked, on these examples alone.
        certificates: of the same examples.
        radii: how far the attacks went, growing.
        distances: for each attack the least distance at which it broke an example, `(n,)`;
            0 where the prediction was wrong from the start, infinite where it stood.
        nearest_rows: the examples that were also searched for their closest adversarial ones.
        nearest: what that search found; None where there is no such search, as in L1.
        violations: a sentence for every attack that succeeded inside a certified radius. There
            must be none: each is an error of taut.
        settings: steps, restarts and seed.
    """

    subject: Subject
    certificates: Certificates
    radii: tuple[float, ...]
    distances: dict[str, Tensor]
    nearest_rows: Tensor
    nearest: AttackResult | None
    violations: tuple[str, ...]
    settings: dict[str, Any]

    @property
    def clean(self) -> float:
        """The share that is right when nobody attacks."""
        return float(self.certificates.certified_accuracy())

    def certified(self, radius: float) -> float:
        """The share that is proven to stand within `radius`."""
        return float(self.certificates.certified_accuracy(radius))

    def accuracy(self, radius: float, attack: str | None = None) -> float:
        """The share that one attack, or all of them together, left standing within `radius`."""
        found = [self.distances[attack]] if attack else list(self.distances.values())
        return float((torch.stack(found).amin(0) > radius).double().mean())


def attack(
    subject: Subject,
    radii: Sequence[float],
    attacks: Sequence[str] = ("pgd",),
    *,
    num_steps: int = 200,
    num_restarts: int = 1,
    num_nearest: int = 6,
    seed: int = 0,
    on_attack: OnAttack | None = None,
) -> Attacked:
    """Attacks every example at every radius, and holds each success against the proof.

    An example that an attack broke within one radius counts as broken within all larger ones.

    Args:
        subject: whom to attack.
        radii: how far.
        attacks: of "fgs", "pgd", "autoattack".
        num_steps: of pgd.
        num_restarts: of pgd.
        num_nearest: how many examples to search for their closest adversarial ones, in at most
            50 steps a round.
        seed: of every draw.
        on_attack: called with the attack and the radius before each starts.

    Raises:
        ArgumentError: a gradient attack in L1, which has none.
    """
    check_count("attack", "num_restarts", num_restarts)
    for name in attacks:
        check_choice("attack", "attacks", name, ATTACKS)
    if subject.norm == L1 and set(attacks) != {"autoattack"}:
        raise ArgumentError(
            f"attack: `attacks` must be autoattack alone in L1; got {', '.join(attacks)}."
        )
    reach = tuple(sorted(set(map(float, radii))))
    if not reach or reach[0] <= 0:
        raise ArgumentError(f"attack: `radii` must be above 0; got {list(radii)}.")
    certificates = subject.certify()
    violations: list[str] = []
    distances: dict[str, Tensor] = {}
    for name in attacks:
        least = torch.full((len(certificates),), torch.inf, dtype=torch.float64)
        for radius in reach:
            if on_attack is not None:
                on_attack(name, radius)
            rows = least.isinf().nonzero()[:, 0]
            part = subject.take(rows)
            found = _run(name, part, radius, num_steps, num_restarts, seed)
            violations += _check(found, _take(certificates, rows), part.model)
            least[rows] = found.distance.cpu()
        distances[name] = least
    rows, nearest = _nearest(
        subject, certificates, num_nearest, min(50, num_steps), seed, on_attack
    )
    if nearest is not None:
        violations += _check(nearest, _take(certificates, rows), subject.model)
    settings = {"num_steps": num_steps, "num_restarts": num_restarts, "seed": seed}
    return Attacked(
        subject, certificates, reach, distances, rows, nearest, tuple(violations), settings
    )


def _run(
    name: str, subject: Subject, radius: float, num_steps: int, num_restarts: int, seed: int
) -> AttackResult:
    spec, norm = subject.spec, subject.norm
    batch = (subject.model, subject.examples.inputs, subject.examples.labels)
    where: dict[str, Any] = {"radius": radius, "norm": norm, "low": spec.low, "high": spec.high}
    if name == "fgs":
        return fgs(*batch, **where)
    if name == "pgd":
        chance = Generator().manual_seed(seed)
        return pgd(
            *batch, num_steps=num_steps, num_restarts=num_restarts, generator=chance, **where
        )
    if spec.low is None or spec.high is None:
        # AutoAttack knows only bounded data; these bounds are further away than it may go.
        values = subject.examples.inputs
        low, high = (float(end) for end in values.aminmax()) if values.numel() else (0.0, 1.0)
        where |= {"low": low - 2 * radius, "high": high + 2 * radius}
    with _quiet():
        return autoattack(*batch, seed=seed, **where)


def _nearest(
    subject: Subject,
    certificates: Certificates,
    count: int,
    num_steps: int,
    seed: int,
    on_attack: OnAttack | None,
) -> tuple[Tensor, AttackResult | None]:
    """The closest adversarial examples of a few inputs, from small radii to large ones."""
    assert certificates.correct is not None
    right = certificates.correct.nonzero()[:, 0]
    ranked = right[certificates.radius[right].argsort(stable=True)]
    rows = ranked[spread_rows(len(ranked), count)]
    if subject.norm == L1 or not len(rows):
        return rows, None
    if on_attack is not None:
        on_attack("closest", 0.0)
    inputs, labels = subject.examples.inputs, subject.examples.labels
    reach = torch.zeros(len(rows), dtype=torch.float64)
    for place, row in enumerate(rows.tolist()):
        away = subject.norm.vector((inputs - inputs[row]).flatten(1).double())
        # The nearest input of another class is an adversarial example already.
        others = away[(labels != labels[row]) & certificates.correct]
        reach[place] = others.min() if len(others) else away.max()
    some = subject.take(rows).examples
    found = closest(
        subject.model,
        some.inputs,
        some.labels,
        radius=reach,
        norm=subject.norm,
        num_steps=num_steps,
        low=subject.spec.low,
        high=subject.spec.high,
        generator=Generator().manual_seed(seed),
    )
    return rows, found


def _check(found: AttackResult, certificates: Certificates, model: nn.Module) -> list[str]:
    try:
        check_certificates(found, certificates, model)
    except ViolatedCertificateError as error:
        return [str(error)]
    return []


def _take(certificates: Certificates, rows: Tensor) -> Certificates:
    return replace(
        certificates,
        prediction=certificates.prediction[rows],
        margin=certificates.margin[rows],
        radius=certificates.radius[rows],
        correct=None if certificates.correct is None else certificates.correct[rows],
    )


@contextmanager
def _quiet():
    """AutoAttack tells its whole story to whoever listens to debug messages."""
    logger = logging.getLogger("auto-attack")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
