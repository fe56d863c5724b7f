"""`train_gan`: one GAN, from its configuration to a frozen generator."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from taut.audit import bound_lipschitz
from taut.data import LabelledData
from taut.errors import ArgumentError, NonFiniteError, require
from taut.export import save, write_atomically
from taut.regularizers import gradient_penalty
from taut.training.data_preparation import Prepared, load_data, prepare
from taut.training.environment import Environment
from taut.training.gan.config import GanConfig
from taut.training.gan.networks import ImageGenerator, build_critic, build_generator
from taut.training.gan.sample_grid import write_grid
from taut.training.gan.trained_gan import GanFolder, GanRun, freeze, load_gan_run
from taut.training.learning_rate_schedule import learning_rate
from taut.training.progress import Log
from taut.training.run_folder import write_json
from taut.training.seeds import batches
from taut.training.state import Session, TrainingState
from taut.transport import dual_value

_BETAS = (0.5, 0.999)
# Number of samples in a picture.
_PICTURES = 64


@dataclass(frozen=True)
class GanProgress:
    """Progress of a run, reported after each step of the critic."""

    step: int  # number of steps done
    steps: int  # total number of steps
    dual: float  # dual value of the critic on the last batch
    row: dict[str, Any] | None  # the row of the log, if one was written after this step


def train_gan(
    config: GanConfig,
    out: str | os.PathLike[str] | None = None,
    *,
    data: LabelledData | None = None,
    on_progress: Callable[[GanProgress], None] | None = None,
) -> GanRun:
    r"""Trains a generator against a critic of the Wasserstein distance.

    $$\min_G \max_f \; \mathbb{E}_{x} f(x) - \mathbb{E}_{z} f(G(z))$$

    With `critic="lipschitz"` the inner value is at most $W_1$ between the two batches at every
    step, by the proven constant, which the log records as well; with the other kinds it has no
    such meaning.

    Seeded and resumable: the same call again, after an interruption at any moment, resumes from the
    last checkpoint and ends with the same weights to the bit, on the same kind of machine. A
    finished run is not repeated.

    Args:
        config: configuration of the run.
        out: folder of the run: config.toml, resolved.toml, log.jsonl, checkpoint,
            samples/step-*.png (one set of z throughout), model.safetensors (the generator),
            critic.safetensors (with its proof, where there is one), result.json. Without one
            nothing is written.
        data: labelled images, instead of `config.data`; their labels are not used.
        on_progress: called after each step of the critic.

    Returns:
        The run, with a frozen generator.

    Raises:
        ArgumentError: `out` holds another run, the data has changed, or is not images.
        NonFiniteError: training diverged.

    Example:
        >>> sizes = {"width": 2, "critic_hidden": 8, "generator_hidden": 8}
        >>> run = train_gan(GanConfig(data="digits", num_steps=6, log_every=6, **sizes))
        >>> run.history[-1]["lipschitz"] <= 1
        True
        >>> run.generator.sample(2, torch.Generator().manual_seed(0)).shape
        torch.Size([2, 1, 8, 8])
    """
    requested, config = config, config.resolved()
    player = config.player(config.lr)
    folder = None if out is None else GanFolder(out)
    with ExitStack() as stack:
        environment = stack.enter_context(Environment(player))
        prepared = prepare(player, load_data(player) if data is None else data)
        if folder is not None:
            require("PIL.Image", "data", "a picture of samples")
            stack.enter_context(folder.lock())
            folder.open(requested, config, prepared.spec, prepared.fingerprint)
            folder.samples.mkdir(exist_ok=True)
            if folder.finished:
                return load_gan_run(folder.path)

        session = _GanSession(config, prepared, folder, environment)
        log = Log(folder, session.position.history)
        while session.position.step < config.num_steps:
            dual = session.step()
            step = session.position.step
            last = step == config.num_steps
            row = None
            if last or step % config.log_every == 0:
                row = session.end_row()
                log.add(row)
            if folder is not None and (last or step % config.sample_every == 0):
                session.draw(folder)
            if last or step % config.checkpoint_every == 0:
                session.keep_checkpoint()
            if on_progress is not None:
                on_progress(GanProgress(step, config.num_steps, dual, row))
        return session.finalise(folder)


class _GanSession(Session[GanConfig]):
    """A generator and its critic in training; for the arguments see `Session`.

    The position counts the steps of the critic, and sums since the last row of the log.
    """

    def __init__(
        self, config: GanConfig, data: Prepared, folder: GanFolder | None, environment: Environment
    ) -> None:
        assert config.critic_lr is not None
        self.images = _to_unit_range(data).to(environment.device)
        generator = build_generator(config, data.spec.shape)
        critic = build_critic(config, data.spec.shape)
        states = {
            prefix: TrainingState(config.player(lr), net.to(environment.device))
            for prefix, net, lr in (
                ("critic.", critic, config.critic_lr),
                ("generator.", generator, config.lr),
            )
        }
        for state in states.values():
            for group in state.optimizer.param_groups:
                group["betas"] = _BETAS
        self._epoch: tuple[int, tuple[Tensor, ...]] = -1, ()
        super().__init__(config, data, folder, environment, states)

    @property
    def generator(self) -> ImageGenerator:
        """The generator as it is now."""
        net = self.states["generator."].model
        assert isinstance(net, ImageGenerator)
        return net

    @property
    def critic(self) -> nn.Module:
        """The critic as it is now."""
        return self.states["critic."].model

    def step(self) -> float:
        """Takes a step of the critic, and of the generator if one is due.

        Returns:
            The critic's dual value on the batch, before the step.
        """
        position = self.position
        self.environment.seed((position.step,))
        critic_rate, generator_rate = (
            learning_rate(state.config, position.step, self.config.num_steps)
            for state in self.states.values()
        )
        dual = self._improve_critic(self._batch(position.step), critic_rate)
        position.step += 1
        if position.step % self.config.critic_steps == 0:
            self._improve_generator(generator_rate)
        position.loss += dual
        position.seen += 1
        return dual

    def _batch(self, step: int) -> Tensor:
        per_epoch = -(-len(self.images) // self.config.batch_size)
        epoch, within = divmod(step, per_epoch)
        if self._epoch[0] != epoch:
            rows = batches(len(self.images), self.config.batch_size, self.config.seed, epoch)
            self._epoch = epoch, rows
        return self.images[self._epoch[1][within].to(self.images.device)]

    def _improve_critic(self, real: Tensor, rate: float) -> float:
        critic, generator = self.critic, self.generator.train()
        with torch.no_grad():
            fake = generator(generator.draw_noise(len(real)))
        with self.states["critic."].step(rate):
            dual = dual_value(critic, real, fake)
            loss = -dual
            if self.config.critic == "penalty":
                loss = loss + self.config.penalty * gradient_penalty(critic, real, fake)
            loss.backward()
        if self.config.critic == "clipped":
            with torch.no_grad():
                for weight in critic.parameters():
                    weight.clamp_(-self.config.clip, self.config.clip)
        value = dual.item()
        if not abs(value) < float("inf"):
            rule = "the critic's value must stay finite"
            got = f"{value} in step {self.position.step + 1}"
            raise NonFiniteError("train_gan", rule=rule, got=got, remedy="Lower `critic_lr`.")
        return value

    def _improve_generator(self, rate: float) -> None:
        generator = self.generator
        # Only the generator is trained here: gradients of the critic's weights are not needed.
        self.critic.requires_grad_(False)
        with self.states["generator."].step(rate):
            noise = generator.draw_noise(self.config.batch_size)
            (-self.critic(generator(noise)).mean()).backward()
        self.critic.requires_grad_(True)

    def end_row(self) -> dict[str, Any]:
        """Ends a row of the log and returns it."""
        position = self.position
        row: dict[str, Any] = {
            "step": position.step,
            "dual": position.loss / position.seen,
            "lipschitz": None,
            "seconds": self.count_seconds(),
        }
        if self.config.critic == "lipschitz":
            row["lipschitz"] = bound_lipschitz(self.critic, "l2", self.data.spec.shape).value
        position.history.append(row)
        position.loss, position.seen = 0.0, 0
        return row

    def draw(self, folder: GanFolder) -> None:
        """Writes a picture of samples from a fixed set of z."""
        fixed = torch.Generator().manual_seed(self.config.seed)
        images = self.generator.sample(_PICTURES, fixed)
        if images.shape[1] in (1, 3):
            write_grid(folder.samples / f"step-{self.position.step:06d}.png", images)

    def finalise(self, folder: GanFolder | None) -> GanRun:
        """Freezes the generator, and writes it, the critic and the result."""
        generator, position = freeze(self.generator), self.position
        row = position.history[-1]
        result = {
            "dual": row["dual"],
            "lipschitz": row["lipschitz"],
            "steps": position.step,
            "critic_parameters": sum(p.numel() for p in self.critic.parameters()),
            **self.summary(generator),
        }
        if folder is not None:
            tensors = {name: t.contiguous() for name, t in generator.state_dict().items()}
            write_atomically(folder.model_file, safetensors.torch.save(tensors))
            if self.config.critic == "lipschitz":
                critic = self.critic.cpu().eval()
                save(critic, folder.critic_file, norm="l2", input_shape=self.data.spec.shape)
            write_json(folder.result_file, result)
        path = None if folder is None else folder.path
        return GanRun(self.config, generator, tuple(position.history), result, path)


def _to_unit_range(data: Prepared) -> Tensor:
    """Scales the training images from their own range to [-1, 1], the range of the generator."""
    low, high = data.spec.low, data.spec.high
    if low is None or high is None or not high > low:
        rule = "the data must be images with a known range of pixels"
        raise ArgumentError("train_gan", rule=rule, got="a table", remedy="Give images.")
    return (data.train.inputs - low) * (2 / (high - low)) - 1
