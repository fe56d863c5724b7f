"""Clean and certified accuracy of a network on examples."""

import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import torch
from torch import Tensor, nn

from taut import parallel
from taut.bounds import Bound
from taut.certificates import Certificates, certify, radii_after_rounding
from taut.errors import ArgumentError
from taut.names import Arithmetic, CertificateMethod
from taut.norms import NormLike, as_norm
from taut.training.data_preparation import Examples, InputSpec

# Most combinations of the values of free categories: each is certified for every row.
_MOST_CHOICES = 256


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Certified evaluation of a network on examples.

    Attributes:
        correct: `(n,)`, whether each is classified correctly.
        radii: `(n,)`, float64: certified radii.
        lipschitz: proven constant of the network.
    """

    correct: Tensor
    radii: Tensor
    lipschitz: Bound

    @property
    def clean(self) -> float:
        """Clean accuracy."""
        return self.correct.double().mean().item()

    def certified(self, radius: float) -> float:
        """Certified accuracy at `radius`."""
        return (self.correct & (self.radii > radius)).double().mean().item()


def evaluate(
    model: nn.Module,
    examples: Examples,
    norm: NormLike,
    spec: InputSpec,
    method: CertificateMethod = "lipschitz",
    radius: float | None = None,
) -> Evaluation:
    """Certifies every example in real arithmetic, as `certify_inputs` does; processes share the work."""
    rows = parallel.share(torch.arange(len(examples)))
    inputs, labels = examples.inputs[rows], examples.labels[rows]
    certificates = certify_inputs(model, spec, inputs, norm, labels, method=method, radius=radius)
    assert certificates.correct is not None
    correct = parallel.gather(certificates.correct.cpu())
    radii = parallel.gather(certificates.radius.cpu())
    return Evaluation(correct, radii, certificates.lipschitz)


def certify_inputs(
    model: nn.Module,
    spec: InputSpec,
    x: Tensor,
    norm: NormLike,
    labels: Tensor | None = None,
    arithmetic: Arithmetic = "real",
    method: CertificateMethod = "lipschitz",
    radius: float | None = None,
    rounded: bool = False,
) -> Certificates:
    r"""Certified radii of a network whose inputs are prepared by `spec`.

    With tolerances, distances are measured in them, and fixed columns do not count. With free
    categories, the network is certified at every combination of their values. Where all predictions
    agree, the smallest radius holds, since at every point within it the categories form one of these
    combinations; elsewhere the radius is 0. Categories that the encoding does not know are not covered.

    Args:
        model: maps prepared inputs to classes.
        spec: preparation of the inputs.
        x: prepared inputs `(n, *shape)`.
        norm: norm of the radii.
        labels: `(n,)`, the true classes.
        arithmetic: see `taut.certify`.
        method: see `taut.certify`; intervals are clipped to the range of the data if it is known.
        radius: see `taut.certify`.
        rounded: whether inputs were rounded to float32 beforehand, like rows of a table. The
            radius is then that of the row before rounding, against rows that are rounded as well.

    Raises:
        ArgumentError: free categories have too many combinations.
    """
    p, weights = as_norm(norm), spec.weights

    radii = partial(
        certify,
        model,
        norm=p,
        labels=labels,
        arithmetic=arithmetic,
        method=method,
        input_range=None if method == "lipschitz" else spec.input_range,
        tolerance=weights,
        radius=radius,
    )

    certificates = radii(x)
    for combination in _combinations(spec):
        changed = x.clone()
        for group, values in combination:
            changed[:, group] = values.to(x)
        other = radii(changed)
        agrees = other.prediction == certificates.prediction
        smallest = torch.where(agrees, torch.minimum(certificates.radius, other.radius), 0.0)
        margin = torch.minimum(certificates.margin, other.margin)
        certificates = replace(certificates, radius=smallest, margin=margin)
    if not rounded:
        return certificates
    moving = x.double().flatten(1)
    if weights is not None:
        unit = moving.new_tensor(weights)
        moving = torch.where(unit > 0, moving / unit, 0.0)
    lengths = p.vector(moving).to(certificates.radius.device)
    remaining = radii_after_rounding(certificates.radius, lengths, 2.0**-24)
    # Subnormal float32 numbers move by at most half of the smallest one.
    tiny = math.prod(x.shape[1:]) * 2.0**-148 / min(w for w in weights or (1.0,) if w > 0)
    return replace(certificates, radius=(remaining - tiny).clamp(min=0))


def _combinations(spec: InputSpec) -> list[tuple[tuple[slice, Tensor], ...]]:
    choices = spec.free_choices()
    count = math.prod(len(values) for _, values in choices)
    if count > _MOST_CHOICES:
        rule = f"free categories must have at most {_MOST_CHOICES} combinations of values"
        got = str(count)
        raise ArgumentError("certify", "tolerance", rule, got, "Drop a column, or make it fixed.")
    pairs = [[(group, value) for value in values] for group, values in choices]
    return list(product(*pairs)) if pairs else []
