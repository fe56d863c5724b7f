import socket
from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest
import torch
from hypothesis import HealthCheck, settings

from taut.training import TrainConfig, train

# Several test processes share few cores.
torch.set_num_threads(1)

# Nothing is timed: a slow machine is not a wrong theorem.
settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("default"), derandomize=False)
settings.load_profile("default")


# Cases of one test that `make test-fast` runs.
_FAST_CASES = 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a test with many cases a few run fast, the same in every run; the others are slow."""
    cases = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for group in cases.values():
        group.sort(key=lambda item: crc32(item.nodeid.encode()))
        for item in group[_FAST_CASES:]:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="session")
def _no_network():
    """The loopback address stays open, for processes of one machine that train together."""
    connect = socket.socket.connect

    def connect_nearby(self, address):
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"no test reaches the network; this one tried {address[0]}")
        return connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect_nearby)
        yield


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory) -> Path:
    """The folder of a small classifier of digits, trained for L2 radius 0.4."""
    out = tmp_path_factory.mktemp("digits") / "a"
    train(TrainConfig(hidden=(16,), epochs=3, batch_size=128, radius=0.4), out)
    return out
