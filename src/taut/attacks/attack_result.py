"""`AttackResult`: adversarial examples of a batch, and their distances."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from taut.attacks.ball import per_input
from taut.norms import Norm


@dataclass(frozen=True, eq=False)
class AttackResult:
    """For each input the adversarial example that was found, if one was.

    Attributes:
        attack: the name of the attack.
        examples: `(n, ...)`; the input itself where no example was found, or none was needed.
        success: `(n,)`, whether the prediction at the example differs from the label, the example
            lies within the radius and in the range of the data, all of it measured again at the
            end. True for inputs that were misclassified from the start.
        distance: `(n,)`, float64: from the input to the example, measured in float64; 0 for inputs
            misclassified from the start, infinite where nothing was found.
        prediction: `(n,)`, the class at the example.
        labels: `(n,)`, the true classes.
        radius: `(n,)`, float64: how far the attack was allowed to go.
        norm: the norm of distances and radii.
    """

    attack: str
    examples: Tensor
    success: Tensor
    distance: Tensor
    prediction: Tensor
    labels: Tensor
    radius: Tensor
    norm: Norm

    @property
    def error(self) -> float:
        """The share of inputs misclassified under the attack; a lower bound of the true one."""
        return float(self.success.double().mean()) if len(self) else float("nan")

    @property
    def accuracy(self) -> float:
        """The share of inputs that the attack left correct; an upper bound of the true one."""
        return 1 - self.error

    def nearer(self, other: "AttackResult") -> "AttackResult":
        """Of two attacks on the same inputs, for each input the example that lies closer."""
        first = self.distance <= other.distance
        names = (self.attack,) if self.attack == other.attack else (self.attack, other.attack)
        return replace(
            self,
            attack=" + ".join(names),
            examples=torch.where(per_input(first, self.examples), self.examples, other.examples),
            success=torch.where(first, self.success, other.success),
            distance=torch.where(first, self.distance, other.distance),
            prediction=torch.where(first, self.prediction, other.prediction),
            radius=torch.maximum(self.radius, other.radius),
        )

    def __len__(self) -> int:
        return len(self.success)

    def __repr__(self) -> str:
        reach = ""
        if len(self):
            low, high = float(self.radius.min()), float(self.radius.max())
            reach = f" within {high:.4g}" if low == high else f" within {low:.4g} to {high:.4g}"
        return (
            f"AttackResult({self.attack}, {self.norm}{reach}: error {100 * self.error:.2f} % of "
            f"{len(self)} inputs)"
        )
