"""`SectionedCommand`: a command whose many options are listed under headings."""

from typing import Any

import click

__all__ = ["SectionedCommand"]


class SectionedCommand(click.Command):
    """A command with headings in its help.

    Args:
        sections: the first option of each section, by the name of its parameter, and the heading;
            options up to the next section belong to it.
    """

    def __init__(self, *args: Any, sections: dict[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self.sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options under their headings."""
        heading, rows = "Options", []
        for parameter in [*self.get_params(ctx), None]:
            if parameter is None or parameter.name in self.sections:
                if rows:
                    with formatter.section(heading):
                        formatter.write_dl(rows)
                heading, rows = self.sections.get(getattr(parameter, "name", ""), heading), []
            record = None if parameter is None else parameter.get_help_record(ctx)
            if record is not None:
                rows.append(record)
