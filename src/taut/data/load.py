"""`load_labelled`: a data set by its name or its path."""

import difflib
import os

from taut.data.digits import read_digits
from taut.data.formats import PathLike
from taut.data.idx_pairs import read_known_idx
from taut.data.known import KNOWN, KnownSet, data_folder
from taut.data.labelled import LabelledData
from taut.errors import ArgumentError

__all__ = ["load_labelled"]


def load_labelled(
    name_or_path: PathLike,
    *,
    data_dir: PathLike | None = None,
    label: str | int | None = None,
    test: PathLike | None = None,
    download: bool = False,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> LabelledData:
    """Training and test part of a labelled data set.

    Args:
        name_or_path: `"digits"`, which comes with taut; `"mnist"`, `"fashion-mnist"` or
            `"cifar10"`, in their official files, each read only after its checksum; or a path.
        data_dir: where the named sets are looked for, also in a folder of the set's name in it;
            without it the variable `TAUT_DATA` says where, or else the user's cache.
        label: the column of the classes, by name or by position.
        test: a second file, of what to test on.
        download: fetches what is not there yet.
        test_fraction: the share of the test part where the data has none of its own.
        seed: decides that part.

    Example:
        >>> data = load_labelled("digits")
        >>> data.train.inputs.shape, data.test.inputs.shape, data.train.high
        ((1438, 1, 8, 8), (359, 1, 8, 8), 1.0)
    """
    name = os.fspath(name_or_path)
    if name.lower() == "digits":
        train, rest = read_digits().split(test_fraction, seed)
        return LabelledData(train, rest, "digits")
    if known := KNOWN.get(name.lower()):
        return _load_known(known, data_dir, download)
    near = difflib.get_close_matches(name.lower(), ["digits", *KNOWN], n=1)
    raise ArgumentError(
        f"load_labelled: `name_or_path` must be digits, {', '.join(KNOWN)}, or a file or folder "
        f"that is there; got {name!r}.{f' Did you mean {near[0]!r}?' if near else ''}"
    )


def _load_known(known: KnownSet, data_dir: PathLike | None, download: bool) -> LabelledData:
    folder = data_folder(data_dir)
    found = {file.name: known.find(file, folder) for file in known.files}
    if missing := [name for name, path in found.items() if path is None]:
        raise ArgumentError(
            f"load_labelled: the files of {known.title} must be in {folder / known.name} or "
            f"{folder}; {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not there. "
            f"Pass data_dir or set TAUT_DATA to where they are, or fetch them: "
            f"taut data fetch {known.name}."
        )
    train, rest = read_known_idx(known, {name: path for name, path in found.items() if path})
    return LabelledData(train, rest, known.name)
