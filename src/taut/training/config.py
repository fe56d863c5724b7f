"""`TrainConfig`: everything a training run depends on, as a frozen dataclass and as a TOML file."""

import difflib
import json
import tomllib
from dataclasses import dataclass, fields

from taut.errors import ArgumentError, DtypeError
from taut.names import (
    ActivationName,
    ArchitectureName,
    AugmentationName,
    ConstraintName,
    DtypeName,
    LossName,
    NormName,
    OptimizerName,
    ScheduleName,
)
from taut.training.config_fields import AnyConfig, Configuration, config_error, setting


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Configuration):
    """What to train, on what, and how: together with the data it determines the result to the bit.

    Fields that are None are derived from the data and from the other fields (see `resolve`). A run
    stores both the requested and the resolved configuration in its folder.

    Arithmetic: weights are float32 or float64 and so are their constraints; `"bfloat16"` runs the
    forward pass and the loss under `torch.autocast`, where constrained layers still compute in the
    float32 of their weights and only the operations between them are rounded. Certificates are
    always proven from the stored weights, in float64. 16-bit weights are rejected: rounding would break
    their constraint by up to a percent.

    Attributes:
        data: dataset: digits, mnist, fashion-mnist, cifar10, a .csv, .parquet or .npz file, or a
            folder of images.
        data_dir: folder of the downloaded datasets; a resumed run may use a different folder.
        label: label column of a table: a name, or a zero-based index (-1 is the last column); by
            default the column called label, target, class or y.
        names: names of all columns of a table without a header, such as acid,sugar,pH.
        columns: input columns of a table, by name or zero-based index, such as acid,pH; by default
            all but the label.
        drop: columns of a table to leave out.
        categorical: columns of a table that hold categories, even if they look like numbers.
        test: separate file with the test data; by default a part of the data is held out.
        validation: fraction of the training rows held out to select the best epoch; 0 selects the
            last epoch.
        norm: norm in which the radius is measured; by default l2, or linf if tolerances are given.
        tolerance: tolerances of the columns of a table in their own units, such as pH=0.1,sulphur=2,
            or a TOML file with them. Radii are then multiples of the tolerances: in linf, a radius above
            1 means that the prediction holds even if every column changes by its tolerance at once.
            Columns given as column=fixed, or not given at all, are assumed not to change; a categorical
            column given as column=free may take any category.
        radius: target certified radius, in input units (pixels scaled to [0, 1], or standard
            deviations of a table's columns); by default 0.5 in l2, 0.1 in linf, 1 in l1, and 1 if
            tolerances are given.
        loss: training loss: cross_entropy (with a margin), hinge (multi-class), hkr
            (hinge-Kantorovich-Rubinstein) or ramp (clamped hinge plus cross-entropy whose weight
            decays); by default cross_entropy, or ramp for --arch distance. With --arch ibp, the
            cross-entropy is computed from the worst-case logits of interval propagation.
        margin: target margin of the loss; by default derived from the radius (none for --arch ibp). In
            linf, a prediction is certified at a radius if the margin of its logits exceeds
            2 * lipschitz * radius. Anil, Lucas and Grosse (2019) train with a margin of lipschitz * radius,
            which is half as large; for radius 0.1, their settings are --arch dense
            --loss hinge --lipschitz 1000 --margin 100.
        temperature: inverse temperature: the factor by which the cross-entropy multiplies the logits; by
            default 4.4 / margin, or 1 for --arch ibp.
        alpha: weight of the hinge term in the hkr loss.
        arch: architecture. For any data: dense and, in linf, distance (distances from learned points) and
            ibp (a plain ReLU network trained on interval bounds); the last two reach the highest certified
            accuracy in linf. For images: conv, lenet or wrn (Wide ResNet, whose certificates are
            too weak to be useful). The default is distance in linf if neither a constraint nor
            tolerances are given, and dense in all other cases.
        channels: number of channels of each convolutional stage; by default 16,64 for conv, 10,20
            for lenet, 64,128,256 for wrn, none for ibp.
        blocks: number of residual blocks per stage of wrn: 6 * blocks + 4 layers in all.
        hidden: widths of the hidden dense layers. Default for images with at least 784 values:
            1024,1024,1024 (dense), 1024,1024 (conv), 256,256,256 (distance), 512,512 (ibp); for
            smaller images: 256,256,256 (dense), 256,256 (conv), 128,128 (distance, ibp); for tables:
            128,128. lenet has one layer of width 50, wrn has none.
        lipschitz: Lipschitz constant of the network; by default 1000 for constrained layers in linf,
            1 / (standard deviation of the pixels) for --arch distance, which standardises pixels, and
            otherwise 1. With --constraint none, it only rescales the outputs of layers; with --arch wrn or
            ibp, the network ignores it.
        activation: activation function: maxmin, fullsort, groupsort4, abs, relu and others.
        constraint: weight constraint; by default orthonormal in l2, linf in linf, l1 in l1; none for
            --arch distance, ibp and wrn.
        dropout: dropout probability.
        keep: for --arch distance, probability that a unit keeps each of its inputs in training, as in
            dropout. At 1, a unit computes the L-inf distance: the largest absolute difference between
            its inputs and the learned point. Below 1, units after the first layer compute a weighted
            sum of the sorted absolute differences instead (SortNet).
        clip: for --arch ibp, pixels within this distance of the lowest or highest possible pixel value
            are set to that value; by default the smaller of 2 * radius and (radius + 0.5) / 2, but 0
            if pixels are not in [0, 1], or if clipping would leave less than a tenth of that range.
        epochs: number of training epochs; by default 40, or more if needed to reach about 2500 steps.
        augment: augmentation of the training images: crop (random crops, padded by an eighth of the
            shorter side), crop-flip (also random horizontal flips) or shift (by at most one pixel); by
            default shift for distance and ibp on images of at least 24 pixels a side, otherwise none.
        batch_size: number of examples per step, over all processes; by default 1 % of the training
            rows, rounded down to a power of two, but at least 32 and at most 512 (128 for distance, 256
            for ibp).
        optimizer: optimizer: adam, sgd or aggmo (aggregated momentum); by default aggmo in linf and l1,
            except with --arch distance or ibp; adam otherwise.
        lr: peak learning rate; by default 0.003 for adam (0.02 for --arch distance, 0.006 for ibp); for
            aggmo in linf and l1, 0.1 with cross_entropy and 1 / lipschitz with hinge or hkr.
        schedule: learning-rate schedule: cosine decay to zero, a step decay at each milestone, or
            constant.
        milestones: epochs at which the step schedule decays.
        decay: factor by which the step schedule multiplies the learning rate at each milestone.
        warmup: number of epochs of linear warm-up.
        weight_decay: L2 weight decay.
        patience: number of epochs without better certified accuracy on the validation rows before
            training stops early; 0 disables early stopping.
        adversarial_radius: radius of PGD adversarial training, for comparison; 0 disables it.
        adversarial_steps: number of PGD steps of adversarial training.
        jacobian_weight: weight of the Jacobian spectral-norm penalty, for unconstrained networks.
        parseval_beta: step size of the Parseval retraction, which moves the weights of
            unconstrained layers towards orthonormal ones after each optimizer step, for comparison; 0
            disables it.
        seed: random seed; by default 0.
        dtype: floating-point type of training; bfloat16 uses autocast, and constrained layers still
            compute in float32.
        device: device: auto (a GPU if available), cpu, cuda or cuda:1.
        checkpoint_every: number of steps between checkpoints, in addition to the checkpoint at the
            end of each epoch.
        threads: number of CPU threads; None keeps torch's setting.

    Example:
        >>> TrainConfig(data="mnist", norm="linf", radius=0.1).constraint is None
        True
    """

    data: str = "digits"
    data_dir: str | None = None
    label: str | None = None
    names: str | None = None
    columns: str | None = None
    drop: str | None = None
    categorical: str | None = None
    test: str | None = None
    validation: float = setting(0.1, "share")
    norm: NormName = setting(None)  # noqa: RUF009
    tolerance: str | None = None
    radius: float | None = setting(None, "positive")
    loss: LossName | None = None
    margin: float | None = setting(None, "positive")
    temperature: float | None = setting(None, "positive")
    alpha: float = setting(10.0, "positive")
    arch: ArchitectureName | None = setting(None, "open")  # noqa: RUF009
    channels: tuple[int, ...] = ()
    blocks: int = 4
    hidden: tuple[int, ...] | None = None
    lipschitz: float | None = setting(None, "positive")
    activation: ActivationName | str = "maxmin"
    constraint: ConstraintName | None = setting(None, "open")  # noqa: RUF009
    dropout: float = setting(0.0, "share")
    keep: float = setting(1.0, "fraction")
    clip: float | None = setting(None, "not_negative")
    epochs: int | None = None
    augment: AugmentationName | None = None
    batch_size: int | None = None
    optimizer: OptimizerName | None = None
    lr: float | None = setting(None, "positive")
    schedule: ScheduleName = "cosine"
    milestones: tuple[int, ...] = ()
    decay: float = setting(0.1, "positive")
    warmup: float = setting(0.0, "not_negative")
    weight_decay: float = setting(0.0, "not_negative")
    patience: int = setting(0, "whole")
    adversarial_radius: float = setting(0.0, "not_negative")
    adversarial_steps: int = 10
    jacobian_weight: float = setting(0.0, "not_negative")
    parseval_beta: float = setting(0.0, "share")
    seed: int = setting(0, "whole")
    dtype: DtypeName = "float32"
    device: str = "auto"
    checkpoint_every: int = 1000
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.norm is None:
            object.__setattr__(self, "norm", "linf" if self.tolerance else "l2")
        if self.dtype in ("float16", "half"):
            raise DtypeError(
                "TrainConfig",
                "dtype",
                rule="must keep weights in 32 or 64 bits, or their constraint and every certificate "
                "would break",
                got=f"dtype={self.dtype!r}",
                remedy="Use 'float32', or 'bfloat16', which rounds only the operations between "
                "constrained layers.",
            )
        super().__post_init__()
        if self.adversarial_radius and self.norm == "l1":
            rule = "must be 0 in L1, which PGD does not support"
            got = f"adversarial_radius={self.adversarial_radius}, norm='l1'"
            raise config_error("adversarial_radius", rule, got)
        if self.schedule == "step" and not self.milestones:
            rule = "must list the epochs at which a step schedule decays"
            remedy = "Use milestones=(20, 30), or --milestones 20,30."
            raise config_error("milestones", rule, "none", remedy)
        if self.patience and not self.validation:
            got = f"patience={self.patience}, validation={self.validation}"
            raise config_error("patience", "needs validation rows", got, "Use validation=0.1.")


def to_toml(config: Configuration) -> str:
    """Writes the fields that are set, one per line; `from_toml` is the inverse.

    Example:
        >>> text = to_toml(TrainConfig(data="mnist", hidden=(64, 64)))
        >>> text.splitlines()[0], "hidden = [64, 64]" in text
        ('data = "mnist"', True)
        >>> from_toml(text) == TrainConfig(data="mnist", hidden=(64, 64))
        True
    """
    return "".join(f"{name} = {_value(value)}\n" for name, value in config.to_dict().items())


def from_toml(text: str, kind: type[AnyConfig] = TrainConfig) -> AnyConfig:
    """Reads a configuration of class `kind` from TOML text; missing fields have their defaults.

    Raises:
        ArgumentError: the text is not TOML, or has an unknown key.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError("from_toml", rule="the text must be TOML", got=str(error)) from error
    field_names = [f.name for f in fields(kind)]
    for name in values:
        if name not in field_names:
            rule = f"every key must be a field of {kind.__name__}"
            remedy = f"The nearest is {difflib.get_close_matches(name, field_names, 1, 0)[0]!r}."
            raise ArgumentError("from_toml", rule=rule, got=repr(name), remedy=remedy)
    return kind(**values)


def _value(value: object) -> str:
    if isinstance(value, str):
        # Basic strings of TOML have the escapes of JSON, but no raw delete character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return repr(value)
