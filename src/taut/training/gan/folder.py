"""The folder of a GAN run: that of any run, with pictures of samples and the critic."""

import os

import safetensors.torch
from torch import Tensor

from taut.errors import DamagedFileError
from taut.export import write_atomically
from taut.training.examples import InputSpec
from taut.training.gan.config import GanConfig
from taut.training.run_folder import RunFolder

__all__ = ["GanFolder"]


class GanFolder(RunFolder[GanConfig]):
    """The files of one GAN run: `samples/step-*.png`, `critic.safetensors`, and those of any run.

    Args:
        path: the folder; it need not exist yet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, GanConfig)
        self.samples = self.path / "samples"
        self.critic_file = self.path / "critic.safetensors"

    def open(
        self, requested: GanConfig, resolved: GanConfig, spec: InputSpec, fingerprint: str
    ) -> None:
        """Creates the folder, or checks that the run in it is the same one."""
        super().open(requested, resolved, spec, fingerprint)
        self.samples.mkdir(exist_ok=True)

    def write_generator(self, tensors: dict[str, Tensor]) -> None:
        """Writes the generator's weights atomically."""
        held = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
        write_atomically(self.model_file, safetensors.torch.save(held))

    def read_generator(self) -> dict[str, Tensor]:
        """The generator's weights.

        Raises:
            DamagedFileError: they cannot be read.
        """
        try:
            return safetensors.torch.load(self.model_file.read_bytes())
        except (safetensors.SafetensorError, OSError, ValueError) as error:
            raise DamagedFileError(
                subject="load_gan",
                rule=f"{self.model_file.name} must be readable",
                got=str(error),
                remedy="Train again.",
            ) from error
