"""Neural networks with a proven Lipschitz constant, certified radii and Wasserstein distances.

The public names live here. Each is imported when it is first used, so that `import taut` and
`taut --help` are fast.
"""

import logging
from typing import TYPE_CHECKING

from taut.lazy import lazy_names

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
    "bound_outputs",
    "bounds",
    "certificates",
    "certify",
    "data",
    "errors",
    "evaluation",
    "export",
    "fold",
    "functional",
    "lattice",
    "linalg",
    "load",
    "losses",
    "names",
    "nn",
    "norms",
    "optim",
    "parallel",
    "regularizers",
    "rules",
    "save",
    "sklearn",
    "training",
    "transport",
    "wasserstein",
]

# Silent unless the application configures logging.
logging.getLogger("taut").addHandler(logging.NullHandler())

if TYPE_CHECKING:
    from taut import (
        attacks,
        audit,
        bounds,
        certificates,
        data,
        errors,
        evaluation,
        export,
        functional,
        lattice,
        linalg,
        losses,
        names,
        nn,
        norms,
        optim,
        parallel,
        regularizers,
        rules,
        sklearn,
        training,
        transport,
    )
    from taut.audit import bound_lipschitz
    from taut.bounds import Bound, Estimate, Interval
    from taut.certificates import Certificates, bound_outputs, certify
    from taut.errors import TautError, TautWarning
    from taut.export import fold, load, save
    from taut.norms import L1, L2, LINF, Norm
    from taut.transport import wasserstein

    __version__: str
else:
    _MODULES = {
        "audit": "bound_lipschitz",
        "bounds": "Bound Estimate Interval",
        "certificates": "Certificates bound_outputs certify",
        "errors": "TautError TautWarning",
        "export": "fold load save",
        "norms": "L1 L2 LINF Norm",
        "transport": "wasserstein",
    }
    _find, __dir__ = lazy_names("taut", _MODULES, __all__)

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("taut")
        return _find(name)
