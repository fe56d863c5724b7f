"""`GanConfig`: everything that a GAN run depends on, as one frozen value."""

from dataclasses import dataclass, fields, replace
from typing import Any

from taut.errors import ArgumentError, check_choice, check_count, check_positive
from taut.training.config import TrainConfig

__all__ = ["CRITICS", "GanConfig"]

CRITICS = ("lipschitz", "clipped", "penalty")
_ACTIVATIONS = ("maxmin", "leaky_relu")
_CONVOLUTIONS = ("orthonormal", "spectral")
_SUBJECT = "GanConfig"


@dataclass(frozen=True, kw_only=True)
class GanConfig:
    """Which GAN to train, on what, and how: with the data it decides every bit of the result.

    The defaults are small enough for one core; `GanConfig.paper()` has the sizes of the paper.

    Attributes:
        data: a name ("mnist", "digits", ...) or a path, as `taut.data.load_labelled` takes it;
            images of any number of channels, whose height and width are multiples of 4.
        data_dir: where named data lies; does not count as a difference between runs.
        critic: "lipschitz" (constrained layers: its constant is proven to be at most 1),
            "clipped" (weights kept in [-clip, clip]: WGAN), "penalty" (WGAN-GP).
        activation: of the critic, "maxmin" or "leaky_relu"; None is MaxMin for a 1-Lipschitz critic,
            which needs it to keep gradients, and LeakyReLU for the others.
        convolution: of a 1-Lipschitz critic: "orthonormal" or "spectral".
        width: channels of the critic's first convolution and the generator's last but one; their
            neighbours have twice as many.
        critic_hidden: units of the critic's dense layer.
        generator_hidden: units of the generator's first dense layer.
        latent: the dimension of z, which is uniform on [0, 1].
        batch_size: images of a step, and as many samples.
        num_steps: steps of the critic.
        critic_steps: the generator takes a step after so many of the critic.
        lr: the generator's learning rate.
        critic_lr: the critic's; None is 2e-3 for a 1-Lipschitz one, 2e-4 for the others.
        schedule: of both rates: "cosine" (to zero) or "constant".
        clip: the largest weight of a clipped critic.
        penalty: the weight of the gradient penalty.
        seed: decides initial weights, the order of the data and every z.
        log_every: steps between rows of the log.
        sample_every: steps between pictures of samples.
        checkpoint_every: steps between checkpoints.
        device: "auto" (a GPU if there is one), "cpu", "cuda", ...
        threads: of torch on the CPU; None leaves them as they are.

    Example:
        >>> GanConfig(data="mnist").decided().critic_lr
        0.002
        >>> GanConfig.paper(critic="clipped").num_steps
        46900
    """

    data: str = "mnist"
    data_dir: str | None = None
    critic: str = "lipschitz"
    activation: str | None = None
    convolution: str = "orthonormal"
    width: int = 16
    critic_hidden: int = 128
    generator_hidden: int = 256
    latent: int = 62
    batch_size: int = 64
    num_steps: int = 4000
    critic_steps: int = 2
    lr: float = 1e-3
    critic_lr: float | None = None
    schedule: str = "cosine"
    clip: float = 0.01
    penalty: float = 10.0
    seed: int = 0
    log_every: int = 100
    sample_every: int = 500
    checkpoint_every: int = 500
    device: str = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("data", "device"):
            if not isinstance(getattr(self, name), str):
                raise ArgumentError(
                    f"{_SUBJECT}: `{name}` must be a text; got {name}={getattr(self, name)!r}."
                )
        check_choice(_SUBJECT, "critic", self.critic, CRITICS)
        check_choice(_SUBJECT, "schedule", self.schedule, ("cosine", "constant"))
        check_choice(_SUBJECT, "convolution", self.convolution, _CONVOLUTIONS)
        if self.activation is not None:
            check_choice(_SUBJECT, "activation", self.activation, _ACTIVATIONS)
        for name in ("critic_hidden", "generator_hidden", "latent", "num_steps"):
            check_count(_SUBJECT, name, getattr(self, name))
        for name in ("critic_steps", "log_every", "sample_every", "checkpoint_every"):
            check_count(_SUBJECT, name, getattr(self, name))
        check_count(_SUBJECT, "batch_size", self.batch_size, least=2)
        check_count(_SUBJECT, "seed", self.seed, least=0)
        if self.threads is not None:
            check_count(_SUBJECT, "threads", self.threads)
        for name in ("lr", "clip", "penalty"):
            check_positive(_SUBJECT, name, getattr(self, name))
        if self.critic_lr is not None:
            check_positive(_SUBJECT, "critic_lr", self.critic_lr)
        check_count(_SUBJECT, "width", self.width)
        for name in ("width", "critic_hidden"):
            if getattr(self, name) % 2:
                raise ArgumentError(
                    f"{_SUBJECT}: `{name}` must be even, for MaxMin sorts pairs; got "
                    f"{name}={getattr(self, name)}. Use {getattr(self, name) + 1}."
                )

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

    def decided(self) -> "GanConfig":
        """The configuration with nothing left open; what was said stays."""
        proven = self.critic == "lipschitz"
        return replace(
            self,
            activation=self.activation or ("maxmin" if proven else "leaky_relu"),
            critic_lr=self.critic_lr or (2e-3 if proven else 2e-4),
        )

    def player(self, lr: float) -> TrainConfig:
        """What one of the two networks, its machine and its chance have in common with any run."""
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

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set, by name."""
        held = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in held.items() if value is not None}
