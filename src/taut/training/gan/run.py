"""`GanRun`: a finished GAN run, in memory and from its folder."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taut.errors import DamagedFileError
from taut.training.gan.config import GanConfig
from taut.training.gan.folder import GanFolder
from taut.training.gan.networks import ImageGenerator, build_generator

__all__ = ["GanRun", "freeze", "load_gan", "load_gan_run"]


@dataclass(frozen=True, eq=False)
class GanRun:
    """A finished GAN run.

    Attributes:
        config: the resolved configuration.
        generator: frozen, in evaluation mode, on the CPU.
        history: one row for each `log_every` steps: step, the critic's mean dual value since the
            row before, its proven constant (None where nothing is proven), seconds.
        result: the last row's numbers, steps, times and versions.
        folder: where it is stored, or None.
    """

    config: GanConfig
    generator: ImageGenerator = field(repr=False)
    history: tuple[dict[str, Any], ...] = field(repr=False)
    result: dict[str, Any]
    folder: Path | None = None


def load_gan_run(out: str | os.PathLike[str]) -> GanRun:
    """A finished run from its folder.

    Raises:
        ArgumentError: the folder holds no finished GAN run.
        DamagedFileError: the generator in it is not what was written.
    """
    folder = GanFolder(out)
    config = folder.config()
    result = folder.result()
    generator = build_generator(config, folder.spec().shape)
    try:
        generator.load_state_dict(folder.read_generator())
    except RuntimeError as error:
        raise DamagedFileError(
            f"load_gan: {folder.model_file.name} does not hold the generator that config.toml "
            f"describes ({error}). Train again."
        ) from error
    return GanRun(config, freeze(generator), tuple(folder.history()), result, folder.path)


def load_gan(out: str | os.PathLike[str]) -> ImageGenerator:
    """The frozen generator of a finished run; `.sample(n, generator)` draws images in [-1, 1].

    Raises:
        ArgumentError: the folder holds no finished GAN run.
        DamagedFileError: the generator in it is not what was written.
    """
    return load_gan_run(out).generator


def freeze(generator: ImageGenerator) -> ImageGenerator:
    """The same network, on the CPU, in evaluation mode, learning no more."""
    return generator.cpu().eval().requires_grad_(False)
