"""The packages that only pages need."""

from taut.errors import require

__all__ = ["check_extras"]


def check_extras() -> None:
    """Raises now if a page could not be drawn later, before any long work is done for it."""
    for name in ("matplotlib", "jinja2"):
        require(name, "report", "a page")
