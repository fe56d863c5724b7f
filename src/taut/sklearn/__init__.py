"""Estimators for scikit-learn: drift with a guarantee, certified classifiers, bounded regressors.

They pass scikit-learn's own checks, so pipelines, searches, cloning and pickling work. Only here is
scikit-learn needed: each name is imported when it is first touched.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from taut.errors import MissingExtraError

__all__ = ["LipschitzClassifier", "LipschitzRegressor", "WassersteinDrift"]

if TYPE_CHECKING:
    from taut.sklearn.classifier import LipschitzClassifier
    from taut.sklearn.drift import WassersteinDrift
    from taut.sklearn.regressor import LipschitzRegressor
else:
    _HOMES = {
        "LipschitzClassifier": "classifier",
        "LipschitzRegressor": "regressor",
        "WassersteinDrift": "drift",
    }

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'taut.sklearn' has no attribute {name!r}")
        try:
            import_module("sklearn")
        except ImportError as error:
            raise MissingExtraError(
                f"taut.sklearn.{name}: needs scikit-learn; install with pip install 'taut[sklearn]'"
            ) from error
        value = getattr(import_module(f"taut.sklearn.{_HOMES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return __all__
