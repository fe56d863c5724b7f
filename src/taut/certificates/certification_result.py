"""`Certificates`: certified radii of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from taut.bounds import Bound, Hypotheses, format_bound
from taut.errors import ArgumentError
from taut.names import Arithmetic
from taut.norms import Norm


@dataclass(frozen=True, eq=False)
class Certificates:
    r"""For each input, a prediction and a radius within which no perturbation changes it.

    No $x'$ with $\|x' - x\| < $ `radius` has a different prediction: a theorem about the network in
    the stated arithmetic, all roundoff included.

    Attributes:
        prediction: `(batch,)`, the index of the largest output; of a single output 1 if it is
            positive, else 0.
        margin: `(batch,)`, float64: the predicted output minus the next largest, or the magnitude
            of a single output.
        radius: `(batch,)`, float64; 0 for ties and where the input or an output is not finite.
        norm: the norm of the radii.
        arithmetic: "real", "float64" or "float32".
        method: how the radii were proven: by Lipschitz constants ("last-layer pairs", "vector map" or
            "sign"), by "interval propagation", or by the better of the two.
        lipschitz: the proven constant of the whole network, layer by layer.
        correct: `(batch,)`, whether the prediction is the label; None without labels.
        hypotheses: the network that the radii hold for, and the conditions that deployment has to meet.
    """

    prediction: Tensor
    margin: Tensor
    radius: Tensor
    norm: Norm
    arithmetic: Arithmetic
    method: str
    lipschitz: Bound
    correct: Tensor | None = None
    hypotheses: Hypotheses = field(default_factory=Hypotheses, repr=False)

    def certified_accuracy(self, radii: float | Sequence[float] | Tensor = 0.0) -> Tensor:
        """The share of inputs that are correct at every point within `radii`; clean accuracy at 0.

        Args:
            radii: one radius or many, any shape, none negative.

        Returns:
            The shape of `radii`, float64.
        """
        if self.correct is None:
            remedy = "Pass labels to certify."
            raise ArgumentError("certified_accuracy", "labels", "must be known", "none", remedy)
        within = torch.as_tensor(radii, dtype=torch.float64, device=self.radius.device)
        if not bool((within >= 0).all()):
            raise ArgumentError("certified_accuracy", "radii", "must not be negative", str(radii))
        certified = (self.radius > within[..., None]) | (within[..., None] == 0)
        return (certified & self.correct).double().mean(-1)

    def summary(self) -> str:
        """A few lines of text: radii, certified share, accuracy and the constant."""
        count = len(self.radius)
        lines = [f"{count} inputs, {self.norm}, {self.arithmetic} arithmetic, by {self.method}"]
        if count:
            low, middle, high = (
                format_bound(float(self.radius.quantile(q)), "lower") for q in (0.1, 0.5, 0.9)
            )
            lines.append(f"radius: median {middle}, 10 % {low}, 90 % {high}")
            lines.append(f"certified: {100 * float((self.radius > 0).double().mean()):.2f} %")
        if self.correct is not None and count:
            lines.append(f"correct: {100 * float(self.certified_accuracy()):.2f} %")
        lines.append(f"network: {self.lipschitz}")
        return "\n".join(lines)

    def __len__(self) -> int:
        return len(self.radius)

    def __repr__(self) -> str:
        about = f"{len(self)} inputs, {self.norm}, {self.arithmetic}"
        if len(self):
            about += f", median radius {format_bound(float(self.radius.median()), 'lower')}"
        return f"Certificates({about})"
