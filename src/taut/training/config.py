"""`TrainConfig`: everything a training run depends on, as one frozen value."""

import math
from dataclasses import dataclass, fields
from typing import Any

from taut.errors import ArgumentError, DtypeError, check_choice, check_count, check_positive
from taut.losses import KINDS
from taut.norms import L1, as_norm
from taut.training.augmentation import AUGMENTATIONS

__all__ = ["TrainConfig"]

_SUBJECT = "TrainConfig"
_OPTIMIZERS = ("adam", "sgd", "aggmo")
_SCHEDULES = ("cosine", "step", "constant")
_DTYPES = ("float32", "float64", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """What to train, on what, and how: with the data it decides every bit of the result.

    What is `None` is decided by the data and by the other fields (see `resolve`). A run keeps the
    decided form in its folder, so a later version with other defaults cannot change it.

    Arithmetic: weights are float32 or float64 and so are their constraints; `"bfloat16"` runs the
    forward and the loss under `torch.autocast`, where constrained layers still compute in the
    float32 of their weights and only what stands between them is rounded. Certificates are always
    proven from the stored weights, in float64. Weights of 16 bits are refused: rounding would break
    their constraint by up to a percent.

    Attributes:
        data: a name ("digits", "mnist", ...) or a path, as `taut.data.load_labelled` takes it.
        data_dir: where named data lies; does not count as a difference between runs.
        label: the label column of a table.
        test: a second file to test on; without one a part of `data` is set aside for it.
        norm: "l1", "l2" or "linf": the norm of the radius.
        radius: what to certify, in units of the inputs: of pixels in [0, 1] for images, of
            standard deviations of the training columns for tables.
        lipschitz: the constant of the network.
        arch: the kind of network, a name of `taut.training.ARCHITECTURES`.
        channels: of the convolutions, a number for each stage; none for those of the kind.
        hidden: sizes of the hidden dense layers.
        activation: as `taut.nn.mlp` takes it.
        constraint: as `taut.nn.mlp` takes it.
        loss: "cross_entropy", "hinge" or "hkr".
        margin: the lead that the loss asks for, instead of the one that `radius` asks for.
        temperature: of the cross-entropy, instead of the one that the margin suggests.
        alpha: weight of the hinge in "hkr".
        optimizer: "adam", "sgd" (momentum 0.9) or "aggmo".
        lr: the learning rate at its highest.
        weight_decay: times the weights, what the optimiser adds to their gradients.
        schedule: "cosine" (to zero), "step" (times `decay` at each milestone) or "constant".
        milestones: epochs at which a step schedule falls.
        decay: what it is multiplied by there.
        warmup: epochs of linear growth from nothing to `lr`.
        batch_size: inputs of one step, over all processes together.
        epochs: passes over the training data.
        seed: decides initial weights, order, validation rows, dropout, augmentation and attacks.
        dtype: "float32", "float64" or "bfloat16".
        device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", ...
        adversarial_radius: of the PGD attack on training inputs, in `norm`; 0 trains on the inputs.
        adversarial_steps: steps of that attack.
        jacobian_weight: of the spectral norm of the input Jacobian in the loss; 0 leaves it out.
        dropout: share of hidden units dropped in training.
        augment: "none", "crop" or "crop-flip": how `taut.training.augment` moves training images.
        parseval_beta: of Parseval's retraction of plain layers after each step; 0 takes none.
        validation: share of the training rows that is held out to choose the best epoch; 0 keeps
            the last epoch.
        patience: epochs without a better certified validation accuracy after which training ends;
            0 never ends early.
        checkpoint_every: steps between checkpoints within an epoch; each epoch ends with one.
        threads: of torch on the CPU; None leaves them as they are.

    Example:
        >>> TrainConfig(data="mnist", norm="linf", radius=0.1).constraint is None
        True
    """

    data: str = "digits"
    data_dir: str | None = None
    label: str | None = None
    test: str | None = None
    norm: str = "l2"
    radius: float | None = None
    lipschitz: float | None = None
    arch: str = "dense"
    channels: tuple[int, ...] = ()
    hidden: tuple[int, ...] | None = None
    activation: str = "maxmin"
    constraint: str | None = None
    loss: str | None = None
    margin: float | None = None
    temperature: float | None = None
    alpha: float = 10.0
    optimizer: str | None = None
    lr: float | None = None
    weight_decay: float = 0.0
    schedule: str = "cosine"
    milestones: tuple[int, ...] = ()
    decay: float = 0.1
    warmup: float = 0.0
    batch_size: int | None = None
    epochs: int | None = None
    seed: int = 0
    dtype: str = "float32"
    device: str = "auto"
    adversarial_radius: float = 0.0
    adversarial_steps: int = 10
    jacobian_weight: float = 0.0
    dropout: float = 0.0
    augment: str = "none"
    parseval_beta: float = 0.0
    validation: float = 0.1
    patience: int = 0
    checkpoint_every: int = 1000
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("channels", "hidden", "milestones"):
            if isinstance(given := getattr(self, name), list):
                object.__setattr__(self, name, tuple(given))
        _check_types(self)
        as_norm(self.norm, _SUBJECT)
        if self.dtype in ("float16", "half"):
            raise DtypeError(
                f"{_SUBJECT}: `dtype` must keep weights in 32 or 64 bits, or their constraint and "
                f"every certificate would break; got dtype={self.dtype!r}. Use 'float32', or "
                "'bfloat16', which rounds only what stands between constrained layers."
            )
        check_choice(_SUBJECT, "dtype", self.dtype, _DTYPES)
        check_choice(_SUBJECT, "augment", self.augment, AUGMENTATIONS)
        check_choice(_SUBJECT, "schedule", self.schedule, _SCHEDULES)
        if self.optimizer is not None:
            check_choice(_SUBJECT, "optimizer", self.optimizer, _OPTIMIZERS)
        if self.loss is not None:
            check_choice(_SUBJECT, "loss", self.loss, KINDS)
        for name in ("radius", "lipschitz", "margin", "temperature", "lr"):
            if getattr(self, name) is not None:
                check_positive(_SUBJECT, name, getattr(self, name))
        for name in ("alpha", "decay"):
            check_positive(_SUBJECT, name, getattr(self, name))
        for name in ("batch_size", "epochs", "threads"):
            if getattr(self, name) is not None:
                check_count(_SUBJECT, name, getattr(self, name))
        for name in ("seed", "patience"):
            check_count(_SUBJECT, name, getattr(self, name), least=0)
        for name in ("adversarial_steps", "checkpoint_every"):
            check_count(_SUBJECT, name, getattr(self, name))
        for name in ("weight_decay", "warmup", "adversarial_radius", "jacobian_weight"):
            _check_range(name, getattr(self, name), math.inf)
        for name in ("dropout", "validation", "parseval_beta"):
            _check_range(name, getattr(self, name), 1.0)
        for size in (*(self.hidden or ()), *self.milestones):
            check_count(_SUBJECT, "hidden and milestones", size)
        for count in self.channels:
            check_count(_SUBJECT, "channels", count)
        if self.adversarial_radius and as_norm(self.norm) == L1:
            raise ArgumentError(
                f"{_SUBJECT}: `adversarial_radius` must be 0 in L1, where no attack follows the "
                f"gradient; got adversarial_radius={self.adversarial_radius}, norm='l1'."
            )
        if self.schedule == "step" and not self.milestones:
            raise ArgumentError(
                f"{_SUBJECT}: a step schedule needs milestones, the epochs at which the rate "
                "falls; got none. Use milestones=(20, 30), or --milestones 20,30."
            )
        if self.patience and not self.validation:
            raise ArgumentError(
                f"{_SUBJECT}: `patience` must watch validation rows; got patience="
                f"{self.patience}, validation={self.validation}. Use validation=0.1."
            )

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set, by name."""
        held = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in held.items()
            if value is not None
        }


def _check_types(config: TrainConfig) -> None:
    """Raises where a value cannot be what its field is: files and command lines know no types."""
    for f in fields(config):
        value: Any = getattr(config, f.name)
        wanted = str(f.type)
        if value is None and "None" in wanted:
            continue
        kinds: tuple[type, ...] = (str,)
        for word, types in (("tuple", (tuple,)), ("float", (float, int)), ("int", (int,))):
            if word in wanted:
                kinds = types
                break
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise ArgumentError(
                f"{_SUBJECT}: `{f.name}` must be of type {_plain(wanted)}; got {f.name}={value!r}."
            )
        if float in kinds:
            object.__setattr__(config, f.name, float(getattr(config, f.name)))


def _plain(annotation: str) -> str:
    return annotation.replace("<class '", "").replace("'>", "")


def _check_range(name: str, value: float, end: float) -> None:
    if not 0 <= value < end:
        raise ArgumentError(
            f"{_SUBJECT}: `{name}` must be at least 0 and below {end:g}; got {name}={value!r}."
        )
