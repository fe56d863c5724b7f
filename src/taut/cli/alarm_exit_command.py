"""Commands whose exit status 1 is an alarm."""

import traceback
from typing import Any

import click

from taut.cli.failures import STORAGE_ERRORS
from taut.errors import TautError

_WRONG, _UNEXPECTED, _INTERRUPTED = 2, 70, 130


class AlarmExitCommand(click.Command):
    """A command whose exit status 1 is the alarm and nothing else, for scheduled runs."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; errors other than those of the caller show a traceback."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (KeyboardInterrupt, click.Abort) as error:
            raise SystemExit(_INTERRUPTED) from error
        except TautError as error:
            if not ctx.find_root().params.get("debug"):
                raise
            status, cause = _WRONG, error
        except Exception as error:
            # The program shows these in one line.
            if isinstance(error, OSError) and error.errno in STORAGE_ERRORS:
                raise
            status, cause = _UNEXPECTED, error
        click.echo("".join(traceback.format_exception(cause)), nl=False, err=True)
        raise SystemExit(status) from cause
