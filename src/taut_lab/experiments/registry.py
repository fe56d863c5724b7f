"""All experiments by name, in the order of the paper."""

from taut.errors import check_choice
from taut_lab.experiments import (
    absolute_value,
    activation_statistics,
    adversarial_robustness,
    bjorck_against_spectral,
    bjorck_convergence,
    bjorck_runtime,
    cifar_classify,
    dynamical_isometry,
    folding,
    gan_samples,
    generator_distance,
    interpretable_gradients,
    jacobian_norms,
    mnist_classify,
    network_views,
    prob_dim,
    small_mnist,
    three_cones,
    tradeoff,
)
from taut_lab.framework.experiment import Experiment

__all__ = ["EXPERIMENTS", "find_experiment"]

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        folding,
        absolute_value,
        three_cones,
        prob_dim,
        jacobian_norms,
        activation_statistics,
        generator_distance,
        adversarial_robustness,
        interpretable_gradients,
        network_views,
        bjorck_convergence,
        bjorck_against_spectral,
        bjorck_runtime,
        mnist_classify,
        small_mnist,
        cifar_classify,
        dynamical_isometry,
        gan_samples,
        tradeoff,
    )
}


def find_experiment(name: str) -> Experiment:
    """The experiment of that name.

    Example:
        >>> find_experiment("three-cones").name
        'three-cones'
    """
    check_choice("find_experiment", "name", name, tuple(EXPERIMENTS))
    return EXPERIMENTS[name]
