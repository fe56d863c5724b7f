"""The other libraries: imported quietly, and missed without fuss."""

import io
import warnings
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from types import ModuleType

__all__ = ["PEERS", "explain_missing", "import_peer"]

# Distribution -> the module that has its layers, and the one that has its activations.
PEERS = {
    "deel-torchlip": ("deel.torchlip", "deel.torchlip"),
    "orthogonium": ("orthogonium.layers.linear", "orthogonium.layers.custom_activations"),
}


def import_peer(module: str) -> ModuleType | None:
    """The module, or None if it cannot be imported; what it prints or warns of is dropped."""
    silence = io.StringIO()
    with warnings.catch_warnings(), redirect_stdout(silence), redirect_stderr(silence):
        warnings.simplefilter("ignore")
        try:
            return import_module(module)
        except ImportError:
            return None


def explain_missing() -> list[str]:
    """One line for each peer that cannot take part."""
    return [
        f"{peer}: not installed (pip install 'taut[bench]')"
        for peer, modules in PEERS.items()
        if any(import_peer(module) is None for module in modules)
    ]
