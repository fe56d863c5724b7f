"""Packages whose public names are imported when they are first used."""

from collections.abc import Callable
from importlib import import_module

__all__ = ["lazy_names"]


def lazy_names(
    package: str, modules: dict[str, str], submodules: str = ""
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` of a package.

    Args:
        package: name of the package.
        modules: for each module of the package the public names that it defines, separated by
            spaces.
        submodules: modules that are themselves public names, separated by spaces.

    Example:
        >>> find, names = lazy_names("json", {"decoder": "JSONDecoder"}, "scanner")
        >>> find("scanner").__name__, find("JSONDecoder").__name__, names()
        ('json.scanner', 'JSONDecoder', ['JSONDecoder', 'scanner'])
    """
    homes = {name: module for module, defined in modules.items() for name in defined.split()}
    public = submodules.split()

    def find(name: str) -> object:
        if name in public:
            return import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(import_module(package), name, value)
        return value

    return find, lambda: sorted([*homes, *public])
