"""`GanConfig`: everything that a GAN run depends on, as a frozen dataclass."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from taut.errors import ArgumentError, check_count
from taut.training.config import TrainConfig
from taut.training.config_fields import Configuration, setting

GanCriticName = Literal["lipschitz", "clipped", "penalty"]
CRITICS: tuple[GanCriticName, ...] = get_args(GanCriticName)
_SUBJECT = "GanConfig"


@dataclass(frozen=True, kw_only=True)
class GanConfig(Configuration):
    """Which GAN to train, on what, and how: with the data it determines the result to the bit.

    The defaults are small enough for one core; `GanConfig.paper()` has the sizes of the paper.

    Attributes:
        data: dataset, a name ("mnist", "digits", ...) or a path, as `taut.data.load_labelled`
            takes it; images of any number of channels, whose height and width are multiples of 4.
        data_dir: folder of the downloaded datasets; a resumed run may use a different folder.
        critic: kind of critic: "lipschitz" (constrained layers, with a proven constant of at most
            1), "clipped" (weights kept in [-clip, clip]: WGAN), "penalty" (WGAN-GP).
        activation: activation of the critic; None is MaxMin for a 1-Lipschitz critic, which needs
            it to keep gradients, and LeakyReLU for the others.
        convolution: constraint of the convolutions of a 1-Lipschitz critic.
        width: channels of the critic's first convolution and the generator's last but one; their
            neighbours have twice as many.
        critic_hidden: units of the critic's dense layer.
        generator_hidden: units of the generator's first dense layer.
        latent: dimension of z, which is uniform on [0, 1].
        batch_size: number of images of a step, and of samples.
        num_steps: number of steps of the critic.
        critic_steps: number of critic steps per step of the generator.
        lr: learning rate of the generator.
        critic_lr: learning rate of the critic; None is 2e-3 for a 1-Lipschitz one, 2e-4 for the
            others.
        schedule: learning-rate schedule of both: "cosine" (to zero) or "constant".
        clip: largest weight of a clipped critic.
        penalty: weight of the gradient penalty.
        seed: random seed.
        log_every: number of steps between rows of the log.
        sample_every: number of steps between pictures of samples.
        checkpoint_every: number of steps between checkpoints.
        device: device: "auto" (a GPU if there is one), "cpu", "cuda", ...
        threads: number of CPU threads; None leaves torch's own.

    Example:
        >>> GanConfig(data="mnist").resolved().critic_lr
        0.002
        >>> GanConfig.paper(critic="clipped").num_steps
        46900
    """

    data: str = "mnist"
    data_dir: str | None = None
    critic: GanCriticName = "lipschitz"
    activation: Literal["maxmin", "leaky_relu"] | None = None
    convolution: Literal["orthonormal", "spectral"] = "orthonormal"
    width: int = 16
    critic_hidden: int = 128
    generator_hidden: int = 256
    latent: int = 62
    batch_size: int = 64
    num_steps: int = 4000
    critic_steps: int = 2
    lr: float = setting(1e-3, "positive")
    critic_lr: float | None = setting(None, "positive")
    schedule: Literal["cosine", "constant"] = "cosine"
    clip: float = setting(0.01, "positive")
    penalty: float = setting(10.0, "positive")
    seed: int = setting(0, "whole")
    log_every: int = 100
    sample_every: int = 500
    checkpoint_every: int = 500
    device: str = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(_SUBJECT, "batch_size", self.batch_size, minimum=2)
        for name in ("width", "critic_hidden"):
            if (value := getattr(self, name)) % 2:
                rule = "must be even, because MaxMin sorts pairs"
                raise ArgumentError(_SUBJECT, name, rule, value, f"Use {value + 1}.")

    @classmethod
    def paper(cls, **changes: Any) -> "GanConfig":
        """The sizes of the paper: the networks of InfoGAN, 50 epochs of 60,000 images."""
        return cls(
            **{
                "width": 64,
                "critic_hidden": 1024,
                "generator_hidden": 1024,
                "num_steps": 46900,
                "critic_steps": 5,
                "lr": 2e-4,
                "schedule": "constant",
                **changes,
            }
        )

    def resolved(self) -> "GanConfig":
        """The configuration with every field derived."""
        proven = self.critic == "lipschitz"
        return replace(
            self,
            activation=self.activation or ("maxmin" if proven else "leaky_relu"),
            critic_lr=self.critic_lr or (2e-3 if proven else 2e-4),
        )

    def player(self, lr: float) -> TrainConfig:
        """The training configuration of one of the two networks."""
        return TrainConfig(
            data=self.data,
            data_dir=self.data_dir,
            optimizer="adam",
            lr=lr,
            schedule=self.schedule,
            epochs=1,
            validation=0.0,
            seed=self.seed,
            device=self.device,
            threads=self.threads,
        )
