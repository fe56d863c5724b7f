"""Training: a configuration in, a classifier with a proven radius for each prediction out."""

from taut.training.architectures import ARCHITECTURES, build_network
from taut.training.augmentation import augment
from taut.training.config import TrainConfig
from taut.training.defaults import resolve
from taut.training.evaluation import Evaluation, evaluate
from taut.training.gan import GanConfig, GanRun, load_gan, train_gan
from taut.training.inputs import Examples, InputSpec, Prepared, load_data, prepare
from taut.training.loop import train
from taut.training.progress import Progress
from taut.training.recipes import little_data_recipe, wide_residual_recipe
from taut.training.run import TrainedRun, load_run
from taut.training.toml import from_toml, to_toml

__all__ = [
    "ARCHITECTURES",
    "Evaluation",
    "Examples",
    "GanConfig",
    "GanRun",
    "InputSpec",
    "Prepared",
    "Progress",
    "TrainConfig",
    "TrainedRun",
    "augment",
    "build_network",
    "evaluate",
    "from_toml",
    "little_data_recipe",
    "load_data",
    "load_gan",
    "load_run",
    "prepare",
    "resolve",
    "to_toml",
    "train",
    "train_gan",
    "wide_residual_recipe",
]
