"""`train`: one run, from its configuration to a certified network."""

import os
from collections.abc import Callable
from typing import Any

from taut import parallel
from taut.audit import bound_lipschitz
from taut.data import LabelledData
from taut.errors import ArgumentError, DamagedFileError
from taut.training.config import TrainConfig
from taut.training.defaults import resolve
from taut.training.environment import Environment
from taut.training.evaluation import evaluate
from taut.training.examples import load_data, prepare, with_absolute_paths
from taut.training.finalise import finalise
from taut.training.progress import Progress, Reporter
from taut.training.run import TrainedRun, load_run
from taut.training.run_folder import RunFolder
from taut.training.session import Session, barrier

__all__ = ["train"]


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
        rule = "needs a folder to write to"
        raise ArgumentError(subject="train", argument="tensorboard", rule=rule, got="out=None")
    if data is None:
        config = with_absolute_paths(config)
        data = load_data(config)
    requested, config = config, resolve(config, data)
    with parallel.process_group(), Environment(config) as environment:
        prepared = prepare(config, data)
        folder = None if out is None else RunFolder(out)
        if folder is not None:
            if parallel.is_first():
                folder.open(requested, config, prepared.spec, prepared.fingerprint)
            barrier()
            run = _finished(folder)
            # All have read by now, so the first may rewrite what cannot be read.
            barrier()
            if run is not None:
                if tensorboard:
                    Reporter(folder, list(run.history), None, tensorboard).close()
                return run

        session = Session(config, prepared, folder, environment)
        history = session.state.position.history
        reporter = Reporter(folder, history, on_progress, tensorboard)
        while session.state.position.epoch < session.epochs and not _out_of_patience(session):
            for rows in session.remaining_batches():
                session.step(rows)
                reporter.report(_progress(session))
                if session.state.position.step % config.checkpoint_every == 0:
                    session.keep_checkpoint()
            row = _end_epoch(session)
            now = _progress(session, row)
            session.keep_checkpoint()
            reporter.report(now, row)
        reporter.close()
        return finalise(session, data)


def _finished(folder: RunFolder) -> TrainedRun | None:
    """The run if it is finished; None if not, or if its end must be repeated from the checkpoint."""
    if not folder.finished:
        return None
    try:
        return load_run(folder.path)
    except (ArgumentError, DamagedFileError):
        if folder.read_checkpoint() is None:
            raise
        return None


def _end_epoch(session: Session) -> dict[str, Any]:
    """Evaluates, keeps the best weights and starts the next epoch; returns the epoch's row."""
    state, position, config = session.state, session.state.position, session.config
    row: dict[str, Any] = {
        "epoch": position.epoch + 1,
        "loss": position.loss / position.seen,
        "accuracy": position.correct / position.seen,
        "clean": None,
        "certified": None,
        "lr": session.learning_rate(-1),
    }
    if session.data.validation is None:
        bound = bound_lipschitz(state.model, config.norm, session.data.spec.shape)
    else:
        assert config.radius is not None
        held_out = session.data.validation.to(session.environment.device, session.environment.dtype)
        found = evaluate(state.model, held_out, config.norm)
        bound = found.lipschitz
        row["clean"], row["certified"] = found.clean, found.certified(config.radius)
        if (score := (row["certified"], row["clean"])) > position.best_score:
            position.best_score, position.best_epoch = score, row["epoch"]
            state.remember_best()
    row["lipschitz"] = bound.value
    row["seconds"] = session.count_seconds()
    position.end_epoch(row)
    return row


def _out_of_patience(session: Session) -> bool:
    position = session.state.position
    return 0 < session.config.patience <= position.epoch - position.best_epoch


def _progress(session: Session, row: dict[str, Any] | None = None) -> Progress:
    position = session.state.position
    if row is not None:
        numbers = row["epoch"], session.steps, row["loss"], row["accuracy"], row["lr"]
    else:
        row = position.history[-1] if position.history else None
        means = position.loss / position.seen, position.correct / position.seen
        numbers = position.epoch + 1, position.step, *means, session.learning_rate(-1)
    epoch, step, loss, accuracy, lr = numbers
    return Progress(epoch, session.epochs, step, session.steps, loss, accuracy, lr, row)
