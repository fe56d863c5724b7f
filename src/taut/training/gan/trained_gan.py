"""`GanRun`: a finished GAN run, in memory and from its folder."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch

from taut.errors import DamagedFileError
from taut.training.gan.config import GanConfig
from taut.training.gan.networks import ImageGenerator, build_generator
from taut.training.run_folder import RunFolder


class GanFolder(RunFolder[GanConfig]):
    """The files of one GAN run: `samples/step-*.png`, `critic.safetensors`, and those of any run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, GanConfig)
        self.samples = self.path / "samples"
        self.critic_file = self.path / "critic.safetensors"


@dataclass(frozen=True, eq=False)
class GanRun:
    """A finished GAN run.

    Attributes:
        config: the resolved configuration.
        generator: frozen generator, in evaluation mode, on the CPU.
        history: one row for each `log_every` steps: step, the critic's mean dual value since the
            row before, its proven constant (None where nothing is proven), seconds.
        result: the last row's numbers, steps, times and versions.
        folder: folder of the run, or None.
    """

    config: GanConfig
    generator: ImageGenerator = field(repr=False)
    history: tuple[dict[str, Any], ...] = field(repr=False)
    result: dict[str, Any]
    folder: Path | None = None


def load_gan_run(out: str | os.PathLike[str]) -> GanRun:
    """Loads a finished run from its folder.

    Raises:
        ArgumentError: the folder holds no finished GAN run.
        DamagedFileError: the generator in it is not what was written.
    """
    folder = GanFolder(out)
    config = folder.config()
    result = folder.result()
    generator = build_generator(config, folder.spec().shape)
    try:
        generator.load_state_dict(safetensors.torch.load(folder.model_file.read_bytes()))
    except (safetensors.SafetensorError, OSError, ValueError, RuntimeError) as error:
        rule = "must be readable and hold the generator that config.toml describes"
        rule, got = f"{folder.model_file.name} {rule}", str(error)
        raise DamagedFileError("load_gan", rule=rule, got=got, remedy="Train again.") from error
    return GanRun(config, freeze(generator), tuple(folder.history()), result, folder.path)


def load_gan(out: str | os.PathLike[str]) -> ImageGenerator:
    """Loads the frozen generator of a finished run; `load_gan_run` loads the whole run.

    `.sample(n, generator)` draws images in [-1, 1].
    """
    return load_gan_run(out).generator


def freeze(generator: ImageGenerator) -> ImageGenerator:
    """Moves a network to the CPU, in evaluation mode and without gradients."""
    return generator.cpu().eval().requires_grad_(False)
