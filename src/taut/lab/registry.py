"""The experiments by name; each lives in its own file and is imported only when asked for."""

from importlib import import_module

from taut.errors import check_choice
from taut.lab.experiment import Experiment

__all__ = ["EXPERIMENTS", "find_experiment"]

# In the order of the paper. The file is the name with underscores; it holds one EXPERIMENT.
EXPERIMENTS: tuple[str, ...] = (
    "folding",
    "absolute-value",
    "three-cones",
    "prob-dim",
    "jacobian-norms",
    "activation-statistics",
    "generator-distance",
    "adversarial-robustness",
    "interpretable-gradients",
    "network-views",
    "bjorck-convergence",
    "bjorck-against-spectral",
    "bjorck-runtime",
    "mnist-classify",
    "small-mnist",
    "cifar-classify",
    "dynamical-isometry",
    "gan-samples",
    "tradeoff",
)


def find_experiment(name: str) -> Experiment:
    """The experiment of that name."""
    check_choice("find_experiment", "name", name, EXPERIMENTS)
    return import_module(f"taut.lab.{name.replace('-', '_')}").EXPERIMENT
