"""Other libraries, imported without their output, if they are installed."""

import io
import warnings
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from types import ModuleType

# Distribution -> module of its layers, module of its activations.
PEERS = {
    "deel-torchlip": ("deel.torchlip", "deel.torchlip"),
    "orthogonium": ("orthogonium.layers.linear", "orthogonium.layers.custom_activations"),
}
# Distribution, module and name of convolutions.
CONVOLUTIONS = (
    ("deel-torchlip", "deel.torchlip", "SpectralConv2d"),
    ("orthogonium", "orthogonium.layers.conv.AOC", "AdaptiveOrthoConv2d"),
    ("orthogonium", "orthogonium.layers.conv.AOL", "AOLConv2D"),
)


def import_peer(module: str) -> ModuleType | None:
    """The module, or None if it cannot be imported; suppresses its output and warnings."""
    silence = io.StringIO()
    with warnings.catch_warnings(), redirect_stdout(silence), redirect_stderr(silence):
        warnings.simplefilter("ignore")
        try:
            return import_module(module)
        except ImportError:
            return None


def explain_missing() -> list[str]:
    """A sentence for each library that cannot be imported."""
    return [
        f"{peer}: not installed (pip install 'src/taut_lab[peers]')"
        for peer, modules in PEERS.items()
        if any(import_peer(module) is None for module in modules)
    ]
