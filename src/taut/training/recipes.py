"""The paper's recipes, as configurations."""

from typing import Literal

from taut.errors import check_choice
from taut.names import ActivationName, ConstraintName
from taut.training.config import TrainConfig

# The cross-entropy without a target radius: practically no offset.
_NO_OFFSET = 1e-6


def wide_residual_recipe(
    variant: Literal["standard", "parseval", "jacobian"] = "standard",
    activation: ActivationName | str = "maxmin",
    *,
    data: str = "cifar10",
    seed: int = 0,
) -> TrainConfig:
    """WRN-28-4 on CIFAR-10: crops, mirroring, 200 epochs of SGD, a learning rate with three steps.

    The optimisation is that of the publication of wide residual networks, without Nesterov's
    momentum; the paper says of its own only that it was the best for ReLU.

    Args:
        variant: `"standard"`; `"parseval"`, with Parseval's retraction and averaged shortcuts; or
            `"jacobian"`, with the spectral norm of the input Jacobian in the loss.
        activation: see `TrainConfig`, as for the following.
        data: dataset.
        seed: random seed.

    Example:
        >>> wide_residual_recipe("parseval").parseval_beta
        0.0003
    """
    check_choice("wide_residual_recipe", "variant", variant, ("standard", "parseval", "jacobian"))
    return TrainConfig(
        data=data,
        arch="wrn",
        constraint="none",
        activation=activation,
        margin=_NO_OFFSET,
        temperature=1.0,
        optimizer="sgd",
        lr=0.1,
        weight_decay=5e-4,
        schedule="step",
        milestones=(60, 120, 160),
        decay=0.2,
        batch_size=128,
        epochs=200,
        augment="crop-flip",
        parseval_beta=0.0003 if variant == "parseval" else 0.0,
        jacobian_weight=0.05 if variant == "jacobian" else 0.0,
        seed=seed,
    )


def little_data_recipe(
    constraint: ConstraintName = "bjorck",
    activation: ActivationName | str = "maxmin",
    *,
    data: str = "mnist",
    seed: int = 0,
) -> TrainConfig:
    """The LeNet-like network that the paper trains on a few hundred digits, without validation rows.

    The constraint of the weights is `"bjorck"`, `"spectral"` or `"none"`; for the other arguments see
    `TrainConfig`.

    Example:
        >>> little_data_recipe().epochs
        200
    """
    plain = constraint == "none"
    return TrainConfig(
        data=data,
        arch="lenet",
        constraint=constraint,
        activation=activation,
        optimizer="adam",
        lr=1e-3,
        schedule="step",
        milestones=(100, 150),
        batch_size=32,
        epochs=200,
        validation=0.0,
        seed=seed,
        margin=_NO_OFFSET if plain else None,
        temperature=1.0 if plain else None,
    )
