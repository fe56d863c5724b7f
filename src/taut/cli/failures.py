"""Errors of commands: one line that names the command and its options, or one JSON object."""

import errno
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import click

from taut.errors import ArgumentError, TautError, did_you_mean

# Complaints of click, and the rules that they break.
_RULES = (
    (
        r"(?P<got>.+) is not (?P<rule>one of .+|in the range .+|below .+|an? .+|[A-Z]+=.+)",
        "must be {rule}",
    ),
    (r"(?:Path|File|Directory) (?P<got>'.+') does not exist", "must be an existing file or folder"),
    (r"(?:Path|File) (?P<got>'.+') is a directory", "must be a file, not a folder"),
    (r"Directory (?P<got>'.+') is a file", "must be a folder, not a file"),
)


# Errors of storage, which say what is wrong without a traceback.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
STORAGE_ERRORS = (*DISK_FULL, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)


class Failure(click.ClickException):
    """An error of the caller: a red line on standard error, or with --json an object on standard output.

    Args:
        command: the words of the command, such as "taut certify".
        error: the error, whose fields name options as the command does.
        as_json: whether the command was given --json.
    """

    exit_code = 2

    def __init__(self, command: str, error: TautError, as_json: bool = False) -> None:
        super().__init__(str(error))
        self.command, self.error, self.as_json = command, error, as_json

    def show(self, file: IO[Any] | None = None) -> None:
        """Prints the error, or writes it to `file`."""
        if self.as_json:
            fields = {name: getattr(self.error, name) for name in ("argument", "rule", "got")}
            record = {"command": self.command, "kind": type(self.error).__name__, **fields}
            record |= {"remedy": self.error.remedy, "message": self.message}
            click.echo(json.dumps({"error": record}), file=file)
        else:
            line = f"{self.command}: {self.format_message()}"
            click.secho(line, fg="red", file=file, err=file is None)


def explain(
    error: TautError | click.ClickException, command: click.Command, path: str
) -> tuple[str, TautError]:
    """The words of the command that failed, and its error with options in place of arguments.

    Args:
        error: raised by taut, or by click for what was typed.
        command: the command that was run.
        path: its words, such as "taut certify".
    """
    if isinstance(error, TautError):
        return path, _with_options(error, command)
    context = getattr(error, "ctx", None)
    path = path if context is None else context.command_path
    return path, _from_click(error, path)


def columns_text(columns: Sequence[object]) -> str:
    """The value of an option that lists columns, as it is typed; see `parameters.columns`."""
    return ",".join(f'"{name}"' if "," in str(name) else str(name) for name in columns)


def _from_click(error: click.ClickException, path: str) -> TautError:
    message, argument, remedy, got = error.format_message().rstrip("."), "", "", ""
    if isinstance(error, click.UsageError):
        remedy = f"See {path} --help."
    if isinstance(error, click.BadParameter) and isinstance(error.param, click.Parameter):
        argument, kind = _flag(error.param), error.param.type
        message = f"is invalid: {error.message.rstrip('.')}"
        if isinstance(error, click.MissingParameter):
            message = "is missing"
            if isinstance(kind, click.Choice):
                remedy = f"Use one of {', '.join(map(str, kind.choices))}."
        for pattern, rule in _RULES:
            if match := re.fullmatch(pattern, error.message.rstrip("."), re.DOTALL):
                message, got = rule.format(**match.groupdict()), match["got"]
                remedy = did_you_mean(got, _choices(kind, got)) or remedy
    elif near := getattr(error, "possibilities", None):
        typed = getattr(error, "option_name", "") or getattr(error, "command_name", "")
        message, remedy = error.message.rstrip("."), did_you_mean(typed, near) or remedy
    rule = f"{message[:1].lower()}{message[1:]}"
    return ArgumentError(argument=argument, rule=rule, got=got, remedy=remedy)


def _choices(kind: click.ParamType, got: str) -> list[str]:
    """What may have been meant: the choices of an option, or the files beside one that is missing."""
    if isinstance(kind, click.Choice):
        return [repr(str(each)) for each in kind.choices]
    if isinstance(kind, click.Path) and kind.exists:
        folder = Path(got.strip("'")).parent
        return [repr(str(each)) for each in folder.iterdir()] if folder.is_dir() else []
    return []


def _with_options(error: TautError, command: click.Command) -> TautError:
    """The same error with the options of the command in place of arguments of Python."""
    parameters = {str(parameter.name): parameter for parameter in command.params}
    changes: dict[str, Any] = {"option": None, "remedy": error.remedy}
    named = error.argument
    # Commands with a parameter for data call a network PATH.
    of_data = named == "path" and error.subject.partition(":")[0] == "data"
    if "data" in parameters and (named == "name_or_path" or of_data):
        named = "data"
    # Names of functions mean nothing to those who typed a command.
    changes["subject"] = re.sub(r"^[a-z][a-z0-9_ ]*(: |$)", "", error.subject)
    for name, parameter in parameters.items():
        if "_" in name:  # an argument, not a word
            changes["remedy"] = re.sub(rf"\b{name}\b", _flag(parameter), changes["remedy"])
    if named in parameters:
        changes["subject"] = ""
        changes["argument"] = _flag(parameters[named])
        changes["got"] = error.got.removeprefix(f"{error.argument}=")
    if isinstance(error.option, tuple) and error.option[0] in parameters:
        flag, value = _flag(parameters[error.option[0]]), error.option[1]
        text = columns_text(value) if isinstance(value, list) else str(value)
        typed = flag if value is True else f"{flag} {shlex.quote(text)}"
        changes["option"] = f"leave out {flag}" if value is False else f"use {typed}"
    return error.replace(**changes)


def _flag(parameter: click.Parameter) -> str:
    """What is typed for a parameter: its long option, or the name of an argument in capitals."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return parameter.human_readable_name
