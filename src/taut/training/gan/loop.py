"""`train_gan`: one GAN, from its configuration to a frozen generator."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from platform import python_version
from typing import Any

import torch

from taut.audit import bound_lipschitz
from taut.data import LabelledData
from taut.errors import require
from taut.export import save
from taut.training.environment import Environment
from taut.training.examples import InputSpec, load_data, prepare
from taut.training.gan.config import GanConfig
from taut.training.gan.folder import GanFolder
from taut.training.gan.pictures import write_grid
from taut.training.gan.run import GanRun, freeze, load_gan_run
from taut.training.gan.session import GanSession
from taut.training.progress import Log
from taut.training.run_folder import write_json

__all__ = ["GanProgress", "train_gan"]

_PICTURES = 64


@dataclass(frozen=True)
class GanProgress:
    """Progress of a run, reported after each step of the critic.

    Attributes:
        step: number of steps done.
        steps: total number of steps.
        dual: dual value of the critic on the last batch.
        row: the row of the log, where one was written after this step.
    """

    step: int
    steps: int
    dual: float
    row: dict[str, Any] | None


def train_gan(
    config: GanConfig,
    out: str | os.PathLike[str] | None = None,
    *,
    data: LabelledData | None = None,
    on_progress: Callable[[GanProgress], None] | None = None,
) -> GanRun:
    r"""Trains a generator against a critic of the Wasserstein distance.

    $$\min_G \max_f \; \mathbb{E}_{x} f(x) - \mathbb{E}_{z} f(G(z))$$

    With `critic="lipschitz"` the inner value is at most $W_1$ between the two batches at every
    step, by the proven constant that the log holds beside it; with the other kinds it is a number
    in units of its own.

    Seeded and resumable: the same call again, after an interruption at any moment, resumes from the
    last checkpoint and ends with the same weights to the bit, on the same kind of machine. A
    finished run is not repeated.

    Args:
        config: configuration of the run.
        out: folder of the run: config.toml, resolved.toml, log.jsonl, checkpoint,
            samples/step-*.png (one set of z throughout), model.safetensors (the generator),
            critic.safetensors (with its proof, where there is one), result.json. Without one
            nothing is written.
        data: labelled images, instead of `config.data`; their labels are not used.
        on_progress: called after each step of the critic.

    Returns:
        The run, with a frozen generator.

    Raises:
        ArgumentError: `out` holds another run, the data has changed, or is no images.
        NonFiniteError: training diverged.

    Example:
        >>> sizes = {"width": 2, "critic_hidden": 8, "generator_hidden": 8}
        >>> run = train_gan(GanConfig(data="digits", num_steps=6, log_every=6, **sizes))
        >>> run.history[-1]["lipschitz"] <= 1
        True
        >>> run.generator.sample(2, torch.Generator().manual_seed(0)).shape
        torch.Size([2, 1, 8, 8])
    """
    requested, config = config, config.resolved()
    player = config.player(config.lr)
    with Environment(player) as environment:
        prepared = prepare(player, load_data(player) if data is None else data)
        folder = None if out is None else GanFolder(out)
        if folder is not None:
            require("PIL.Image", "data", "a picture of samples")
            folder.open(requested, config, prepared.spec, prepared.fingerprint)
            if folder.finished:
                return load_gan_run(folder.path)

        session = GanSession(config, prepared, folder, environment)
        log = None if folder is None else Log(folder.log_file, session.position.history, False)
        while session.position.step < config.num_steps:
            dual = session.step()
            step = session.position.step
            last = step == config.num_steps
            row = None
            if last or step % config.log_every == 0:
                row = _end_row(session, prepared.spec)
                if log is not None:
                    log.add(row)
            if folder is not None and (last or step % config.sample_every == 0):
                _draw(session, folder)
            if last or step % config.checkpoint_every == 0:
                session.keep_checkpoint()
            if on_progress is not None:
                on_progress(GanProgress(step, config.num_steps, dual, row))
        return _finish(session, prepared.spec)


def _end_row(session: GanSession, spec: InputSpec) -> dict[str, Any]:
    position = session.position
    row: dict[str, Any] = {
        "step": position.step,
        "dual": position.loss / position.seen,
        "lipschitz": None,
        "seconds": session.count_seconds(),
    }
    if session.config.critic == "lipschitz":
        row["lipschitz"] = bound_lipschitz(session.critic, "l2", spec.shape).value
    position.history.append(row)
    position.loss, position.seen = 0.0, 0
    return row


def _draw(session: GanSession, folder: GanFolder) -> None:
    """A picture of samples from a fixed set of z."""
    fixed = torch.Generator().manual_seed(session.config.seed)
    images = session.generator.sample(_PICTURES, fixed)
    if images.shape[1] in (1, 3):
        write_grid(folder.samples / f"step-{session.position.step:06d}.png", images)


def _finish(session: GanSession, spec: InputSpec) -> GanRun:
    position, folder, config = session.position, session.folder, session.config
    generator = freeze(session.generator)
    row = position.history[-1]
    result: dict[str, Any] = {
        "dual": row["dual"],
        "lipschitz": row["lipschitz"],
        "steps": position.step,
        "seconds": session.count_seconds(),
        "parameters": sum(p.numel() for p in generator.parameters()),
        "critic_parameters": sum(p.numel() for p in session.critic.parameters()),
        "train_rows": len(session.images),
        "threads": session.environment.threads,
        "device": str(session.environment.device),
        "fingerprint": session.fingerprint,
        "versions": {
            "python": python_version(),
            **{name: version(name) for name in ("taut", "torch", "numpy")},
        },
    }
    if folder is not None:
        folder.write_generator(generator.state_dict())
        if config.critic == "lipschitz":
            critic = session.critic.cpu().eval()
            save(critic, folder.critic_file, norm="l2", input_shape=spec.shape)
        write_json(folder.result_file, result)
    path = None if folder is None else folder.path
    return GanRun(config, generator, tuple(position.history), result, path)
