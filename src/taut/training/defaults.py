"""`resolve`: the fields that a configuration leaves open, derived from the data and the others."""

from dataclasses import replace
from math import prod

from taut.data import LabelledData
from taut.errors import ArgumentError
from taut.losses import HingeKR, MultiClassHinge, OffsetCrossEntropy, RampLoss, loss_for_radius
from taut.norms import L2, LINF, Norm, as_norm
from taut.training.architectures import check_image
from taut.training.augmentation import check_augmentation
from taut.training.config import TrainConfig

__all__ = ["resolve"]

_CONSTRAINTS = {"l1": "l1", "l2": "orthonormal", "linf": "linf"}
_CHANNELS = {"conv": (16, 64), "lenet": (10, 20), "wrn": (64, 128, 256)}
_HIDDEN: dict[str, tuple[int, ...]] = {"lenet": (50,), "wrn": ()}
_RADII = {"l1": 1.0, "l2": 0.5, "linf": 0.1}
# On MNIST in L2 at radius 1.58, four epochs, certified: 0.001 -> 56 %, 0.003 -> 61 %.
_RATES = {"adam": 3e-3, "aggmo": 0.01, "sgd": 0.05}
# AggMo on an eighth of MNIST, L-inf 0.1, K = 1000, 256 x 3, ten epochs, certified: cross-entropy
# 0.3 -> 30 %, 0.1 -> 67 %; hinge 3.3/K -> 14 %, 1/K -> 59 %, 0.3/K -> 52 %. That was with rows
# that started dense; now that they start at corners, all of MNIST bears 1/K, and a hinge for a
# margin of 0.3 K does better with 0.6/K. SGD is a guess by its momentum.
_RATES_OF_ROWS = {"aggmo": 0.1, "sgd": 0.3}


def resolve(config: TrainConfig, data: LabelledData) -> TrainConfig:
    r"""The configuration with every open field derived.

    `TrainConfig` states the default of each field. The reasons, where they are not obvious:

    - margin and temperature are those that `taut.losses.loss_for_radius` derives from the radius; a
      given margin keeps the product of the two;
    - the optimizer for L-inf and L1 is AggMo: rows have bounded sums there, which the equal steps of
      Adam would soon exhaust;
    - a hinge has the unit of the constant, so its learning rate is divided by it;
    - a distance network standardises pixels: its constant is 1 over their standard deviation. The
      target margin is that of the radius and half a deviation more, its rate that of the authors.

    Example:
        >>> from taut.data import load_labelled
        >>> found = resolve(TrainConfig(data="digits"), load_labelled("digits"))
        >>> found.hidden, found.lipschitz, found.constraint
        ((256, 256, 256), 1.0, 'orthonormal')
    """
    norm = as_norm(config.norm)
    shape = data.train.inputs.shape[1:]
    rows = len(data.train)
    depth = 2 if len(shape) == 1 or config.arch in _CHANNELS else 3
    hidden = (128 if len(shape) == 1 else 1024 if prod(shape) >= 784 else 256,) * depth
    hidden = _HIDDEN.get(config.arch, hidden)
    distance = config.arch == "distance"
    if distance:
        _check_distance(config)
        hidden = (128, 128) if len(shape) == 1 else (256, 256, 256)
    check_augmentation(config.augment, tuple(shape))
    if config.arch in _CHANNELS:
        check_image(config.arch, shape)
    constraint = "none" if distance or config.arch == "wrn" else _CONSTRAINTS[norm.name]
    radius = config.radius or (1.0 if config.tolerance else _RADII[norm.name])
    # For L-inf the paper's constant, spread evenly over the layers.
    lipschitz = config.lipschitz or (1000.0 if norm == LINF and not distance else 1.0)
    if distance and config.lipschitz is None and data.train.low is not None:
        lipschitz = 1 / max(float(data.train.inputs.std()), 1e-6)
    loss = config.loss or ("ramp" if distance else "cross_entropy")
    most = 128 if distance else 512
    batch_size = config.batch_size or min(most, max(32, 2 ** round(rows / 100).bit_length() // 2))
    steps = -(-rows // batch_size)
    optimizer = config.optimizer or ("adam" if distance or norm == L2 else "aggmo")
    asked = loss_for_radius(radius, lipschitz=lipschitz, norm=norm, kind=loss, alpha=config.alpha)
    margin, temperature = config.margin, config.temperature
    if isinstance(asked, OffsetCrossEntropy):
        margin = margin or asked.offset
        temperature = temperature or asked.temperature * (asked.offset / margin)
    elif isinstance(asked, RampLoss):
        beyond = 2 * lipschitz * radius + 1 if distance else asked.margin
        margin = margin or beyond
        temperature = temperature or asked.temperature * asked.margin / margin
    else:
        assert isinstance(asked, MultiClassHinge | HingeKR)
        margin = margin or asked.margin
    return replace(
        config,
        norm=norm.name,
        radius=radius,
        lipschitz=lipschitz,
        loss=loss,
        margin=margin,
        temperature=temperature,
        channels=config.channels or _CHANNELS.get(config.arch, ()),
        hidden=hidden if config.hidden is None else config.hidden,
        constraint=config.constraint or constraint,
        optimizer=optimizer,
        lr=config.lr or (0.02 if distance else _rate(optimizer, norm, loss, lipschitz)),
        batch_size=batch_size,
        epochs=config.epochs or max(40, -(-2500 // steps)),
    )


def _check_distance(config: TrainConfig) -> None:
    for name, rule, wrong in (
        (
            "norm",
            "must be 'linf' with arch='distance', which is made for it",
            config.norm != "linf",
        ),
        (
            "patience",
            "must be 0 with arch='distance', which is evaluated at the end",
            config.patience,
        ),
    ):
        if wrong:
            got = f"{name}={getattr(config, name)!r}"
            raise ArgumentError(subject="TrainConfig", argument=name, rule=rule, got=got)


def _rate(optimizer: str, norm: Norm, loss: str, lipschitz: float) -> float:
    unit = 1.0 if optimizer == "adam" or loss == "cross_entropy" else lipschitz
    if optimizer == "adam" or norm == L2:
        return _RATES[optimizer] / unit
    # Measured above: a hinge bears ten times the rate of the cross-entropy, in units of K.
    return _RATES_OF_ROWS[optimizer] * (1.0 if loss == "cross_entropy" else 10 / lipschitz)
