"""Estimators for scikit-learn: drift detection, certified classifiers, regressors, conformal sets.

They pass scikit-learn's own checks, so pipelines, searches, cloning and pickling work. scikit-learn
is imported only when one of them is first used.
"""

from typing import TYPE_CHECKING

from taut.errors import require
from taut.lazy import lazy_names

__all__ = [
    "LipschitzClassifier",
    "LipschitzRegressor",
    "RobustConformalClassifier",
    "RobustConformalRegressor",
    "WassersteinDrift",
    "WassersteinMonitor",
    "certify_pipeline",
]

if TYPE_CHECKING:
    from taut.sklearn.classifier import LipschitzClassifier
    from taut.sklearn.conformal import RobustConformalClassifier, RobustConformalRegressor
    from taut.sklearn.drift import WassersteinDrift
    from taut.sklearn.monitor import WassersteinMonitor
    from taut.sklearn.regressor import LipschitzRegressor
    from taut.sklearn.tolerances import certify_pipeline
else:
    _MODULES = {
        "classifier": "LipschitzClassifier",
        "conformal": "RobustConformalClassifier RobustConformalRegressor",
        "drift": "WassersteinDrift",
        "monitor": "WassersteinMonitor",
        "regressor": "LipschitzRegressor",
        "tolerances": "certify_pipeline",
    }
    _find, __dir__ = lazy_names(__name__, _MODULES)

    def __getattr__(name: str) -> object:
        if name in __all__:
            require("sklearn", "sklearn", f"taut.sklearn.{name}")
        return _find(name)
