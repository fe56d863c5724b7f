"""The folder of a run: its files, the order of their writing, and the identity of the run.

`inputs.json`, `config.toml` (the requested configuration) and `resolved.toml` (with every field
derived) are written first, then `checkpoint.safetensors` and `log.jsonl` during training, then
`model.safetensors` and last `result.json`, which marks the run as finished. Each file is complete or
missing, whenever the process dies.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic

import safetensors
import safetensors.torch
from torch import Tensor

from taut.errors import ArgumentError, DamagedFileError
from taut.export import write_atomically
from taut.training.config import TrainConfig, from_toml, to_toml
from taut.training.config_fields import AnyConfig
from taut.training.data_preparation import InputSpec, with_absolute_paths

_SUBJECT = "train"
_LOCK = ".lock"


class RunFolder(Generic[AnyConfig]):
    """The files of one run, in a folder that may not exist yet; `kind` is its configuration class."""

    def __init__(self, path: str | os.PathLike[str], kind: type[AnyConfig] = TrainConfig) -> None:
        self.path = Path(path)
        self.kind = kind
        self.config_file = self.path / "config.toml"
        self.resolved_file = self.path / "resolved.toml"
        self.inputs_file = self.path / "inputs.json"
        self.checkpoint_file = self.path / "checkpoint.safetensors"
        self.log_file = self.path / "log.jsonl"
        self.model_file = self.path / "model.safetensors"
        self.result_file = self.path / "result.json"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Locks the folder until the `with` block or the process ends.

        Raises:
            ArgumentError: another process is training into it.
        """
        self._refuse_foreign()
        self.path.mkdir(parents=True, exist_ok=True)
        # The file stays: another process may have opened it, and would lock a deleted file.
        with open(self.path / _LOCK, "ab") as file:
            try:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                rule = "must be a folder that no other process is training into"
                remedy = "Wait for it, or choose another folder."
                raise self._refusal(rule, "which another one has open", remedy) from error
            except (ImportError, OSError):
                pass  # not every system and file system can lock a file
            yield

    def _refuse_foreign(self) -> None:
        if self.config_file.exists() or not self.path.exists():
            return
        own = {self.inputs_file, self.resolved_file, self.path / _LOCK, *self._leftovers()}
        if foreign := [entry.name for entry in self.path.iterdir() if entry not in own]:
            rule = "must be a new or empty folder, or that of a run"
            raise self._refusal(rule, f"which holds {foreign[0]} and no config.toml")

    def _refusal(
        self, rule: str, why: str, remedy: str = "Choose another folder."
    ) -> ArgumentError:
        return ArgumentError(_SUBJECT, "out", rule, f"{self.path}, {why}", remedy)

    @property
    def finished(self) -> bool:
        """Whether the run here is finished."""
        return self.result_file.exists()

    def open(
        self, requested: AnyConfig, resolved: AnyConfig, spec: InputSpec, fingerprint: str
    ) -> None:
        """Creates the folder, or checks that the run in it is the same one.

        A run that ended before its first checkpoint, for example after a wrong option, may be replaced.

        Raises:
            ArgumentError: there is a run with another configuration or on other data; the text
                names what differs.
        """
        self._refuse_foreign()
        self.path.mkdir(parents=True, exist_ok=True)
        has_progress = self.checkpoint_file.exists() or self.finished
        if self.config_file.exists() and has_progress:
            self.check_same(resolved)
            self.check_data(fingerprint, self._stored_fingerprint())
        for leftover in self._leftovers():
            leftover.unlink(missing_ok=True)
        if not has_progress or not self._is_readable(self.spec):
            write_json(self.inputs_file, spec.to_dict())
        write_atomically(self.resolved_file, to_toml(resolved).encode())
        write_atomically(self.config_file, to_toml(requested).encode())

    def _leftovers(self) -> list[Path]:
        """Files that a process was writing when it died."""
        files = [path for name, path in vars(self).items() if name.endswith("_file")]
        return [entry for file in files for entry in self.path.glob(f".{file.name}.????????")]

    def check_same(self, config: AnyConfig) -> None:
        """Raises if the run here has another configuration; the location of data does not count."""
        mine, theirs = (c.to_dict() for c in (_anywhere(config), _anywhere(self.config())))
        differing = [
            f"{name} (there {theirs.get(name)!r}, now {mine.get(name)!r})"
            for name in {**theirs, **mine}
            if mine.get(name) != theirs.get(name)
        ]
        if differing:
            rule = "must be a new folder or that of the same run"
            raise self._refusal(rule, f"the folder of a run with another {', '.join(differing)}")

    def check_data(self, fingerprint: str, stored: str) -> None:
        """Raises if the run here began on data with another fingerprint."""
        if fingerprint != stored:
            rule = f"the data must be the same as when the run in {self.path} began"
            remedy = "Restore the old data, or choose another folder."
            raise ArgumentError(_SUBJECT, rule=rule, got="other numbers", remedy=remedy)

    def _stored_fingerprint(self) -> str:
        if self._is_readable(self.result):
            return self.result()["fingerprint"]
        stored = self.read_checkpoint()
        return self.result()["fingerprint"] if stored is None else stored[1]["fingerprint"]

    def _is_readable(self, part: Callable[[], Any]) -> bool:
        try:
            part()
        except (ArgumentError, DamagedFileError):
            return False
        return True

    def config(self) -> AnyConfig:
        """The resolved configuration of the run here."""
        content = _read(self.resolved_file)
        try:
            return from_toml(content.decode(), self.kind)
        except (ArgumentError, UnicodeDecodeError) as error:
            raise _damaged(self.resolved_file, error) from error

    def spec(self) -> InputSpec:
        """The input specification of the network of the run."""
        entries = _read_json(self.inputs_file)
        try:
            return InputSpec.from_dict(entries)
        except (AttributeError, TypeError) as error:
            raise _damaged(self.inputs_file, error) from error

    def result(self) -> dict[str, Any]:
        """The result of the run."""
        return _read_json(self.result_file)

    def history(self) -> list[dict[str, Any]]:
        """One row for each epoch."""
        lines = _read(self.log_file).splitlines()
        return [_read_json(self.log_file, line) for line in lines]

    def write_checkpoint(self, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
        """Replaces the checkpoint atomically."""
        # JSON has no NaN or infinity of its own; Python's reader takes them back.
        data = safetensors.torch.save(tensors, {"taut": json.dumps(metadata)})
        write_atomically(self.checkpoint_file, data)

    def read_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The last checkpoint, or None if there is none.

        Raises:
            DamagedFileError: it cannot be read.
        """
        if not self.checkpoint_file.exists():
            return None
        try:
            with safetensors.safe_open(self.checkpoint_file, "pt") as file:
                metadata = json.loads(file.metadata()["taut"])
                return {name: file.get_tensor(name) for name in file.keys()}, metadata
        except (safetensors.SafetensorError, ValueError, LookupError, TypeError) as error:
            rule = f"{self.checkpoint_file.name} must be readable to resume the run"
            remedy = "Delete the folder to start again."
            raise DamagedFileError(_SUBJECT, rule=rule, got=str(error), remedy=remedy) from error


def write_json(path: Path, entries: dict[str, Any]) -> None:
    """Writes a JSON file atomically."""
    write_atomically(path, (json.dumps(entries, indent=2) + "\n").encode())


def _anywhere(config: AnyConfig) -> AnyConfig:
    return replace(with_absolute_paths(config), data_dir=None, threads=None)


def _read_json(path: Path, text: bytes | None = None) -> dict[str, Any]:
    """Parses a JSON file of the run, or `text` from it."""
    content = _read(path) if text is None else text
    try:
        return json.loads(content)
    except ValueError as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DamagedFileError:
    remedy = "Restore it, or delete the folder and train again."
    if path.with_name("checkpoint.safetensors").exists():
        remedy = (
            "Restore it: checkpoint.safetensors still has the weights."
            if path.suffix == ".toml"
            else "Run the same training command again to write it from the checkpoint."
        )
    rule = f"{path} must be as the run wrote it"
    got = f"a file that is cut short or altered ({error})"
    return DamagedFileError("load_run", rule=rule, got=got, remedy=remedy)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        rule = f"{path.parent} must be the folder of a finished run"
        got = f"a folder without {path.name}"
        remedy = "Train into it first, or run the same training command again to finish it."
        raise ArgumentError("load_run", rule=rule, got=got, remedy=remedy) from error
