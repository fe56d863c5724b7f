"""The configuration of `taut train`: a file first, then what was typed, with no word ignored."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.errors import ArgumentError

if TYPE_CHECKING:
    from taut.training import TrainConfig

__all__ = ["configure"]

# What `taut.training.resolve` derives from each field. A run stores what was derived, so a file
# cannot tell it from what was asked for.
_FOLLOWERS = {
    "norm": ("radius", "lipschitz", "constraint", "optimizer", "lr", "margin", "temperature"),
    "radius": ("margin", "temperature"),
    "lipschitz": ("lr", "margin", "temperature"),
    "loss": ("lr", "margin", "temperature"),
    "margin": ("temperature",),
    "optimizer": ("lr",),
    "arch": ("channels", "constraint"),
}


def configure(path: Path | None, given: dict[str, Any]) -> tuple["TrainConfig", str]:
    """The configuration, and a sentence on what of the file no longer holds, or none.

    Args:
        path: of a TOML file.
        given: every option of the command, typed or not.

    Raises:
        ArgumentError: the file is no configuration.
        click.UsageError: an option was typed that the others leave without effect.
    """
    from click.core import ParameterSource

    from taut.training import TrainConfig, from_toml

    config, said = TrainConfig(threads=given["threads"]), ""
    context = click.get_current_context()
    typed = {
        name: value
        for name, value in given.items()
        if value is not None and context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    if path is not None:
        try:
            config = from_toml(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise ArgumentError(f"train: --config must be a TOML text; {path} is none.") from error
        config, said = _without_followers(config, typed)
    config = replace(config, **typed)
    _refuse_idle(config, typed)
    return config, said


def _without_followers(config: "TrainConfig", typed: dict[str, Any]) -> tuple["TrainConfig", str]:
    """The configuration with those fields open that followed from one that is typed over."""
    leaders = [n for n in _FOLLOWERS if n in typed and getattr(config, n) not in (None, typed[n])]
    followers = dict.fromkeys(f for n in leaders for f in _FOLLOWERS[n] if f not in typed)
    derived = [name for name in followers if _is_derived(config, name)]
    if not derived:
        return config, ""
    options = " and ".join(f"--{name}" for name in leaders)
    held = ", ".join(f"{name} (was {getattr(config, name)})" for name in derived)
    unset: dict[str, Any] = {name: _unset(name) for name in derived}
    return replace(config, **unset), f"For {options}, not as in the file but chosen anew: {held}."


def _is_derived(config: "TrainConfig", name: str) -> bool:
    """Whether the file holds just what would be chosen were the field left out."""
    from taut.data import load_labelled
    from taut.training import resolve

    value = getattr(config, name)
    if value == _unset(name):
        return False
    unset: dict[str, Any] = {name: _unset(name), "augment": "none"}
    # None of these fields depends on the data, so any images will do.
    return getattr(resolve(replace(config, **unset), load_labelled("digits")), name) == value


def _unset(name: str) -> Any:
    return () if name == "channels" else None


def _refuse_idle(config: "TrainConfig", typed: dict[str, Any]) -> None:
    """Raises for an option that would be read by nobody: a run that ignores it would mislead."""
    loss = config.loss or "cross_entropy"
    rules = {
        "milestones": (config.schedule == "step", "--schedule step", config.schedule),
        "decay": (config.schedule == "step", "--schedule step", config.schedule),
        "channels": (config.arch != "dense", "--arch conv, lenet or wrn", config.arch),
        "alpha": (loss == "hkr", "--loss hkr", loss),
        "temperature": (loss == "cross_entropy", "--loss cross_entropy", loss),
        "adversarial_steps": (config.adversarial_radius > 0, "--adversarial RADIUS", "none"),
    }
    for name, (used, needed, now) in rules.items():
        if name in typed and not used:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(
                f"{option} has an effect only with {needed}, and here it is {now}. Add {needed}, "
                f"or leave {option} out."
            )
