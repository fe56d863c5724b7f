"""`GanSession`: one sitting of a GAN run. It begins or resumes, keeps checkpoints, and steps."""

import time
from typing import Any

import torch
from torch import Tensor, nn

from taut.errors import ArgumentError, NonFiniteError
from taut.regularizers import gradient_penalty
from taut.training.chance import batches
from taut.training.gan.config import GanConfig
from taut.training.gan.folder import GanFolder
from taut.training.gan.networks import ImageGenerator, build_critic, build_generator
from taut.training.inputs import Prepared
from taut.training.schedule import learning_rate
from taut.training.settings import Settings
from taut.training.state import Place, State
from taut.wasserstein import dual_value

__all__ = ["GanSession"]

_BETAS = (0.5, 0.999)


class GanSession:
    """Two states, of the generator and of the critic; the critic's place is that of the run.

    Args:
        config: with nothing left open.
        data: made ready, its images within the range that `data.spec` names.
        folder: where checkpoints are kept, or None.
        settings: of the machine, in force.
    """

    def __init__(
        self, config: GanConfig, data: Prepared, folder: GanFolder | None, settings: Settings
    ) -> None:
        assert config.critic_lr is not None
        self.config, self.folder, self.settings = config, folder, settings
        self.fingerprint = data.fingerprint
        self.images = to_unit_range(data.train.inputs, data).to(settings.device)
        players = build_generator(config, data.spec.shape), build_critic(config, data.spec.shape)
        rates = config.lr, config.critic_lr
        self._states = [
            _with_betas(State(config.player(lr), net.to(settings.device)))
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
    def place(self) -> Place:
        """Where the run is: `step` of the critic, and sums over the row of the log to come."""
        return self._states[1].place

    def _resume(self) -> None:
        held = None if self.folder is None else self.folder.read_checkpoint()
        if held is None:
            return
        tensors, story = held
        if story["fingerprint"] != self.fingerprint:
            raise ArgumentError(
                "train_gan: the data must be what the run began with; its numbers have changed. "
                "Bring the old data back, or choose another folder."
            )
        self.settings.use_threads(story["threads"])
        self._restore(tensors, story["place"])

    def _restore(self, tensors: dict[str, Tensor], place: dict[str, Any]) -> None:
        for index, name in enumerate(("generator.", "critic.")):
            mine = {k.removeprefix(name): t for k, t in tensors.items() if k.startswith(name)}
            self._states[index] = _with_betas(self._states[index].restore(mine, place))

    def keep_checkpoint(self) -> None:
        """Writes both states to the folder, and goes on from what was written (see `State`)."""
        self.count_seconds()
        tensors = {
            f"{name}.{key}": value
            for name, state in zip(("generator", "critic"), self._states, strict=True)
            for key, value in state.tensors().items()
        }
        place = self._states[1].numbers()
        if self.folder is not None:
            story = {
                "place": place,
                "fingerprint": self.fingerprint,
                "threads": self.settings.threads,
            }
            self.folder.write_checkpoint(tensors, story)
        self._restore(tensors, place)

    def step(self) -> float:
        """A step of the critic, and where one is due also of the generator.

        Returns:
            The critic's dual value on the batch, before the step.
        """
        place = self.place
        self.settings.go_to((place.step,))
        for state in self._states:
            for group in state.optimizer.param_groups:
                group["lr"] = learning_rate(state.config, place.step, self.config.num_steps)
        real = self._batch(place.step)
        dual = self._improve_critic(real)
        place.step += 1
        if place.step % self.config.critic_steps == 0:
            self._improve_generator()
        place.loss += dual
        place.seen += 1
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
                f"train_gan: the critic's value must stay finite; got {value} in step "
                f"{self.place.step + 1}. Lower `critic_lr`."
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
        """Adds the time since it was last asked; returns that of all sittings."""
        now = time.monotonic()
        self.place.seconds += now - self._began
        self._began = now
        return self.place.seconds


def to_unit_range(images: Tensor, data: Prepared) -> Tensor:
    """Images scaled from their own range to [-1, 1], as generators make them."""
    low, high = data.spec.low, data.spec.high
    if low is None or high is None or not high > low:
        raise ArgumentError(
            "train_gan: the data must be images with a known range of pixels; got a table. "
            "Give a data set of images."
        )
    return (images - low) * (2 / (high - low)) - 1


def _with_betas(state: State) -> State:
    for group in state.optimizer.param_groups:
        group["betas"] = _BETAS
    return state
