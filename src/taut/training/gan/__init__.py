"""Generative adversarial networks whose critic's value is a proven lower bound of a distance."""

from taut.training.gan.config import CRITICS, GanConfig
from taut.training.gan.loop import GanProgress, train_gan
from taut.training.gan.networks import ImageGenerator, build_critic, build_generator
from taut.training.gan.sample_grid import draw_grid
from taut.training.gan.trained_gan import GanRun, load_gan, load_gan_run

__all__ = [
    "CRITICS",
    "GanConfig",
    "GanProgress",
    "GanRun",
    "ImageGenerator",
    "build_critic",
    "build_generator",
    "draw_grid",
    "load_gan",
    "load_gan_run",
    "train_gan",
]
