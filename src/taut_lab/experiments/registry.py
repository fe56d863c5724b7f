"""All experiments by name, in the order of the paper."""

from taut.errors import check_choice
from taut_lab.experiments import (
    accuracy_tradeoff,
    activation_statistics,
    adversarial_robustness,
    bjorck_against_spectral,
    bjorck_convergence,
    bjorck_runtime,
    cifar_classification,
    cone_dimensions,
    gan_samples,
    generator_distance,
    interpretable_gradients,
    jacobians,
    line_and_plane_critics,
    linf_frontier,
    mnist_classification,
    network_views,
    plane_folding,
    small_mnist,
)
from taut_lab.framework.experiment import Experiment

__all__ = ["EXPERIMENTS", "find_experiment"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        plane_folding.EXPERIMENT,
        line_and_plane_critics.ABSOLUTE_VALUE,
        line_and_plane_critics.THREE_CONES,
        cone_dimensions.EXPERIMENT,
        jacobians.JACOBIAN_NORMS,
        activation_statistics.EXPERIMENT,
        generator_distance.EXPERIMENT,
        adversarial_robustness.EXPERIMENT,
        interpretable_gradients.EXPERIMENT,
        network_views.EXPERIMENT,
        bjorck_convergence.EXPERIMENT,
        bjorck_against_spectral.EXPERIMENT,
        bjorck_runtime.EXPERIMENT,
        mnist_classification.EXPERIMENT,
        small_mnist.EXPERIMENT,
        cifar_classification.EXPERIMENT,
        jacobians.DYNAMICAL_ISOMETRY,
        gan_samples.EXPERIMENT,
        accuracy_tradeoff.EXPERIMENT,
        linf_frontier.EXPERIMENT,
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
