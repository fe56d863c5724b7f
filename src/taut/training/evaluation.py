"""How good a network is on examples, by proof."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from taut import parallel
from taut.bounds import Bound
from taut.certificates import certify
from taut.training.inputs import Examples

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What is known of a network on some examples.

    Attributes:
        correct: `(n,)`, whether each is classified rightly.
        radii: `(n,)`, float64: within which the prediction stands, proven.
        lipschitz: the proven constant of the network.
    """

    correct: Tensor
    radii: Tensor
    lipschitz: Bound

    @property
    def clean(self) -> float:
        """The share that is classified rightly."""
        return self.correct.double().mean().item()

    def certified(self, radius: float) -> float:
        """The share that is right at every point within `radius`."""
        return (self.correct & (self.radii > radius)).double().mean().item()


def evaluate(model: nn.Module, examples: Examples, norm: str) -> Evaluation:
    """Certifies every example in real arithmetic; processes share the work."""
    rows = parallel.share(torch.arange(len(examples)))
    found = certify(model, examples.inputs[rows], norm, labels=examples.labels[rows])
    assert found.correct is not None
    return Evaluation(
        correct=parallel.gather(found.correct.cpu()),
        radii=parallel.gather(found.radius.cpu()),
        lipschitz=found.lipschitz,
    )
