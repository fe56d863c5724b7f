"""`Settings`: the machine as a run wants it, and afterwards as it was."""

from typing import Any

import torch

from taut.errors import ArgumentError
from taut.training.chance import number_at
from taut.training.config import TrainConfig

__all__ = ["Settings"]


class Settings:
    """Device, dtype, threads and chance of a run, for the time of a `with` block.

    Args:
        config: resolved.
    """

    def __init__(self, config: TrainConfig) -> None:
        self.device = _device(config.device)
        self.dtype = torch.float64 if config.dtype == "float64" else torch.float32
        self.threads = config.threads or torch.get_num_threads()
        self._seed = config.seed

    def __enter__(self) -> "Settings":
        self._threads_before = torch.get_num_threads()
        self._chance = torch.random.fork_rng([self.device] if self.device.type == "cuda" else [])
        self._chance.__enter__()
        self.use_threads(self.threads)
        return self

    def __exit__(self, *error: Any) -> None:
        self._chance.__exit__(*error)
        torch.set_num_threads(self._threads_before)

    def use_threads(self, threads: int) -> None:
        """Sums are split over threads, so their number is part of what makes two runs equal."""
        self.threads = threads
        torch.set_num_threads(threads)

    def go_to(self, place: tuple[int, ...]) -> None:
        """Sets torch's own chance, which dropout draws from, to that of a place in the run."""
        number = number_at(self._seed, *place)
        # `torch.manual_seed` looks at the whole call stack where there is no GPU.
        torch.default_generator.manual_seed(number)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(number)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)  # torch takes any name, and fails where it is used
    except (RuntimeError, AssertionError) as error:
        raise ArgumentError(
            "TrainConfig: `device` must be 'auto' or a device that torch finds on this machine; got "
            f"device={name!r}. Use 'cpu'."
        ) from error
    return device
