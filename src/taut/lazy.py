"""Packages whose public names are imported when they are first used."""

from collections.abc import Callable, Sequence
from importlib import import_module

__all__ = ["lazy_names"]


def lazy_names(
    package: str, modules: dict[str, str], submodules: Sequence[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` of a package.

    Args:
        package: name of the package.
        modules: for each module of the package the public names that it defines, separated by
            spaces.
        submodules: public names that are modules themselves, unless `modules` has them.

    Example:
        >>> find, names = lazy_names("json", {"decoder": "JSONDecoder"}, ["scanner"])
        >>> find("scanner").__name__, find("JSONDecoder").__name__, names()
        ('json.scanner', 'JSONDecoder', ['JSONDecoder', 'scanner'])
    """
    homes = {name: module for module, defined in modules.items() for name in defined.split()}

    def find(name: str) -> object:
        if name in homes:
            value = getattr(import_module(f"{package}.{homes[name]}"), name)
            setattr(import_module(package), name, value)
            return value
        if name in submodules:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, lambda: sorted({*homes, *submodules})
