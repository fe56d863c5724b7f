import socket

import pytest
import torch
from hypothesis import HealthCheck, settings

# Several test processes share few cores.
torch.set_num_threads(1)

# Nothing is timed: a slow machine is not a wrong theorem.
settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("default"), derandomize=False)
settings.load_profile("default")


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
