"""What many tests use: seeded generators, and runs of the command."""

import torch
from click.testing import CliRunner, Result

from taut.cli.main import main


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def invoke(*words: object) -> Result:
    """Runs `taut WORDS` in this process; its threads stay as they were."""
    threads = torch.get_num_threads()
    try:
        return CliRunner().invoke(main, [*map(str, words)], prog_name="taut")
    finally:
        torch.set_num_threads(threads)
