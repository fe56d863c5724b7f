"""The training objective, and Parseval's retraction of unconstrained layers."""

import torch
from torch import Tensor, nn

from taut.attacks import adversarial_batch
from taut.losses import HingeKR, MultiClassHinge, OffsetCrossEntropy, RampLoss
from taut.regularizers import spectral_jacobian
from taut.training.config import TrainConfig
from taut.training.data_preparation import InputSpec
from taut.training.seeds import generator_at
from taut.training.worst_case_logits import training_radius, worst_logits


def make_loss(config: TrainConfig) -> nn.Module:
    """Creates the loss of a resolved configuration.

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
    if config.loss == "ramp":
        return RampLoss(config.margin, config.temperature)
    return OffsetCrossEntropy(config.margin, config.temperature)


class Objective:
    """The training objective, as a function of a batch.

    The loss, on adversarial inputs if requested or on the worst logits of interval propagation, and the
    Jacobian penalty. Attacks and boxes respect the range of the inputs. `progress` is the share of the
    run that is over.
    """

    def __init__(self, config: TrainConfig, spec: InputSpec) -> None:
        self.config, self.spec = config, spec
        self.loss = make_loss(config)
        self.progress = 0.0

    def __call__(
        self, model: nn.Module, x: Tensor, labels: Tensor, position: tuple[int, ...]
    ) -> tuple[Tensor, Tensor]:
        """Returns the value for one batch, and the outputs `(n, classes)` of the network.

        The position in the run seeds all randomness.
        """
        config = self.config
        generator = generator_at(config.seed, *position)
        if config.adversarial_radius:
            x = adversarial_batch(
                model,
                x,
                labels,
                radius=config.adversarial_radius,
                norm=config.norm,
                num_steps=config.adversarial_steps,
                low=self.spec.low,
                high=self.spec.high,
                generator=generator,
            )
        with torch.autocast(x.device.type, torch.bfloat16, config.dtype == "bfloat16"):
            if config.arch == "ibp":
                assert config.radius is not None
                radius = training_radius(config.radius, self.progress)
                logits = worst_logits(model, x, labels, radius, self.spec.low, self.spec.high)
            else:
                logits = model(x)
            value = self.loss(logits, labels)
        if config.jacobian_weight:
            penalty = spectral_jacobian(model, x, generator=generator)
            value = value + config.jacobian_weight * penalty
        return value, logits


@torch.no_grad()
def parseval_step(model: nn.Module, beta: float) -> None:
    r"""Moves every plain dense and convolutional weight by one step of $\beta$, in place.

    $$W \leftarrow (1 + \beta) W - \beta W W^\top W$$

    with kernels as matrices `(out, in * taps)`: the descent on $\|W W^\top - I\|^2$ of Parseval
    networks. It proves nothing: kernels that are orthonormal as matrices may have larger norms as
    convolutions, and the step only approaches orthonormality. The proven layers are those of
    `taut.nn`.

    Args:
        model: network; layers of `taut.nn` in it are left alone.
        beta: step size, in (0, 0.5].

    Example:
        >>> layer = nn.Linear(4, 2)
        >>> for _ in range(200):
        ...     parseval_step(layer, 0.1)
        >>> torch.allclose(layer.weight @ layer.weight.mT, torch.eye(2), atol=1e-5)
        True
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            matrix = module.weight.flatten(1)
            step = (1 + beta) * matrix - beta * (matrix @ matrix.mT) @ matrix
            module.weight.copy_(step.view_as(module.weight))
