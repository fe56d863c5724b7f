"""`GanSession`: the state of a GAN run in training: it starts or resumes, saves checkpoints, steps."""

import time
from typing import Any

import torch
from torch import Tensor, nn

from taut.errors import ArgumentError, NonFiniteError
from taut.regularizers import gradient_penalty
from taut.training.environment import Environment
from taut.training.examples import Prepared
from taut.training.gan.config import GanConfig
from taut.training.gan.folder import GanFolder
from taut.training.gan.networks import ImageGenerator, build_critic, build_generator
from taut.training.schedule import learning_rate
from taut.training.seeding import batches
from taut.training.training_state import Position, TrainingState
from taut.transport import dual_value

__all__ = ["GanSession"]

_BETAS = (0.5, 0.999)


class GanSession:
    """The training states of the generator and of the critic, whose position is that of the run.

    Args:
        config: resolved.
        data: prepared, its images within the range that `data.spec` states.
        folder: folder of the checkpoints, or None.
        environment: device, dtype, threads and random state.
    """

    def __init__(
        self, config: GanConfig, data: Prepared, folder: GanFolder | None, environment: Environment
    ) -> None:
        assert config.critic_lr is not None
        self.config, self.folder, self.environment = config, folder, environment
        self.fingerprint = data.fingerprint
        self.images = to_unit_range(data.train.inputs, data).to(environment.device)
        players = build_generator(config, data.spec.shape), build_critic(config, data.spec.shape)
        rates = config.lr, config.critic_lr
        self._states = [
            _with_betas(TrainingState(config.player(lr), net.to(environment.device)))
            for net, lr in zip(players, rates, strict=True)
        ]
        self._epoch: tuple[int, tuple[Tensor, ...]] = -1, ()
        self._began = time.monotonic()
        self._resume()

    @property
    def generator(self) -> ImageGenerator:
        """The generator as it is now."""
        net = self._states[0].model
        assert isinstance(net, ImageGenerator)
        return net

    @property
    def critic(self) -> nn.Module:
        """The critic as it is now."""
        return self._states[1].model

    @property
    def position(self) -> Position:
        """The position of the run: `step` of the critic, and sums since the last row of the log."""
        return self._states[1].position

    def _resume(self) -> None:
        if self.folder is None or (held := self.folder.read_checkpoint()) is None:
            return
        tensors, metadata = held
        self.folder.check_data(self.fingerprint, metadata["fingerprint"])
        self.environment.use_threads(metadata["threads"])
        self._restore(tensors, metadata["position"])

    def _restore(self, tensors: dict[str, Tensor], position: dict[str, Any]) -> None:
        for index, name in enumerate(("generator.", "critic.")):
            mine = {k.removeprefix(name): t for k, t in tensors.items() if k.startswith(name)}
            self._states[index] = _with_betas(self._states[index].restore(mine, position))

    def keep_checkpoint(self) -> None:
        """Writes both states to the folder, and continues from what was written (see `TrainingState`)."""
        self.count_seconds()
        tensors = {
            f"{name}.{key}": value
            for name, state in zip(("generator", "critic"), self._states, strict=True)
            for key, value in state.tensors().items()
        }
        position = self._states[1].numbers()
        if self.folder is not None:
            metadata = {
                "position": position,
                "fingerprint": self.fingerprint,
                "threads": self.environment.threads,
            }
            self.folder.write_checkpoint(tensors, metadata)
        self._restore(tensors, position)

    def step(self) -> float:
        """A step of the critic, and of the generator where one is due.

        Returns:
            The critic's dual value on the batch, before the step.
        """
        position = self.position
        self.environment.seed((position.step,))
        for state in self._states:
            for group in state.optimizer.param_groups:
                group["lr"] = learning_rate(state.config, position.step, self.config.num_steps)
        real = self._batch(position.step)
        dual = self._improve_critic(real)
        position.step += 1
        if position.step % self.config.critic_steps == 0:
            self._improve_generator()
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

    def _improve_critic(self, real: Tensor) -> float:
        critic, optimizer = self.critic.train(), self._states[1].optimizer
        generator = self.generator.train()
        with torch.no_grad():
            fake = generator(generator.draw_noise(len(real)))
        optimizer.zero_grad()
        dual = dual_value(critic, real, fake)
        loss = -dual
        if self.config.critic == "penalty":
            loss = loss + self.config.penalty * gradient_penalty(critic, real, fake)
        loss.backward()
        optimizer.step()
        if self.config.critic == "clipped":
            with torch.no_grad():
                for weight in critic.parameters():
                    weight.clamp_(-self.config.clip, self.config.clip)
        value = dual.item()
        if not abs(value) < float("inf"):
            raise NonFiniteError(
                subject="train_gan",
                rule="the critic's value must stay finite",
                got=f"{value} in step {self.position.step + 1}",
                remedy="Lower `critic_lr`.",
            )
        return value

    def _improve_generator(self) -> None:
        generator, optimizer = self.generator.train(), self._states[0].optimizer
        optimizer.zero_grad()
        # Only the generator learns here: gradients of the critic's weights would be thrown away.
        self.critic.requires_grad_(False)
        loss = -self.critic(generator(generator.draw_noise(self.config.batch_size))).mean()
        loss.backward()
        self.critic.requires_grad_(True)
        optimizer.step()

    def count_seconds(self) -> float:
        """Adds the time since the last call; returns the total training time."""
        now = time.monotonic()
        self.position.seconds += now - self._began
        self._began = now
        return self.position.seconds


def to_unit_range(images: Tensor, data: Prepared) -> Tensor:
    """Images scaled from their own range to [-1, 1], as generators make them."""
    low, high = data.spec.low, data.spec.high
    if low is None or high is None or not high > low:
        raise ArgumentError(
            subject="train_gan",
            rule="the data must be images with a known range of pixels",
            got="a table",
            remedy="Give a data set of images.",
        )
    return (images - low) * (2 / (high - low)) - 1


def _with_betas(state: TrainingState) -> TrainingState:
    for group in state.optimizer.param_groups:
        group["betas"] = _BETAS
    return state
