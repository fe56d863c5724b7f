"""`Environment`: device, dtype, threads and random state of a run, restored afterwards."""

from typing import Any

import torch

from taut.training.config import TrainConfig
from taut.training.config_fields import config_error
from taut.training.seeds import seed_at


class Environment:
    """Device, dtype, threads and random state of a resolved configuration, within a `with` block."""

    def __init__(self, config: TrainConfig) -> None:
        self.device = _device(config.device)
        self.dtype = torch.float64 if config.dtype == "float64" else torch.float32
        self.threads = config.threads or torch.get_num_threads()
        self._seed = config.seed

    def __enter__(self) -> "Environment":
        self._threads_before = torch.get_num_threads()
        self._random_state = torch.random.fork_rng(
            [self.device] if self.device.type == "cuda" else []
        )
        self._random_state.__enter__()
        self.use_threads(self.threads)
        return self

    def __exit__(self, *error: Any) -> None:
        self._random_state.__exit__(*error)
        torch.set_num_threads(self._threads_before)

    def use_threads(self, threads: int) -> None:
        """Sets the number of threads, on which the rounding of sums depends."""
        self.threads = threads
        torch.set_num_threads(threads)

    def seed(self, position: tuple[int, ...]) -> None:
        """Seeds torch's own generators, which dropout uses, for a position in the run."""
        number = seed_at(self._seed, *position)
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
        rule = "must be 'auto' or a device that torch finds on this machine"
        raise config_error("device", rule, f"device={name!r}", "Use 'cpu'.") from error
    return device
