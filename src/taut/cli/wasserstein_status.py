"""How `taut wasserstein` ends where something is wrong: status 1 is the alarm, and that alone."""

import traceback
from typing import Any

import click

from taut.errors import TautError

__all__ = ["AlarmCommand"]

_WRONG, _UNEXPECTED, _INTERRUPTED = 2, 70, 130

# What errors call the arguments in Python, and what the command calls them.
_WORDS = {
    "columns=[...]": "--columns a,b",
    "population=False": "--as-they-are",
    "(population=True)": "(without --as-they-are)",
}


class AlarmCommand(click.Command):
    """A command whose every failure has another status than 1, which scheduled runs listen to."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; errors of taut speak of its options, others show where they arose."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (KeyboardInterrupt, click.Abort) as error:
            raise SystemExit(_INTERRUPTED) from error
        except TautError as error:
            if not ctx.find_root().params.get("debug"):
                raise type(error)(_in_options(str(error))) from error
            status, cause = _WRONG, error
        except Exception as error:
            status, cause = _UNEXPECTED, error
        click.echo("".join(traceback.format_exception(cause)), nl=False, err=True)
        raise SystemExit(status) from cause


def _in_options(sentence: str) -> str:
    """The sentence with options for arguments.

    Example:
        >>> _in_options("Use columns=[...] to select.")
        'Use --columns a,b to select.'
    """
    for argument, option in _WORDS.items():
        sentence = sentence.replace(argument, option)
    return sentence
