"""Training of classifiers with certified predictions, and of GANs, from a configuration."""

from typing import TYPE_CHECKING

from taut.lazy import lazy_names

__all__ = [
    "ARCHITECTURES",
    "Configuration",
    "Evaluation",
    "Examples",
    "FieldType",
    "GanConfig",
    "GanRun",
    "InputSpec",
    "Prepared",
    "Progress",
    "RunFolder",
    "TrainConfig",
    "TrainedRun",
    "architecture_of",
    "augment",
    "build_network",
    "certify_inputs",
    "evaluate",
    "feature_tolerances",
    "field_docs",
    "field_types",
    "fit",
    "from_toml",
    "load_data",
    "load_gan",
    "load_run",
    "parse_tolerances",
    "prepare",
    "resolve",
    "to_toml",
    "train",
    "train_gan",
    "write_tolerances",
]

if TYPE_CHECKING:
    from taut.training.architectures import ARCHITECTURES, build_network
    from taut.training.augmentation import augment
    from taut.training.column_tolerances import (
        feature_tolerances,
        parse_tolerances,
        write_tolerances,
    )
    from taut.training.config import TrainConfig, from_toml, to_toml
    from taut.training.config_fields import Configuration, FieldType, field_docs, field_types
    from taut.training.data_preparation import Examples, InputSpec, Prepared, load_data, prepare
    from taut.training.defaults import architecture_of, resolve
    from taut.training.evaluation import Evaluation, certify_inputs, evaluate
    from taut.training.fitting import fit
    from taut.training.gan import GanConfig, GanRun, load_gan, train_gan
    from taut.training.loop import train
    from taut.training.progress import Progress
    from taut.training.run_folder import RunFolder
    from taut.training.trained_run import TrainedRun, load_run
else:
    _MODULES = {
        "architectures": "ARCHITECTURES build_network",
        "augmentation": "augment",
        "config": "TrainConfig from_toml to_toml",
        "config_fields": "Configuration FieldType field_docs field_types",
        "defaults": "architecture_of resolve",
        "evaluation": "Evaluation certify_inputs evaluate",
        "data_preparation": "Examples InputSpec Prepared load_data prepare",
        "fitting": "fit",
        "gan": "GanConfig GanRun load_gan train_gan",
        "loop": "train",
        "progress": "Progress",
        "column_tolerances": "feature_tolerances parse_tolerances write_tolerances",
        "trained_run": "TrainedRun load_run",
        "run_folder": "RunFolder",
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
