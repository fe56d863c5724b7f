"""`Session`: a run in training: it starts or resumes, saves checkpoints, and steps."""

import time

import torch
from torch import Tensor

from taut import parallel
from taut.errors import ArgumentError
from taut.training.architectures import build_network
from taut.training.augmentation import augment
from taut.training.config import TrainConfig
from taut.training.environment import Environment
from taut.training.examples import Prepared
from taut.training.objective import Objective
from taut.training.parseval import parseval_step
from taut.training.run_folder import RunFolder
from taut.training.schedule import learning_rate
from taut.training.seeding import batches, generator_at
from taut.training.training_state import TrainingState

__all__ = ["Session", "barrier"]


class Session:
    """Data, objective and state of a run in training.

    Args:
        config: resolved.
        data: prepared.
        folder: folder of the checkpoints, or None.
        environment: device, dtype, threads and random state.
    """

    def __init__(
        self,
        config: TrainConfig,
        data: Prepared,
        folder: RunFolder | None,
        environment: Environment,
    ) -> None:
        assert config.epochs is not None and config.batch_size is not None
        self.config, self.data, self.folder, self.environment = config, data, folder, environment
        self.epochs, self.batch_size = config.epochs, config.batch_size
        self.rows = data.train.to(environment.device, environment.dtype)
        self.steps = -(-len(data.train) // self.batch_size)
        self.objective = Objective(config, data.spec)
        self._began = time.monotonic()
        self.state = self._begin_or_resume()

    def _begin_or_resume(self) -> TrainingState:
        network = build_network(self.config, self.data.spec.shape, len(self.data.spec.classes))
        state = TrainingState(self.config, network.to(self.environment.device))
        if self.folder is None or (held := self.folder.read_checkpoint()) is None:
            return state
        tensors, metadata = held
        self.folder.check_data(self.data.fingerprint, metadata["fingerprint"])
        if metadata["processes"] != parallel.world_size():
            raise ArgumentError(
                subject="train",
                rule="a run must resume with as many processes as it began with, or rounding "
                "differs",
                got=f"{parallel.world_size()} instead of {metadata['processes']}",
                remedy="Start as many, or choose another folder.",
            )
        self.environment.use_threads(metadata["threads"])
        return state.restore(tensors, metadata["position"])

    def keep_checkpoint(self) -> None:
        """Writes the state to the folder, and continues from what was written (see `TrainingState`)."""
        self.count_seconds()
        tensors, position = self.state.tensors(), self.state.numbers()
        if self.folder is not None and parallel.is_first():
            metadata = {
                "position": position,
                "fingerprint": self.data.fingerprint,
                "processes": parallel.world_size(),
                "threads": self.environment.threads,
            }
            self.folder.write_checkpoint(tensors, metadata)
        barrier()
        self.state = self.state.restore(tensors, position)

    def remaining_batches(self) -> tuple[Tensor, ...]:
        """The rows of each remaining step of the epoch."""
        position = self.state.position
        order = batches(len(self.rows), self.batch_size, self.config.seed, position.epoch)
        return order[position.step :]

    def step(self, rows: Tensor) -> None:
        """Takes one step on these rows, of which each process computes its share."""
        state, position = self.state, self.state.position
        here = (position.epoch, position.step, parallel.rank())
        self.environment.seed(here)
        mine = parallel.share(rows).to(self.environment.device)
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
        position.count(len(rows), *parallel.gather(mine.cpu()[None]).sum(0).tolist())

    def learning_rate(self, ahead: int = 0) -> float:
        """The learning rate of the next step, or of a later one."""
        position = self.state.position
        return learning_rate(
            self.config, position.epoch * self.steps + position.step + ahead, self.steps
        )

    def count_seconds(self) -> float:
        """Adds the time since the last call; returns the total training time."""
        now = time.monotonic()
        self.state.position.seconds += now - self._began
        self._began = now
        return self.state.position.seconds


def barrier() -> None:
    """Waits for the other processes, so that none reads what the first has not written yet."""
    parallel.gather(torch.zeros(1))
