"""Clean and certified accuracy of a network on examples."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from taut import parallel
from taut.bounds import Bound
from taut.certificates import certify
from taut.names import CertificateMethod, NormName
from taut.training.examples import Examples

__all__ = ["Evaluation", "evaluate"]


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
    norm: NormName,
    method: CertificateMethod = "lipschitz",
    input_range: tuple[float, float] | None = None,
    radius: float | None = None,
) -> Evaluation:
    """Certifies every example in real arithmetic; processes share the work.

    Args:
        model: network in evaluation mode or not; not changed.
        examples: inputs with labels.
        norm: norm of the radii.
        method: as `taut.certify` takes it.
        input_range: the same.
        radius: the same.
    """
    rows = parallel.share(torch.arange(len(examples)))
    found = certify(
        model,
        examples.inputs[rows],
        norm,
        labels=examples.labels[rows],
        method=method,
        input_range=input_range,
        radius=radius,
    )
    assert found.correct is not None
    return Evaluation(
        correct=parallel.gather(found.correct.cpu()),
        radii=parallel.gather(found.radius.cpu()),
        lipschitz=found.lipschitz,
    )
