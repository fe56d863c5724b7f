"""`Session`: one sitting of a run. It begins or resumes, keeps checkpoints, and steps."""

import time

import torch
from torch import Tensor

from taut import parallel
from taut.errors import ArgumentError
from taut.training.architectures import build_network
from taut.training.augmentation import augment
from taut.training.chance import batches, generator_at
from taut.training.config import TrainConfig
from taut.training.folder import RunFolder
from taut.training.inputs import Prepared
from taut.training.objective import Objective
from taut.training.parseval import parseval_step
from taut.training.schedule import learning_rate
from taut.training.settings import Settings
from taut.training.state import State

__all__ = ["Session", "meet"]


class Session:
    """What the loop works with: data, objective, and a state that checkpoints renew.

    Args:
        config: resolved.
        data: made ready.
        folder: where checkpoints are kept, or None.
        settings: of the machine, in force.
    """

    def __init__(
        self, config: TrainConfig, data: Prepared, folder: RunFolder | None, settings: Settings
    ) -> None:
        assert config.epochs is not None and config.batch_size is not None
        self.config, self.data, self.folder, self.settings = config, data, folder, settings
        self.epochs, self.batch_size = config.epochs, config.batch_size
        self.rows = data.train.to(settings.device, settings.dtype)
        self.steps = -(-len(data.train) // self.batch_size)
        self.objective = Objective(config, data.spec)
        self._began = time.monotonic()
        self.state = self._begin_or_resume()

    def _begin_or_resume(self) -> State:
        network = build_network(self.config, self.data.spec.shape, len(self.data.spec.classes))
        state = State(self.config, network.to(self.settings.device))
        if self.folder is None or (held := self.folder.read_checkpoint()) is None:
            return state
        tensors, story = held
        self.folder.check_data(self.data.fingerprint, story["fingerprint"])
        if story["processes"] != parallel.world_size():
            raise ArgumentError(
                "train: a run must go on with as many processes as it began with, or sums are "
                f"split differently and the result is another; it began with {story['processes']}, "
                f"now there are {parallel.world_size()}. Start as many, or choose another folder."
            )
        self.settings.use_threads(story["threads"])
        return state.restore(tensors, story["place"])

    def keep_checkpoint(self) -> None:
        """Writes the state to the folder, and goes on from what was written (see `State`)."""
        self.count_seconds()
        tensors, place = self.state.tensors(), self.state.numbers()
        if self.folder is not None and parallel.is_first():
            story = {
                "place": place,
                "fingerprint": self.data.fingerprint,
                "processes": parallel.world_size(),
                "threads": self.settings.threads,
            }
            self.folder.write_checkpoint(tensors, story)
        meet()
        self.state = self.state.restore(tensors, place)

    def rest_of_the_epoch(self) -> tuple[Tensor, ...]:
        """The rows of each step that is still to take."""
        place = self.state.place
        order = batches(len(self.rows), self.batch_size, self.config.seed, place.epoch)
        return order[place.step :]

    def step(self, rows: Tensor) -> None:
        """Takes one step on these rows, of which each process computes its share."""
        state, place = self.state, self.state.place
        here = (place.epoch, place.step, parallel.rank())
        self.settings.go_to(here)
        mine = parallel.share(rows).to(self.settings.device)
        x, labels = self.rows.inputs[mine], self.rows.labels[mine]
        x = augment(x, self.config.augment, generator_at(self.config.seed, *here, 0))
        with state.step(self.learning_rate()):
            loss, logits = self.objective(state.model, x, labels, here)
            (loss * parallel.share_weight(len(rows))).backward()
            parallel.average_gradients(state.model.parameters())
        if self.config.parseval_beta:
            parseval_step(state.model, self.config.parseval_beta)
        correct = (logits.argmax(1) == labels).sum()
        mine = torch.stack([loss.detach().double() * len(mine), correct.double()])
        place.count(len(rows), *parallel.gather(mine.cpu()[None]).sum(0).tolist())

    def learning_rate(self, ahead: int = 0) -> float:
        """The rate of the step to come, or of one so many steps ahead of it."""
        place = self.state.place
        return learning_rate(self.config, place.epoch * self.steps + place.step + ahead, self.steps)

    def count_seconds(self) -> float:
        """Adds the time since it was last asked; returns that of all sittings."""
        now = time.monotonic()
        self.state.place.seconds += now - self._began
        self._began = now
        return self.state.place.seconds


def meet() -> None:
    """Waits for the other processes, so that none reads what the first has not written yet."""
    parallel.gather(torch.zeros(1))
