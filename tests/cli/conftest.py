from pathlib import Path

import pytest

from taut.training import TrainConfig, train


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory) -> Path:
    """The folder of a small classifier of digits, trained for L2 radius 0.4."""
    out = tmp_path_factory.mktemp("digits") / "a"
    train(TrainConfig(hidden=(16,), epochs=3, batch_size=128, radius=0.4), out)
    return out
