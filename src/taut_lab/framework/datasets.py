"""The datasets of the experiments: the official ones, and a part of CIFAR-10."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from taut.data import OFFICIAL_SETS, LabelledData, data_folder, load_labelled

# 20,000 training and 5,000 test images, equally many of each class.
CIFAR_PART = "cifar10-25k"
_FILES = {CIFAR_PART: Path("cifar-10", "cifar-10-binary-25k.tar.gz")}


def load_dataset(name: str, data_dir: str | None = None) -> LabelledData:
    """The dataset of that name, from a folder, by default that in the variable `TAUT_DATA`."""
    file = _FILES.get(name)
    if file is None:
        return load_labelled(name, data_dir=data_dir)
    return load_labelled(data_folder(data_dir) / file)


def datasets_of(config: Mapping[str, Any]) -> set[str]:
    """The datasets that a configuration names under "data" and that have to be downloaded.

    Example:
        >>> datasets_of({"training": {"data": "mnist"}, "seed": 0}), datasets_of({"data": "digits"})
        ({'mnist'}, set())
    """
    names: set[str] = set()
    for field, value in config.items():
        if isinstance(value, Mapping):
            names |= datasets_of(value)
        elif field == "data" and value in (*OFFICIAL_SETS, *_FILES):
            names.add(value)
    return names


def missing_data(names: Iterable[str], data_dir: str | None = None) -> dict[str, str]:
    """The datasets that cannot be found, each with a sentence that says what to do."""
    folder, remedy = data_folder(data_dir), "pass --data-dir or set TAUT_DATA"
    reasons: dict[str, str] = {}
    for name in names:
        official = OFFICIAL_SETS.get(name)
        if official is None:
            if not (folder / _FILES[name]).exists():
                reasons[name] = f"{folder / _FILES[name]} is missing; {remedy}."
        elif any(official.find(file, folder) is None for file in official.files):
            download = f"or download it: taut data fetch {name}."
            reasons[name] = f"{official.title} is not in {folder}; {remedy}, {download}"
    return reasons
