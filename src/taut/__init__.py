"""Lipschitz networks that use all of their slope, with numbers you can prove.

The public names live here. Each is imported when it is first touched, so that `import taut` and
`taut --help` answer at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "L1",
    "L2",
    "LINF",
    "Bound",
    "Certificates",
    "Estimate",
    "Interval",
    "Norm",
    "TautError",
    "TautWarning",
    "__version__",
    "attacks",
    "audit",
    "bound_lipschitz",
    "bounds",
    "certificates",
    "certify",
    "data",
    "errors",
    "export",
    "fold",
    "functional",
    "lattice",
    "linalg",
    "load",
    "losses",
    "nn",
    "norms",
    "optim",
    "parallel",
    "regularizers",
    "save",
    "sklearn",
    "training",
    "wasserstein",
]

if TYPE_CHECKING:
    from taut import (
        attacks,
        audit,
        bounds,
        certificates,
        data,
        errors,
        export,
        functional,
        lattice,
        linalg,
        losses,
        nn,
        norms,
        optim,
        parallel,
        regularizers,
        sklearn,
        training,
        wasserstein,
    )
    from taut.audit import bound_lipschitz
    from taut.bounds import Bound, Estimate, Interval
    from taut.certificates import Certificates, certify
    from taut.errors import TautError, TautWarning
    from taut.export import fold, load, save
    from taut.norms import L1, L2, LINF, Norm

    __version__: str
else:
    # The module of each name that is not itself a module.
    _HOMES = {
        "L1": "norms",
        "L2": "norms",
        "LINF": "norms",
        "Bound": "bounds",
        "Certificates": "certificates",
        "Estimate": "bounds",
        "Interval": "bounds",
        "Norm": "norms",
        "TautError": "errors",
        "TautWarning": "errors",
        "bound_lipschitz": "audit",
        "certify": "certificates",
        "fold": "export",
        "load": "export",
        "save": "export",
    }

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'taut' has no attribute {name!r}")
        if name == "__version__":
            value = import_module("importlib.metadata").version("taut")
        else:
            value = import_module(f"taut.{_HOMES.get(name, name)}")
            if name in _HOMES:
                value = getattr(value, name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return __all__
