"""Accuracy against radius: what is proven of a classifier, and what attacks leave of it."""

from taut.evaluation.derivatives import (
    input_gradients,
    jacobian_norms,
    jacobian_singular_values,
    jacobians,
    values_and_gradient_norms,
)
from taut.evaluation.evaluated_classifier import EvaluatedClassifier, evenly_spaced_rows
from taut.evaluation.robustness import ATTACKS, RobustnessResult, evaluate_robustness

__all__ = [
    "ATTACKS",
    "EvaluatedClassifier",
    "RobustnessResult",
    "evaluate_robustness",
    "evenly_spaced_rows",
    "input_gradients",
    "jacobian_norms",
    "jacobian_singular_values",
    "jacobians",
    "values_and_gradient_norms",
]
