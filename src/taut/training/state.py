"""`TrainingState`: everything that a step of training depends on; and `Session`, which stores it.

The order of the rows, the learning rate and all randomness are functions of the position in the run,
so the position, the weights and the optimiser's tensors are the whole state.
"""

import copy
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from platform import python_version
from typing import Any, Generic

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from taut import parallel
from taut.errors import ArgumentError, NonFiniteError
from taut.optim import AggMo
from taut.training.config import TrainConfig
from taut.training.config_fields import AnyConfig
from taut.training.data_preparation import Prepared
from taut.training.environment import Environment
from taut.training.run_folder import RunFolder


@dataclass
class Position:
    """The position of a run, in plain numbers."""

    epoch: int = 0  # number of finished epochs
    step: int = 0  # number of finished steps of the present epoch
    seen: int = 0  # number of inputs of the present epoch so far
    loss: float = 0.0  # sum of the objective over them
    correct: int = 0  # number of them that were classified correctly
    seconds: float = 0.0  # total training time
    history: list[dict[str, Any]] = field(default_factory=list)  # one row for each finished epoch
    best_score: tuple[float, float] = (-1.0, -1.0)  # best certified and clean validation accuracy
    best_epoch: int = 0  # epoch of the best score, counted from 1; 0 before the first

    def count(self, rows: int, loss: float, correct: float = 0) -> None:
        """Adds a step: its number of rows, the sum of their losses and the number of correct ones.

        Raises:
            NonFiniteError: the loss is not finite.
        """
        if not abs(loss) < float("inf"):
            got = f"{loss} in epoch {self.epoch + 1}, step {self.step + 1}"
            remedy = "Lower `lr`, scale the data, or train in float64."
            raise NonFiniteError("train", rule="the loss must stay finite", got=got, remedy=remedy)
        self.step += 1
        self.seen += rows
        self.loss += loss
        self.correct += round(correct)

    def end_epoch(self, row: dict[str, Any]) -> None:
        """Adds the row of the present epoch and starts the next."""
        self.history.append(row)
        self.epoch += 1
        self.step = self.seen = self.correct = 0
        self.loss = 0.0


class TrainingState:
    """A network in training, its optimiser, its best weights so far, and the position."""

    def __init__(self, config: TrainConfig, model: nn.Module) -> None:
        self.config = config
        self.model = model
        self.optimizer = make_optimizer(config, model)
        self.position = Position()
        self.best: dict[str, Tensor] = {}

    @contextmanager
    def step(self, rate: float) -> Iterator[None]:
        """Takes one step of the optimiser with the gradients that are computed in the `with` block."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        self.optimizer.zero_grad()
        yield
        self.optimizer.step()

    def remember_best(self) -> None:
        """Keeps a copy of the present weights."""
        self.best = {name: t.detach().clone() for name, t in self.model.state_dict().items()}

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name, ready to be saved."""
        tensors = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        tensors |= {f"best.{name}": t for name, t in self.best.items()}
        for index, entries in self.optimizer.state_dict()["state"].items():
            tensors |= {
                f"optimizer.{index}.{key}": t for key, t in entries.items() if t is not None
            }
        # A file cannot store shared storage, so tensors that share it are copied.
        return {name: t.detach().cpu().contiguous() for name, t in tensors.items()}

    def restore(self, tensors: Mapping[str, Tensor], position: dict[str, Any]) -> "TrainingState":
        """Creates a new state of the same kind with these contents; this one is not changed.

        Layers cache what they computed from a weight, and copies of layers do not. A running state is
        therefore restored from its own contents at each checkpoint: it continues from exactly what a
        later process would find, so both take the same steps to the bit.
        """
        twin = TrainingState(self.config, copy.deepcopy(self.model))
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "optimizer": {}}
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = value
        twin.model.load_state_dict(parts["model"])
        device = next(twin.model.parameters()).device
        twin.best = {name: t.to(device) for name, t in parts["best"].items()}
        by_parameter: dict[int, dict[str, Tensor]] = {}
        for name, value in parts["optimizer"].items():
            index, _, key = name.partition(".")
            by_parameter.setdefault(int(index), {})[key] = value
        twin.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": by_parameter})
        twin.position = Position(**{**position, "best_score": tuple(position["best_score"])})
        return twin


def make_optimizer(config: TrainConfig, model: nn.Module) -> Optimizer:
    """Creates the optimiser of a resolved configuration, over all parameters of `model`."""
    assert config.lr is not None
    options: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    if config.optimizer == "adam":
        if config.arch == "distance":  # as in SortNet: gradients are sparse
            options |= {"betas": (0.9, 0.99), "eps": 1e-10}
        return torch.optim.Adam(model.parameters(), fused=True, **options)
    if config.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), momentum=0.9, **options)
    return AggMo(model.parameters(), **options)


class Session(Generic[AnyConfig]):
    """A run in training: it starts or resumes, stores checkpoints, and measures its time.

    `states` are those of the networks, by the prefix of their tensors in a checkpoint; the position of
    the first is that of the run. Without a `folder` there are no checkpoints.
    """

    def __init__(
        self,
        config: AnyConfig,
        data: Prepared,
        folder: RunFolder[AnyConfig] | None,
        environment: Environment,
        states: dict[str, TrainingState],
    ) -> None:
        self.config, self.data, self.folder, self.environment = config, data, folder, environment
        self.states = states
        self._began = time.monotonic()
        if folder is None or (checkpoint := folder.read_checkpoint()) is None:
            return
        tensors, metadata = checkpoint
        folder.check_data(data.fingerprint, metadata["fingerprint"])
        if (processes := metadata.get("processes", 1)) != parallel.world_size():
            rule = "a run must resume with as many processes as it began with, or rounding differs"
            got = f"{parallel.world_size()} instead of {processes}"
            remedy = "Start as many, or choose another folder."
            raise ArgumentError("train", rule=rule, got=got, remedy=remedy)
        environment.use_threads(metadata["threads"])
        self._restore(tensors, metadata["position"])

    @property
    def position(self) -> Position:
        """The position of the run."""
        return next(iter(self.states.values())).position

    def _restore(self, tensors: dict[str, Tensor], position: dict[str, Any]) -> None:
        for prefix, state in self.states.items():
            own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
            self.states[prefix] = state.restore(own, position)

    def keep_checkpoint(self) -> None:
        """Writes the state to the folder, and continues from what was written (see `TrainingState`)."""
        self.count_seconds()
        position = asdict(self.position)
        tensors = {
            prefix + name: tensor
            for prefix, state in self.states.items()
            for name, tensor in state.tensors().items()
        }
        if self.folder is not None and parallel.is_first():
            metadata = {
                "position": position,
                "fingerprint": self.data.fingerprint,
                "processes": parallel.world_size(),
                "threads": self.environment.threads,
            }
            self.folder.write_checkpoint(tensors, metadata)
        barrier()
        self._restore(tensors, position)

    def count_seconds(self) -> float:
        """Adds the time since the last call; returns the total training time."""
        now = time.monotonic()
        self.position.seconds += now - self._began
        self._began = now
        return self.position.seconds

    def summary(self, model: nn.Module) -> dict[str, Any]:
        """The common part of the result of every run: time, sizes, machine, data and versions."""
        return {
            "seconds": self.count_seconds(),
            "parameters": sum(p.numel() for p in model.parameters()),
            "train_rows": len(self.data.train),
            "threads": self.environment.threads,
            "device": str(self.environment.device),
            "fingerprint": self.data.fingerprint,
            "versions": {
                "python": python_version(),
                **{name: version(name) for name in ("taut", "torch", "numpy")},
            },
        }


def barrier() -> None:
    """Waits for the other processes, so that none reads what the first has not written yet."""
    parallel.gather(torch.zeros(1))
