"""`train`: one run from its configuration to a network with a proven constant."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

import torch
from torch import nn

from taut import parallel
from taut.audit import bound_lipschitz
from taut.data import LabelledData
from taut.errors import ArgumentError, NonFiniteError
from taut.export import save
from taut.training.architectures import build_network
from taut.training.chance import batches, number_at
from taut.training.config import TrainConfig
from taut.training.defaults import resolve
from taut.training.evaluation import evaluate
from taut.training.folder import RunFolder, write_json
from taut.training.inputs import Examples, Prepared, load_data, prepare
from taut.training.log import Log
from taut.training.objective import Objective
from taut.training.run import TrainedRun, load_run
from taut.training.schedule import learning_rate
from taut.training.state import State

__all__ = ["Progress", "train"]


@dataclass(frozen=True)
class Progress:
    """What a run tells while it goes on: after each step, and after each epoch with its row.

    Attributes:
        epoch: the present epoch, from 1.
        epochs: how many there are at most.
        step: steps of it that are over.
        steps: steps of an epoch.
        loss: the mean objective over the epoch so far.
        accuracy: the share classified rightly when seen, over the epoch so far.
        lr: the learning rate.
        row: the row of the last epoch that is over, or None.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    accuracy: float
    lr: float
    row: dict[str, Any] | None


def train(
    config: TrainConfig,
    out: str | os.PathLike[str] | None = None,
    *,
    data: LabelledData | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    tensorboard: bool = False,
) -> TrainedRun:
    """Trains a classifier with a proven radius for each prediction.

    Seeded and resumable: the same call again, after the process died at any moment, goes on from
    the last checkpoint and ends with the same weights to the bit (on the same kind of machine, with
    as many processes). A finished run is not run again. Under `torchrun` the processes share each
    batch and stay equal to the bit.

    Args:
        config: what to train; see `TrainConfig`.
        out: the folder of the run; without one nothing is written.
        data: labelled data, instead of what `config.data` names.
        on_progress: called after each step and each epoch, in the first process.
        tensorboard: also write events for TensorBoard (taut[track]) into `out`.

    Returns:
        The run: the network that was best on validation rows by certified accuracy, then by clean
        accuracy, or the last one where nothing is held out.

    Raises:
        ArgumentError: `out` holds another run, or its data has changed.
        NonFiniteError: training diverged.

    Example:
        >>> config = TrainConfig(hidden=(32,), epochs=3, batch_size=128)
        >>> run = train(config)
        >>> run.result["lipschitz"] <= 1 and run.result["clean"] > 0.5
        True
    """
    if tensorboard and out is None:
        raise ArgumentError("train: `tensorboard` needs a folder to write to; got out=None.")
    data = load_data(config) if data is None else data
    config = resolve(config, data)
    with parallel.process_group(), _Settings(config) as settings:
        prepared = prepare(config, data)
        folder = None if out is None else RunFolder(out)
        if folder is not None:
            if parallel.is_first():
                folder.open(config, prepared.spec)
            _meet()
            if folder.finished:
                folder.check_same(config)
                return load_run(folder.path)
        run = _Run(config, prepared, folder, settings, on_progress, tensorboard)
        return run.train_to_the_end(data)


class _Settings:
    """Threads and chance as the run wants them; afterwards as they were before."""

    def __init__(self, config: TrainConfig) -> None:
        self.device = _device(config.device)
        self.threads = config.threads or torch.get_num_threads()

    def __enter__(self) -> "_Settings":
        self._before = torch.get_num_threads()
        self._forked = torch.random.fork_rng([self.device] if self.device.type == "cuda" else [])
        self._forked.__enter__()
        self.use_threads(self.threads)
        return self

    def use_threads(self, threads: int) -> None:
        """Sums are split over threads, so their number is part of what makes two runs equal."""
        self.threads = threads
        torch.set_num_threads(threads)

    def seed(self, number: int) -> None:
        """What dropout draws from; without the stack trace that `torch.manual_seed` takes."""
        torch.default_generator.manual_seed(number)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(number)

    def __exit__(self, *error: Any) -> None:
        self._forked.__exit__(*error)
        torch.set_num_threads(self._before)


class _Run:
    """One training: begin or resume, go through the epochs, finish."""

    def __init__(
        self,
        config: TrainConfig,
        data: Prepared,
        folder: RunFolder | None,
        settings: _Settings,
        on_progress: Callable[[Progress], None] | None,
        tensorboard: bool,
    ) -> None:
        assert config.epochs is not None and config.batch_size is not None
        assert config.radius is not None
        self.config, self.data, self.folder, self.settings = config, data, folder, settings
        self.epochs, self.batch_size, self.radius = config.epochs, config.batch_size, config.radius
        self.tell = on_progress
        dtype = torch.float64 if config.dtype == "float64" else torch.float32
        self.train_rows = data.train.to(settings.device, dtype)
        self.steps = -(-len(data.train) // self.batch_size)
        self.objective = Objective(config, data.spec)
        self.state = self._begin_or_resume()
        self.log = None
        if folder is not None and parallel.is_first():
            self.log = Log(folder.log_file, self.state.place.history, tensorboard)

    def train_to_the_end(self, source: LabelledData) -> TrainedRun:
        """The whole story."""
        while self.state.place.epoch < self.epochs and not self._out_of_patience():
            began = time.monotonic()
            for rows in self._rest_of_the_epoch():
                self._step(rows)
                if self.state.place.step % self.config.checkpoint_every == 0:
                    began = self._count_seconds(began)
                    self._checkpoint()
            row = self._end_the_epoch(began)
            self._checkpoint()
            if self.log is not None:
                self.log.add(row)
            self._report(row)
        if self.log is not None:
            self.log.close()
        return self._finish(source)

    def _rest_of_the_epoch(self) -> tuple[torch.Tensor, ...]:
        place = self.state.place
        order = batches(len(self.train_rows), self.batch_size, self.config.seed, place.epoch)
        return order[place.step :]

    def _step(self, rows: torch.Tensor) -> None:
        state, place = self.state, self.state.place
        mine = parallel.share(rows).to(self.settings.device)
        x, labels = self.train_rows.inputs[mine], self.train_rows.labels[mine]
        here = (place.epoch, place.step, parallel.rank())
        self.settings.seed(number_at(self.config.seed, *here))
        rate = self._rate()
        for group in state.optimizer.param_groups:
            group["lr"] = rate
        state.model.train()
        state.optimizer.zero_grad()
        loss, logits = self.objective(state.model, x, labels, here)
        # Shares may differ by a row; weighted so, the average over processes is that of all rows.
        (loss * parallel.share_weight(len(rows))).backward()
        parallel.average_gradients(state.model.parameters())
        state.optimizer.step()
        tally = torch.stack(
            [loss.detach().double() * len(mine), (logits.argmax(1) == labels).sum()]
        )
        total, correct = parallel.gather(tally.cpu()[None]).sum(0).tolist()
        if not -float("inf") < total < float("inf"):
            raise NonFiniteError(
                f"train: the loss must stay finite; got {total} in epoch {place.epoch + 1}, step "
                f"{place.step + 1}. Lower `lr`, or train in float64."
            )
        place.step += 1
        place.seen += len(rows)
        place.loss += total
        place.correct += round(correct)
        self._report(None)

    def _end_the_epoch(self, began: float) -> dict[str, Any]:
        state, place = self.state, self.state.place
        row: dict[str, Any] = {
            "epoch": place.epoch + 1,
            "loss": place.loss / place.seen,
            "accuracy": place.correct / place.seen,
            "lr": self._rate(-1),
        }
        if self.data.validation is None:
            bound = bound_lipschitz(state.model, self.config.norm, self.data.spec.shape)
            row |= {"clean": None, "certified": None, "lipschitz": bound.value}
        else:
            found = evaluate(state.model, self._examples(self.data.validation), self.config.norm)
            score = found.certified(self.radius), found.clean
            row |= {"clean": score[1], "certified": score[0], "lipschitz": found.lipschitz.value}
            if score > place.best_score:
                place.best_score, place.best_epoch = score, row["epoch"]
                state.remember_best()
        self._count_seconds(began)
        row["seconds"] = place.seconds
        place.history.append(row)
        place.begin_epoch()
        return row

    def _finish(self, source: LabelledData) -> TrainedRun:
        state, place = self.state, self.state.place
        if state.best:
            state.model.load_state_dict(state.best)
        model = state.model.eval().cpu()
        test = self.data.test.to(torch.device("cpu"), next(model.parameters()).dtype)
        found = evaluate(model, test, self.config.norm)
        result: dict[str, Any] = {
            "clean": found.clean,
            "certified": found.certified(self.radius),
            "radius": self.radius,
            "norm": self.config.norm,
            "lipschitz": found.lipschitz.value,
            "median_radius": found.radii.median().item(),
            "test_rows": len(test),
            "train_rows": len(self.data.train),
            "best_epoch": place.best_epoch or place.epoch,
            "epochs": place.epoch,
            "seconds": place.seconds,
            "parameters": sum(p.numel() for p in model.parameters()),
            "processes": parallel.world_size(),
            "fingerprint": self.data.fingerprint,
            "versions": {
                "python": python_version(),
                **{name: version(name) for name in ("taut", "torch", "numpy")},
            },
        }
        if self.folder is not None and parallel.is_first():
            shape = self.data.spec.shape
            save(model, self.folder.model_file, norm=self.config.norm, input_shape=shape)
            write_json(self.folder.result_file, result)
        _meet()
        path: Path | None = None if self.folder is None else self.folder.path
        history = tuple(place.history)
        return TrainedRun(self.config, model, history, result, self.data.spec, path, source)

    def _begin_or_resume(self) -> State:
        model: nn.Module = build_network(
            self.config, self.data.spec.shape, len(self.data.spec.classes)
        )
        state = State(self.config, model.to(self.settings.device))
        held = None if self.folder is None else self.folder.read_checkpoint()
        if held is None:
            return state
        tensors, story = held
        if story["fingerprint"] != self.data.fingerprint:
            raise ArgumentError(
                "train: the data must be what the run began with; its numbers have changed. "
                "Bring the old data back, or choose another folder."
            )
        if story["processes"] != parallel.world_size():
            raise ArgumentError(
                f"train: the run must go on with as many processes as it began with; it has "
                f"{story['processes']}, now there are {parallel.world_size()}. Sums would be "
                "split differently, and the result would be another."
            )
        self.settings.use_threads(story["threads"])
        return state.restore(tensors, story["place"])

    def _checkpoint(self) -> None:
        tensors, place = self.state.tensors(), self.state.numbers()
        if self.folder is not None and parallel.is_first():
            story = {
                "place": place,
                "fingerprint": self.data.fingerprint,
                "processes": parallel.world_size(),
                "threads": self.settings.threads,
            }
            self.folder.write_checkpoint(tensors, story)
        _meet()
        self.state = self.state.restore(tensors, place)

    def _out_of_patience(self) -> bool:
        place = self.state.place
        waited = place.epoch - place.best_epoch
        return 0 < self.config.patience <= waited and place.best_epoch > 0

    def _rate(self, ahead: int = 0) -> float:
        place = self.state.place
        step = place.epoch * self.steps + place.step + ahead
        return learning_rate(self.config, step, self.steps)

    def _examples(self, examples: Examples) -> Examples:
        return examples.to(self.settings.device, self.train_rows.inputs.dtype)

    def _count_seconds(self, began: float) -> float:
        now = time.monotonic()
        self.state.place.seconds += now - began
        return now

    def _report(self, row: dict[str, Any] | None) -> None:
        if self.tell is None or not parallel.is_first():
            return
        place = self.state.place
        last = row or (place.history[-1] if place.history else None)
        if row is not None:
            told = (row["epoch"], self.steps, row["loss"], row["accuracy"], row["lr"])
        else:
            share = place.loss / place.seen, place.correct / place.seen
            told = (place.epoch + 1, place.step, *share, self._rate(-1))
        epoch, step, loss, accuracy, rate = told
        self.tell(Progress(epoch, self.epochs, step, self.steps, loss, accuracy, rate, last))


def _meet() -> None:
    """Waits for the other processes, so that none reads what the first has not written yet."""
    parallel.gather(torch.zeros(1))


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ArgumentError(
            f"TrainConfig: `device` must be 'auto' or a device of torch; got device={name!r}."
        ) from error
