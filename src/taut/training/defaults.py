"""Default values of the configuration fields that depend on the data and on other fields."""

from dataclasses import replace
from math import prod

from taut.data import LabelledData
from taut.errors import ArgumentError
from taut.losses import HingeKR, MultiClassHinge, OffsetCrossEntropy, RampLoss, loss_for_radius
from taut.names import ArchitectureName
from taut.norms import L2, LINF, Norm, as_norm
from taut.training.architectures import check_image
from taut.training.augmentation import check_augmentation
from taut.training.config import TrainConfig

_CONSTRAINTS = {"l1": "l1", "l2": "orthonormal", "linf": "linf"}
_CHANNELS = {"conv": (16, 64), "lenet": (10, 20), "wrn": (64, 128, 256)}
_HIDDEN: dict[str, tuple[int, ...]] = {"lenet": (50,), "wrn": ()}
# Architectures for L-inf alone: hidden layers for large images, largest default batch, learning rate.
_FOR_LINF = {"distance": ((256,) * 3, 128, 0.02), "ibp": ((512,) * 2, 256, 6e-3)}
_NO_MARGIN = 1e-6
_NARROWEST = 0.1  # range of pixels that clipping must leave
_SHIFTED = 24  # sides of images from which a shift by one pixel changes little
_RADII = {"l1": 1.0, "l2": 0.5, "linf": 0.1}
# On MNIST in L2 at radius 1.58, four epochs, certified: 0.001 -> 56 %, 0.003 -> 61 %.
_RATES = {"adam": 3e-3, "aggmo": 0.01, "sgd": 0.05}
# AggMo on an eighth of MNIST, L-inf 0.1, K = 1000, 256 x 3, ten epochs, certified: cross-entropy
# 0.3 -> 30 %, 0.1 -> 67 %; hinge 3.3/K -> 14 %, 1/K -> 59 %, 0.3/K -> 52 %. That was with rows
# that started dense; now that they start at corners, all of MNIST bears 1/K, and a hinge for a
# margin of 0.3 K does better with 0.6/K. SGD is a guess by its momentum.
_RATES_OF_ROWS = {"aggmo": 0.1, "sgd": 0.3}


def architecture_of(config: TrainConfig) -> ArchitectureName:
    """The architecture of a configuration; by default the one that certifies most in its norm.

    Example:
        >>> architecture_of(TrainConfig(norm="linf")), architecture_of(TrainConfig())
        ('distance', 'dense')
    """
    in_linf = config.norm == "linf" and config.constraint is None and not config.tolerance
    return config.arch or ("distance" if in_linf else "dense")


def resolve(config: TrainConfig, data: LabelledData) -> TrainConfig:
    r"""Derives every field that the configuration leaves open.

    `TrainConfig` states the default of each field. The reasons, where they are not obvious:

    - margin and temperature are those that `taut.losses.loss_for_radius` derives from the radius; a
      given margin keeps the product of the two;
    - the optimizer for L-inf and L1 is AggMo: rows have bounded sums there, which the equal steps of
      Adam would soon exhaust;
    - a hinge has the unit of the constant, so its learning rate is divided by it;
    - a distance network standardises pixels: its constant is 1 over their standard deviation. The
      target margin is that of the radius and a quarter of a deviation more, its rate that of the authors;
    - the worst logits of interval propagation have a margin in them, so ibp adds no other.

    Example:
        >>> from taut.data import load_labelled
        >>> found = resolve(TrainConfig(data="digits"), load_labelled("digits"))
        >>> found.hidden, found.lipschitz, found.constraint
        ((256, 256, 256), 1.0, 'orthonormal')
    """
    norm = as_norm(config.norm)
    config = replace(config, arch=architecture_of(config))
    arch = str(config.arch)
    shape = data.train.inputs.shape[1:]
    rows = len(data.train)
    depth = 2 if len(shape) == 1 or arch in _CHANNELS else 3
    hidden = (128 if len(shape) == 1 else 1024 if prod(shape) >= 784 else 256,) * depth
    hidden = _HIDDEN.get(arch, hidden)
    distance, most, rate = arch == "distance", 512, None
    pixels = arch == "ibp" and (data.train.low, data.train.high) == (0, 1)
    if arch in _FOR_LINF:
        _check_for_linf(config, pixels)
        for_images, most, rate = _FOR_LINF[arch]
        hidden = for_images if prod(shape) >= 784 else (128, 128)
    large = len(shape) == 3 and min(shape[1:]) >= _SHIFTED
    augment = config.augment or ("shift" if arch in _FOR_LINF and large else "none")
    check_augmentation(augment, tuple(shape))
    if arch in _CHANNELS or config.channels:
        check_image(arch, shape)
    constraint = "none" if arch in (*_FOR_LINF, "wrn") else _CONSTRAINTS[norm.name]
    radius = config.radius or (1.0 if config.tolerance else _RADII[norm.name])
    # Larger than the training radius, so that perturbations do not change black and white pixels.
    clip = min(2 * radius, (radius + 0.5) / 2)
    clip = clip if pixels and 1 - 2 * clip >= _NARROWEST else 0.0
    # For L-inf the paper's constant, spread evenly over the layers; without constraint, no scales.
    free = (config.constraint or constraint) == "none"
    lipschitz = config.lipschitz or (1000.0 if norm == LINF and not free else 1.0)
    if distance and config.lipschitz is None and data.train.low is not None:
        lipschitz = 1 / max(float(data.train.inputs.std()), 1e-6)
    loss = config.loss or ("ramp" if distance else "cross_entropy")
    batch_size = config.batch_size or min(most, max(32, 2 ** round(rows / 100).bit_length() // 2))
    steps = -(-rows // batch_size)
    optimizer = config.optimizer or ("adam" if arch in _FOR_LINF or norm == L2 else "aggmo")
    derived = loss_for_radius(radius, lipschitz=lipschitz, norm=norm, kind=loss, alpha=config.alpha)
    margin, temperature = config.margin, config.temperature
    if arch == "ibp":
        margin, temperature = margin or _NO_MARGIN, temperature or 1.0
    if isinstance(derived, OffsetCrossEntropy):
        margin = margin or derived.offset
        temperature = temperature or derived.temperature * (derived.offset / margin)
    elif isinstance(derived, RampLoss):
        beyond = 2 * lipschitz * radius + 1 if distance else derived.margin
        margin = margin or beyond
        temperature = temperature or derived.temperature * derived.margin / margin
    else:
        assert isinstance(derived, MultiClassHinge | HingeKR)
        margin = margin or derived.margin
    return replace(
        config,
        norm=norm.name,
        radius=radius,
        lipschitz=lipschitz,
        loss=loss,
        margin=margin,
        temperature=temperature,
        channels=config.channels or _CHANNELS.get(arch, ()),
        hidden=hidden if config.hidden is None else config.hidden,
        constraint=config.constraint or constraint,
        clip=clip if config.clip is None else config.clip,
        augment=augment,
        optimizer=optimizer,
        lr=config.lr or rate or _rate(optimizer, norm, loss, lipschitz),
        batch_size=batch_size,
        epochs=config.epochs or max(40, -(-2500 // steps)),
    )


def _check_for_linf(config: TrainConfig, pixels: bool) -> None:
    here = f"with arch={config.arch!r}"
    at_the_end = config.arch == "distance" and config.patience
    for name, rule, wrong in (
        ("norm", f"must be 'linf' {here}, which is made for it", config.norm != "linf"),
        ("patience", f"must be 0 {here}, which is evaluated at the end", at_the_end),
        ("constraint", f"must be 'none' {here}", config.constraint not in (None, "none")),
        ("clip", "must be 0 for inputs that are no pixels from 0 to 1", config.clip and not pixels),
        (
            "loss",
            f"must be 'cross_entropy' {here}",
            config.arch == "ibp" and config.loss not in (None, "cross_entropy"),
        ),
    ):
        if wrong:
            raise ArgumentError("TrainConfig", name, rule, f"{name}={getattr(config, name)!r}")


def _rate(optimizer: str, norm: Norm, loss: str, lipschitz: float) -> float:
    unit = 1.0 if optimizer == "adam" or loss == "cross_entropy" else lipschitz
    if optimizer == "adam" or norm == L2:
        return _RATES[optimizer] / unit
    # Measured above: a hinge bears ten times the rate of the cross-entropy, in units of K.
    return _RATES_OF_ROWS[optimizer] * (1.0 if loss == "cross_entropy" else 10 / lipschitz)
