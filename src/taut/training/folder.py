"""The folder of a run: what is in it, when it is written, and whose it is.

`inputs.json` and `config.toml` are written first, then `checkpoint.safetensors` and `log.jsonl` as
training goes on, then `model.safetensors` and last of all `result.json`, which says that the run
is finished. Each file is complete or not there, whenever the process dies.
"""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic

import safetensors
import safetensors.torch
from torch import Tensor

from taut.errors import ArgumentError, DamagedFileError
from taut.export.files import write_atomically
from taut.training.config import TrainConfig
from taut.training.inputs import InputSpec, in_full
from taut.training.toml import Kind, from_toml, to_toml

__all__ = ["RunFolder"]

_SUBJECT = "train"


class RunFolder(Generic[Kind]):
    """The files of one run.

    Args:
        path: the folder; it need not be there yet.
        kind: the class of its configuration.
    """

    def __init__(self, path: str | os.PathLike[str], kind: type[Kind] = TrainConfig) -> None:
        self.path = Path(path)
        self.kind = kind
        self.config_file = self.path / "config.toml"
        self.inputs_file = self.path / "inputs.json"
        self.checkpoint_file = self.path / "checkpoint.safetensors"
        self.log_file = self.path / "log.jsonl"
        self.model_file = self.path / "model.safetensors"
        self.result_file = self.path / "result.json"

    @property
    def finished(self) -> bool:
        """Whether a run has ended here."""
        return self.result_file.exists()

    def open(self, config: Kind, spec: InputSpec, fingerprint: str) -> None:
        """Makes the folder, or sees that the run in it is the same one.

        Where a run ended before it kept anything, as a wrong option ends it, another may begin.

        Args:
            config: of the run.
            spec: what its network expects.
            fingerprint: of its data.

        Raises:
            ArgumentError: there is a run with another configuration or on other data; the text
                names what differs.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        kept = self.checkpoint_file.exists() or self.finished
        if self.config_file.exists():
            if kept:
                self.check_same(config)
                self.check_data(fingerprint, self._held_fingerprint())
        elif foreign := [entry.name for entry in self.path.iterdir() if not self._is_own(entry)]:
            raise ArgumentError(
                f"{_SUBJECT}: `out` must be a new or empty folder, or that of a run; {self.path} "
                f"holds {foreign[0]} and no config.toml. Choose another folder."
            )
        for leftover in self._leftovers():
            leftover.unlink(missing_ok=True)
        if not kept or not self._is_readable(self.spec):
            write_json(self.inputs_file, spec.to_dict())
        write_atomically(self.config_file, to_toml(config).encode())

    def _is_own(self, entry: Path) -> bool:
        return entry == self.inputs_file or entry in self._leftovers()

    def _leftovers(self) -> list[Path]:
        """Files that a process was writing when it died."""
        files = (
            self.config_file,
            self.inputs_file,
            self.checkpoint_file,
            self.log_file,
            self.model_file,
            self.result_file,
        )
        return [entry for file in files for entry in self.path.glob(f".{file.name}.????????")]

    def check_same(self, config: Kind) -> None:
        """Raises if the run here has another configuration; where data lies does not count."""
        mine, theirs = (c.to_dict() for c in (_anywhere(config), _anywhere(self.config())))
        differing = [
            f"{name} (there {theirs.get(name)!r}, now {mine.get(name)!r})"
            for name in {**theirs, **mine}
            if mine.get(name) != theirs.get(name)
        ]
        if differing:
            raise ArgumentError(
                f"{_SUBJECT}: `out` must be a new folder or that of the same run; {self.path} "
                f"holds a run with another {', '.join(differing)}. Choose another folder."
            )

    def check_data(self, fingerprint: str, held: str) -> None:
        """Raises if the run here began on data with another fingerprint."""
        if fingerprint != held:
            raise ArgumentError(
                f"{_SUBJECT}: the data must be what the run in {self.path} began with; its numbers "
                "have changed. Bring the old data back, or choose another folder."
            )

    def _held_fingerprint(self) -> str:
        if self._is_readable(self.result):
            return self.result()["fingerprint"]
        held = self.read_checkpoint()
        return self.result()["fingerprint"] if held is None else held[1]["fingerprint"]

    def _is_readable(self, part: Callable[[], Any]) -> bool:
        try:
            part()
        except (ArgumentError, DamagedFileError):
            return False
        return True

    def config(self) -> Kind:
        """The configuration of the run here."""
        held = _read(self.config_file)
        try:
            return from_toml(held.decode(), self.kind)
        except (ArgumentError, UnicodeDecodeError) as error:
            raise _damaged(self.config_file, error) from error

    def spec(self) -> InputSpec:
        """What its network expects."""
        held = _read_json(self.inputs_file)
        try:
            return InputSpec.from_dict(held)
        except (AttributeError, TypeError) as error:
            raise _damaged(self.inputs_file, error) from error

    def result(self) -> dict[str, Any]:
        """What came out of it."""
        return _read_json(self.result_file)

    def history(self) -> list[dict[str, Any]]:
        """One row for each epoch."""
        lines = _read(self.log_file).splitlines()
        return [_read_json(self.log_file, line) for line in lines]

    def write_checkpoint(self, tensors: dict[str, Tensor], story: dict[str, Any]) -> None:
        """Replaces the checkpoint, all at once."""
        # JSON has no NaN or infinity of its own; Python's reader takes them back.
        data = safetensors.torch.save(tensors, {"taut": json.dumps(story)})
        write_atomically(self.checkpoint_file, data)

    def read_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """What the last checkpoint holds, or None if there is none.

        Raises:
            DamagedFileError: it cannot be read.
        """
        if not self.checkpoint_file.exists():
            return None
        try:
            with safetensors.safe_open(self.checkpoint_file, "pt") as file:
                story = json.loads(file.metadata()["taut"])
                return {name: file.get_tensor(name) for name in file.keys()}, story
        except (safetensors.SafetensorError, ValueError, LookupError, TypeError) as error:
            raise DamagedFileError(
                f"{_SUBJECT}: {self.checkpoint_file.name} cannot be read ({error}), so the run "
                "cannot go on. Delete the folder to begin anew."
            ) from error


def write_json(path: Path, held: dict[str, Any]) -> None:
    """Writes a JSON file that is complete or not there."""
    write_atomically(path, (json.dumps(held, indent=2) + "\n").encode())


def _anywhere(config: Kind) -> Kind:
    return replace(in_full(config), data_dir=None, threads=None)


def _read_json(path: Path, text: bytes | None = None) -> dict[str, Any]:
    """What a file of the run says, or a text from it."""
    held = _read(path) if text is None else text
    try:
        return json.loads(held)
    except ValueError as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DamagedFileError:
    remedy = "Bring it back, or delete the folder and train again."
    if path.with_name("checkpoint.safetensors").exists():
        remedy = (
            "Bring it back: checkpoint.safetensors still has the weights."
            if path.name == "config.toml"
            else "Give the same training command again, which writes it anew from the checkpoint."
        )
    return DamagedFileError(
        f"load_run: {path} must be as the run wrote it; it is cut short or altered ({error}). "
        f"{remedy}"
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ArgumentError(
            f"load_run: {path.parent} must be the folder of a finished run; it has no {path.name}. "
            "Train into it first, or give the same training command again to finish it."
        ) from error
