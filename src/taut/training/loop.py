"""`train`: trains a certified classifier from a configuration."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from taut import parallel
from taut.audit import bound_lipschitz
from taut.data import LabelledData
from taut.errors import ArgumentError, DamagedFileError
from taut.export import save
from taut.losses import RampLoss
from taut.training.architectures import build_network
from taut.training.augmentation import augment
from taut.training.config import TrainConfig
from taut.training.data_preparation import (
    Examples,
    Prepared,
    load_data,
    prepare,
    with_absolute_paths,
)
from taut.training.defaults import resolve
from taut.training.environment import Environment
from taut.training.evaluation import Evaluation, evaluate
from taut.training.learning_rate_schedule import learning_rate
from taut.training.linf_distance_training import (
    cross_entropy_weight,
    exponent_at,
    set_exponent,
    start_distances,
    update_means,
)
from taut.training.objective import Objective, parseval_step
from taut.training.progress import Log, Progress
from taut.training.run_folder import RunFolder, write_json
from taut.training.seeds import batches, generator_at
from taut.training.state import Session, TrainingState, barrier
from taut.training.trained_run import TrainedRun, load_run
from taut.training.worst_case_logits import MAX_GRADIENT


def train(
    config: TrainConfig,
    out: str | os.PathLike[str] | None = None,
    *,
    data: LabelledData | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    tensorboard: bool = False,
) -> TrainedRun:
    """Trains a classifier with certified predictions.

    Seeded and resumable: the same call again, after an interruption at any moment, resumes from the
    last checkpoint and ends with the same weights to the bit (on the same kind of machine, with as
    many processes). A finished run is not repeated. Under `torchrun` the processes share each batch
    and stay equal to the bit; all need access to `out`.

    Args:
        config: configuration of the run.
        out: folder of the run; without one nothing is written.
        data: labelled data, instead of `config.data`.
        on_progress: called after each step and each epoch, in the first process.
        tensorboard: also write events for TensorBoard (taut[track]) into `out`.

    Returns:
        The run, with the weights of the epoch with the best certified, then clean validation
        accuracy; or of the last epoch without validation rows.

    Raises:
        ArgumentError: `out` holds another run, or the data has changed since it began.
        NonFiniteError: training diverged.

    Example:
        >>> run = train(TrainConfig(data="digits", hidden=(32,), epochs=3, lr=0.005))
        >>> run.result["lipschitz"] <= 1 and run.result["clean"] > 0.5
        True
    """
    if tensorboard and out is None:
        raise ArgumentError("train", "tensorboard", "needs a folder to write to", "out=None")
    if data is None:
        config = with_absolute_paths(config)
        data = load_data(config)
    requested, config = config, resolve(config, data)
    folder = None if out is None else RunFolder(out)
    with ExitStack() as stack:
        stack.enter_context(parallel.process_group())
        environment = stack.enter_context(Environment(config))
        prepared = prepare(config, data)
        if folder is not None and parallel.is_first():
            stack.enter_context(folder.lock())
        if folder is not None:
            if parallel.is_first():
                folder.open(requested, config, prepared.spec, prepared.fingerprint)
            barrier()
            run = _finished(folder)
            # All processes have read the folder, so the first may rewrite unreadable files.
            barrier()
            if run is not None:
                if tensorboard:
                    Log(folder, list(run.history), tensorboard).close()
                return run

        session = _ClassifierSession(config, prepared, folder, environment)
        log = Log(folder, session.position.history, tensorboard)
        report = on_progress if on_progress and parallel.is_first() else lambda progress: None
        while not session.over():
            for rows in session.remaining_batches():
                session.step(rows)
                report(session.progress())
                if session.position.step % config.checkpoint_every == 0:
                    session.keep_checkpoint()
            row = session.end_epoch()
            session.keep_checkpoint()
            log.add(row)
            report(session.progress(row))
        log.close()
        return session.finalise(data)


def _finished(folder: RunFolder[TrainConfig]) -> TrainedRun | None:
    """Loads the run if it is finished; None if not, or if its end must be repeated."""
    if not folder.finished:
        return None
    try:
        return load_run(folder.path)
    except (ArgumentError, DamagedFileError):
        if folder.read_checkpoint() is None:
            raise
        return None


class _ClassifierSession(Session[TrainConfig]):
    """A classifier in training; for the arguments see `Session`."""

    def __init__(
        self,
        config: TrainConfig,
        data: Prepared,
        folder: RunFolder[TrainConfig] | None,
        environment: Environment,
    ) -> None:
        assert config.epochs is not None and config.batch_size is not None
        network = build_network(config, data.spec.shape, len(data.spec.classes))
        start_distances(network, data.train.inputs)
        states = {"": TrainingState(config, network.to(environment.device))}
        super().__init__(config, data, folder, environment, states)
        self.epochs, self.batch_size = config.epochs, config.batch_size
        self.rows = data.train.to(environment.device, environment.dtype)
        self.steps = -(-len(data.train) // self.batch_size)
        self.objective = Objective(config, data.spec)

    def over(self) -> bool:
        """Whether the last epoch is over, or patience is exhausted."""
        position = self.position
        out_of_patience = 0 < self.config.patience <= position.epoch - position.best_epoch
        return position.epoch >= self.epochs or out_of_patience

    def remaining_batches(self) -> tuple[Tensor, ...]:
        """The rows of each remaining step of the epoch."""
        order = batches(len(self.rows), self.batch_size, self.config.seed, self.position.epoch)
        return order[self.position.step :]

    def step(self, rows: Tensor) -> None:
        """Takes one step on these rows; each process computes its share."""
        config, state, position = self.config, self.states[""], self.position
        here = (position.epoch, position.step, parallel.rank())
        self.environment.seed(here)
        mine = parallel.share(rows).to(self.environment.device)
        x, labels = self.rows.inputs[mine], self.rows.labels[mine]
        x = augment(x, config.augment or "none", generator_at(config.seed, *here, 0))
        epochs = position.epoch + (position.step + 0.5) / self.steps
        progress = self.objective.progress = epochs / self.epochs
        set_exponent(state.model, exponent_at(progress))
        if isinstance(self.objective.loss, RampLoss):
            self.objective.loss.weight = cross_entropy_weight(progress)
        with state.step(self.learning_rate()):
            loss, logits = self.objective(state.model, x, labels, here)
            (loss * parallel.share_weight(len(rows))).backward()
            parallel.average_gradients(state.model.parameters())
            if config.arch == "ibp":
                clip_grad_norm_(state.model.parameters(), MAX_GRADIENT)
        if config.parseval_beta:
            parseval_step(state.model, config.parseval_beta)
        correct = (logits.argmax(1) == labels).sum()
        sums = torch.stack([loss.detach().double() * len(mine), correct.double()])
        position.count(len(rows), *parallel.gather(sums.cpu()[None]).sum(0).tolist())

    def learning_rate(self, ahead: int = 0) -> float:
        """The learning rate of the next step, or of a later one."""
        step = self.position.epoch * self.steps + self.position.step + ahead
        return learning_rate(self.config, step, self.steps)

    def end_epoch(self) -> dict[str, Any]:
        """Evaluates, keeps the best weights and starts the next epoch; returns the epoch's row."""
        state, position, config = self.states[""], self.position, self.config
        row: dict[str, Any] = {
            "epoch": position.epoch + 1,
            "loss": position.loss / position.seen,
            "accuracy": position.correct / position.seen,
            "clean": None,
            "certified": None,
            "lr": self.learning_rate(-1),
        }
        exact = update_means(state.model, self.rows.inputs)
        if self.data.validation is None or not exact:
            bound = bound_lipschitz(state.model, config.norm, self.data.spec.shape)
        else:
            assert config.radius is not None
            held_out = self.data.validation.to(self.environment.device, self.environment.dtype)
            evaluation = self._evaluate(state.model, held_out, config.radius)
            bound = evaluation.lipschitz
            row["clean"], row["certified"] = evaluation.clean, evaluation.certified(config.radius)
            if (score := (row["certified"], row["clean"])) > position.best_score:
                position.best_score, position.best_epoch = score, row["epoch"]
                state.remember_best()
        row["lipschitz"] = bound.value
        row["seconds"] = self.count_seconds()
        position.end_epoch(row)
        return row

    def _evaluate(
        self, model: nn.Module, examples: Examples, radius: float | None = None
    ) -> Evaluation:
        """Evaluates with the certification method that the architecture is trained for."""
        method = "interval" if self.config.arch == "ibp" else "lipschitz"
        return evaluate(model, examples, self.config.norm, self.data.spec, method, radius)

    def progress(self, ended: dict[str, Any] | None = None) -> Progress:
        """The progress after a step, or at the end of an epoch with the row `ended`."""
        if ended is not None:
            numbers = ended["epoch"], self.steps, ended["loss"], ended["accuracy"], ended["lr"]
        else:
            now = self.position
            means = now.loss / now.seen, now.correct / now.seen
            numbers = now.epoch + 1, now.step, *means, self.learning_rate(-1)
        epoch, step, loss, accuracy, lr = numbers
        row = self.position.history[-1] if self.position.history else None
        return Progress(epoch, self.epochs, step, self.steps, loss, accuracy, lr, row)

    def finalise(self, source: LabelledData) -> TrainedRun:
        """Evaluates the best weights on the test rows, and writes the network and the result."""
        state, position, config, folder = self.states[""], self.position, self.config, self.folder
        assert config.radius is not None
        if state.best:
            state.model.load_state_dict(state.best)
        model = state.model.eval().cpu()
        test = self.data.test.to(torch.device("cpu"), self.environment.dtype)
        evaluation = self._evaluate(model, test)
        result = {
            "clean": evaluation.clean,
            "certified": evaluation.certified(config.radius),
            "radius": config.radius,
            "norm": config.norm,
            "lipschitz": evaluation.lipschitz.value,
            "median_radius": evaluation.radii.median().item(),
            "test_rows": len(test),
            "epochs": position.epoch,
            "best_epoch": position.best_epoch or position.epoch,
            "processes": parallel.world_size(),
            **self.summary(model),
        }
        if folder is not None and parallel.is_first():
            save(model, folder.model_file, norm=config.norm, input_shape=self.data.spec.shape)
            write_json(folder.result_file, result)
        barrier()
        path = None if folder is None else folder.path
        history = tuple(position.history)
        return TrainedRun(config, model, history, result, self.data.spec, path, source)
