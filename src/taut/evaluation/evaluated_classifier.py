"""`EvaluatedClassifier`: a classifier together with the examples that it is evaluated on."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from taut.certificates import Certificates
from taut.names import Arithmetic, CertificateMethod
from taut.norms import LINF, Norm
from taut.training import Examples, InputSpec, TrainedRun, certify_inputs


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
        """A proven radius for every example; see `taut.training.certify_inputs`.

        Without a `method`, by the one that the network was trained for.
        """
        return certify_inputs(
            self.model,
            self.spec,
            self.examples.inputs,
            self.norm,
            self.examples.labels,
            arithmetic,
            method or self.method,
            rounded=self.rounded,
        )

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
