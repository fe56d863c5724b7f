"""The packages that only some formats need."""

from importlib import import_module
from types import ModuleType

from taut.errors import MissingExtraError

__all__ = ["require"]


def require(name: str, purpose: str) -> ModuleType:
    """The module of that name, or an error that tells how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        package = {"PIL": "pillow"}.get(name.partition(".")[0], name.partition(".")[0])
        raise MissingExtraError(
            f"data: {purpose} needs {package}; install with pip install 'taut[data]'"
        ) from error
