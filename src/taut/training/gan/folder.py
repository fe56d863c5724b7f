"""The folder of a GAN run: that of any run, with pictures of samples and the critic beside."""

import os

import safetensors.torch
from torch import Tensor

from taut.errors import DamagedFileError
from taut.export.files import write_atomically
from taut.training.folder import RunFolder
from taut.training.gan.config import GanConfig
from taut.training.inputs import InputSpec

__all__ = ["GanFolder"]


class GanFolder(RunFolder[GanConfig]):
    """The files of one GAN run: `samples/step-*.png`, `critic.safetensors`, and those of any run.

    Args:
        path: the folder; it need not be there yet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, GanConfig)
        self.samples = self.path / "samples"
        self.critic_file = self.path / "critic.safetensors"

    def open(self, config: GanConfig, spec: InputSpec, fingerprint: str) -> None:
        """Makes the folder, or sees that the run in it is the same one."""
        super().open(config, spec, fingerprint)
        self.samples.mkdir(exist_ok=True)

    def write_generator(self, tensors: dict[str, Tensor]) -> None:
        """Writes the generator's weights, all at once."""
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
                f"load_gan: {self.model_file.name} cannot be read ({error}). Train again."
            ) from error
