"""`train`: one run, from its configuration to a network with a proven constant."""

import os
from collections.abc import Callable
from typing import Any

from taut import parallel
from taut.audit import bound_lipschitz
from taut.data import LabelledData
from taut.errors import ArgumentError, DamagedFileError
from taut.training.config import TrainConfig
from taut.training.defaults import resolve
from taut.training.evaluation import evaluate
from taut.training.finish import finish
from taut.training.folder import RunFolder
from taut.training.inputs import in_full, load_data, prepare
from taut.training.progress import Progress, Reporter
from taut.training.run import TrainedRun, load_run
from taut.training.session import Session, meet
from taut.training.settings import Settings

__all__ = ["train"]


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
    batch and stay equal to the bit; they need to see the same `out`.

    Args:
        config: what to train; see `TrainConfig`.
        out: the folder of the run; without one nothing is written.
        data: labelled data, instead of what `config.data` names.
        on_progress: called after each step and each epoch, in the first process.
        tensorboard: also write events for TensorBoard (taut[track]) into `out`.

    Returns:
        The run, with the network that was best on validation rows by certified accuracy, then by
        clean accuracy; or the last one where nothing is held out.

    Raises:
        ArgumentError: `out` holds another run, or the data has changed since it began.
        NonFiniteError: training diverged.

    Example:
        >>> run = train(TrainConfig(data="digits", hidden=(32,), epochs=3, lr=0.005))
        >>> run.result["lipschitz"] <= 1 and run.result["clean"] > 0.5
        True
    """
    if tensorboard and out is None:
        raise ArgumentError("train: `tensorboard` needs a folder to write to; got out=None.")
    if data is None:
        config = in_full(config)
        data = load_data(config)
    config = resolve(config, data)
    with parallel.process_group(), Settings(config) as settings:
        prepared = prepare(config, data)
        folder = None if out is None else RunFolder(out)
        if folder is not None:
            if parallel.is_first():
                folder.open(config, prepared.spec, prepared.fingerprint)
            meet()
            run = _finished(folder)
            # All have read by now, so the first may write anew what cannot be read.
            meet()
            if run is not None:
                if tensorboard:
                    Reporter(folder, list(run.history), None, tensorboard).close()
                return run

        session = Session(config, prepared, folder, settings)
        history = session.state.place.history
        reporter = Reporter(folder, history, on_progress, tensorboard)
        while session.state.place.epoch < session.epochs and not _out_of_patience(session):
            for rows in session.rest_of_the_epoch():
                session.step(rows)
                reporter.after_step(_progress(session))
                if session.state.place.step % config.checkpoint_every == 0:
                    session.keep_checkpoint()
            now = _progress(session, _end_epoch(session))
            session.keep_checkpoint()
            reporter.after_epoch(now)
        reporter.close()
        return finish(session, data)


def _finished(folder: RunFolder) -> TrainedRun | None:
    """The run if it has ended; None if it has not, or if the checkpoint must write its end anew."""
    if not folder.finished:
        return None
    try:
        return load_run(folder.path)
    except (ArgumentError, DamagedFileError):
        if folder.read_checkpoint() is None:
            raise
        return None


def _end_epoch(session: Session) -> dict[str, Any]:
    """Evaluates, remembers the best weights, turns the page; returns the epoch's row."""
    state, place, config = session.state, session.state.place, session.config
    row: dict[str, Any] = {
        "epoch": place.epoch + 1,
        "loss": place.loss / place.seen,
        "accuracy": place.correct / place.seen,
        "clean": None,
        "certified": None,
        "lr": session.learning_rate(-1),
    }
    if session.data.validation is None:
        bound = bound_lipschitz(state.model, config.norm, session.data.spec.shape)
    else:
        assert config.radius is not None
        held_out = session.data.validation.to(session.settings.device, session.settings.dtype)
        found = evaluate(state.model, held_out, config.norm)
        bound = found.lipschitz
        row["clean"], row["certified"] = found.clean, found.certified(config.radius)
        if (score := (row["certified"], row["clean"])) > place.best_score:
            place.best_score, place.best_epoch = score, row["epoch"]
            state.remember_best()
    row["lipschitz"] = bound.value
    row["seconds"] = session.count_seconds()
    place.end_epoch(row)
    return row


def _out_of_patience(session: Session) -> bool:
    place = session.state.place
    return 0 < session.config.patience <= place.epoch - place.best_epoch


def _progress(session: Session, row: dict[str, Any] | None = None) -> Progress:
    place = session.state.place
    if row is not None:
        numbers = row["epoch"], session.steps, row["loss"], row["accuracy"], row["lr"]
    else:
        row = place.history[-1] if place.history else None
        means = place.loss / place.seen, place.correct / place.seen
        numbers = place.epoch + 1, place.step, *means, session.learning_rate(-1)
    epoch, step, loss, accuracy, lr = numbers
    return Progress(epoch, session.epochs, step, session.steps, loss, accuracy, lr, row)
