"""Commands whose exit status 1 is an alarm."""

import re
import traceback
from typing import Any

import click

from taut.errors import TautError

__all__ = ["AlarmCommand"]

_WRONG, _UNEXPECTED, _INTERRUPTED = 2, 70, 130
# Arguments in Python, and what the command calls them.
_OPTIONS = {
    "columns=[...]": "--columns a,b, or --drop c",
    "finite=True": "--finite",
    "finite=False": "no --finite",
}


class AlarmCommand(click.Command):
    """A command whose exit status 1 is the alarm and nothing else, for scheduled runs."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; errors of taut name its options, others show a traceback."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (KeyboardInterrupt, click.Abort) as error:
            raise SystemExit(_INTERRUPTED) from error
        except TautError as error:
            if not ctx.find_root().params.get("debug"):
                option = re.sub(r"drop=\['(.*)'\]", r"--drop '\1'", error.option)
                option = _OPTIONS.get(option, option)
                raise error.replace(option=option) from error
            status, cause = _WRONG, error
        except Exception as error:
            status, cause = _UNEXPECTED, error
        click.echo("".join(traceback.format_exception(cause)), nl=False, err=True)
        raise SystemExit(status) from cause
