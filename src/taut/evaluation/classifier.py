"""`EvaluatedClassifier`: a classifier together with the examples that it is evaluated on."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from taut.certificates import Certificates, certify
from taut.names import Arithmetic, CertificateMethod
from taut.norms import LINF, Norm
from taut.training import Examples, InputSpec, TrainedRun

__all__ = ["EvaluatedClassifier", "evenly_spaced_rows"]


@dataclass(frozen=True, eq=False)
class EvaluatedClassifier:
    """A classifier and the examples that it is evaluated on.

    Attributes:
        name: name of the dataset.
        model: network in evaluation mode.
        spec: shape, range and classes of the inputs.
        examples: inputs in the dtype of the weights, with labels.
        norm: norm in which radii are measured.
        rounded: whether inputs were rounded to float32, as the rows of a table are.
        method: proof of the radii that the network was trained for.
    """

    name: str
    model: nn.Module
    spec: InputSpec
    examples: Examples
    norm: Norm
    rounded: bool = False
    method: CertificateMethod = "lipschitz"

    @classmethod
    def from_run(cls, run: TrainedRun, norm: Norm) -> "EvaluatedClassifier":
        """A trained classifier with its test examples."""
        weight = next(run.model.parameters())
        test = run.data().test.to(weight.device, weight.dtype)
        name, rounded = Path(run.config.data).name, bool(run.inputs.shift)
        by_intervals = run.config.arch == "ibp" and norm == LINF
        method = "interval" if by_intervals else "lipschitz"
        return cls(name, run.model, run.inputs, test, norm, rounded, method)

    def certify(
        self, arithmetic: Arithmetic = "real", method: CertificateMethod | None = None
    ) -> Certificates:
        r"""A proven radius for every example; by intervals, within the range of the data if known.

        Without a `method`, by the one that the network was trained for.

        Where rows are rounded to float32 on their way into the network, the radius is that of the
        row before rounding, against rows that are rounded as well: rounding moves each by at most
        $u = 2^{-24}$ of its length, so $r (1 - 2 u) - 3 u \|x\|$ remains.
        """
        x, labels = self.examples.inputs, self.examples.labels
        method = method or self.method
        found = certify(
            self.model,
            x,
            self.norm,
            labels=labels,
            arithmetic=arithmetic,
            method=method,
            input_range=None if method == "lipschitz" else self.spec.input_range,
        )
        if not self.rounded:
            return found
        lengths = self.norm.vector(x.double().flatten(1)).to(found.radius.device)
        # Subnormal float32 numbers move by at most half of the smallest one.
        moved = 3 * 2.0**-24 * lengths + math.prod(x.shape[1:]) * 2.0**-148
        remaining = found.radius * (1 - 2.0**-23) - moved
        return replace(found, radius=remaining.clamp(min=0))

    def take(self, rows: Tensor) -> "EvaluatedClassifier":
        """The same classifier on some of the examples."""
        some = Examples(self.examples.inputs[rows], self.examples.labels[rows])
        return replace(self, examples=some)


def evenly_spaced_rows(num_rows: int, limit: int) -> Tensor:
    """At most `limit` row numbers, evenly spaced, so that a sorted file is sampled fairly.

    Example:
        >>> evenly_spaced_rows(10, 4)
        tensor([0, 2, 5, 7])
    """
    count = min(num_rows, limit)
    return torch.arange(count) * num_rows // max(count, 1)
