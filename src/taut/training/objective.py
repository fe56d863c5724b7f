"""The training objective: the loss, on adversarial inputs if requested, and penalties."""

import torch
from torch import Generator, Tensor, nn

from taut.attacks import adversarial_batch
from taut.losses import HingeKR, MultiClassHinge, OffsetCrossEntropy
from taut.regularizers import spectral_jacobian
from taut.training.config import TrainConfig
from taut.training.examples import InputSpec
from taut.training.seeding import seed_at

__all__ = ["Objective", "make_loss"]


def make_loss(config: TrainConfig) -> nn.Module:
    """The loss of a resolved configuration.

    Example:
        >>> make_loss(TrainConfig(loss="hinge", margin=0.5))
        MultiClassHinge(margin=0.5)
    """
    assert config.margin is not None
    if config.loss == "hinge":
        return MultiClassHinge(config.margin)
    if config.loss == "hkr":
        return HingeKR(config.margin, config.alpha)
    assert config.temperature is not None
    return OffsetCrossEntropy(config.margin, config.temperature)


class Objective:
    """The function of a batch that training minimises.

    Args:
        config: resolved.
        spec: range of the inputs, which attacks respect.
    """

    def __init__(self, config: TrainConfig, spec: InputSpec) -> None:
        self.config = config
        self.spec = spec
        self.loss = make_loss(config)

    def __call__(
        self, model: nn.Module, x: Tensor, labels: Tensor, position: tuple[int, ...]
    ) -> tuple[Tensor, Tensor]:
        """The value for one batch, and the outputs `(n, classes)` of the network there.

        Args:
            model: in training mode.
            x: `(n, *shape)`.
            labels: `(n,)`.
            position: position in the run, which seeds all randomness.
        """
        generator = torch.Generator().manual_seed(seed_at(self.config.seed, *position))
        if self.config.adversarial_radius:
            x = self._attacked(model, x, labels, generator)
        with torch.autocast(x.device.type, torch.bfloat16, self.config.dtype == "bfloat16"):
            logits = model(x)
            value = self.loss(logits, labels)
        if self.config.jacobian_weight:
            penalty = spectral_jacobian(model, x, generator=generator)
            value = value + self.config.jacobian_weight * penalty
        return value, logits

    def _attacked(
        self, model: nn.Module, x: Tensor, labels: Tensor, generator: Generator
    ) -> Tensor:
        return adversarial_batch(
            model,
            x,
            labels,
            radius=self.config.adversarial_radius,
            norm=self.config.norm,
            num_steps=self.config.adversarial_steps,
            low=self.spec.low,
            high=self.spec.high,
            generator=generator,
        )
