"""The packages that only pages need."""

from importlib import import_module
from types import ModuleType

from taut.errors import MissingExtraError

__all__ = ["check_extras", "require"]


def require(name: str) -> ModuleType:
    """The module of that name, or an error that tells how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            "report: needs matplotlib and jinja2; install with pip install 'taut[report]'"
        ) from error


def check_extras() -> None:
    """Raises now if a page could not be drawn later, before any long work is done for it."""
    require("matplotlib")
    require("jinja2")
