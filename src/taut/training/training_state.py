"""`TrainingState`: everything that a step of training depends on.

The order of the rows, the learning rate and all randomness are functions of the position in the run,
so the position, the weights and the optimiser's tensors are the whole state.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from taut.errors import NonFiniteError
from taut.optim import AggMo
from taut.training.config import TrainConfig

__all__ = ["Position", "TrainingState", "make_optimizer"]


@dataclass
class Position:
    """The position of a run, in plain numbers.

    Attributes:
        epoch: number of finished epochs.
        step: number of finished steps of the present epoch.
        seen: number of inputs of the present epoch so far.
        loss: sum of the objective over them.
        correct: number of them that were classified correctly.
        seconds: total training time.
        history: one row for each finished epoch.
        best_score: best certified and clean validation accuracy so far.
        best_epoch: epoch of the best score, counted from 1; 0 before the first.
    """

    epoch: int = 0
    step: int = 0
    seen: int = 0
    loss: float = 0.0
    correct: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    best_score: tuple[float, float] = (-1.0, -1.0)
    best_epoch: int = 0

    def count(self, rows: int, loss: float, correct: float = 0) -> None:
        """Adds a step: its number of rows, the sum of their losses and the number of correct ones.

        Raises:
            NonFiniteError: the loss is not finite.
        """
        if not abs(loss) < float("inf"):
            raise NonFiniteError(
                subject="train",
                rule="the loss must stay finite",
                got=f"{loss} in epoch {self.epoch + 1}, step {self.step + 1}",
                remedy="Lower `lr`, scale the data, or train in float64.",
            )
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
        """One step of the optimiser, down the gradients that are computed in the `with` block."""
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
        """Every tensor by name, ready for a file."""
        held = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        held |= {f"best.{name}": t for name, t in self.best.items()}
        for index, entries in self.optimizer.state_dict()["state"].items():
            held |= {f"optimizer.{index}.{key}": t for key, t in entries.items() if t is not None}
        # A file holds each number once, so what shares storage is copied apart.
        return {name: t.detach().cpu().contiguous() for name, t in held.items()}

    def numbers(self) -> dict[str, Any]:
        """The position, for JSON."""
        return asdict(self.position)

    def restore(self, tensors: Mapping[str, Tensor], numbers: dict[str, Any]) -> "TrainingState":
        """A new state of the same kind with these contents; this one is left alone.

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
        twin.optimizer.load_state_dict(
            {**twin.optimizer.state_dict(), "state": _by_parameter(parts["optimizer"])}
        )
        twin.position = Position(**{**numbers, "best_score": tuple(numbers["best_score"])})
        return twin


def make_optimizer(config: TrainConfig, model: nn.Module) -> Optimizer:
    """The optimiser of a resolved configuration, over all parameters of `model`."""
    assert config.lr is not None
    if config.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), config.lr, weight_decay=config.weight_decay)
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            model.parameters(), config.lr, momentum=0.9, weight_decay=config.weight_decay
        )
    return AggMo(model.parameters(), config.lr, weight_decay=config.weight_decay)


def _by_parameter(tensors: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = value
    return state
