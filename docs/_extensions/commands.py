"""The command line, read off the commands themselves: `.. commands::` for all of `taut`."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from taut.cli.main import main


class _Recorder(click.HelpFormatter):
    """Keeps what a command writes as its help, instead of wrapping it."""

    def __init__(self) -> None:
        super().__init__()
        self.usage = ""
        self.texts: list[str] = []
        self.sections: list[tuple[str, list[tuple[str, str]]]] = []

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        self.usage = f"{prog} {args}"

    def write_text(self, text: str) -> None:
        self.texts.extend(text.split("\n\n"))

    def write_dl(self, rows: Sequence[tuple[str, str]], *spacing: int) -> None:
        self.sections[-1][1].extend(rows)

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.sections.append((name, []))
        yield


class Commands(SphinxDirective):
    """A section for each command: what it does, its usage, and its options in a table."""

    def run(self) -> list[nodes.Node]:
        """The sections, in the order of `taut --help`."""
        context = click.Context(main, info_name="taut", **main.context_settings)
        return [section for _, section in self._sections(main, context)]

    def _sections(
        self, command: click.Command, context: click.Context
    ) -> Iterator[tuple[str, nodes.section]]:
        yield context.command_path, _section(command, context)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                yield from self._sections(found, click.Context(found, context, info_name=name))


def _section(command: click.Command, context: click.Context) -> nodes.section:
    recorder = _Recorder()
    command.format_help(context, recorder)
    section = nodes.section(ids=[nodes.make_id(context.command_path)])
    section += nodes.title(text=context.command_path)
    section += nodes.literal_block(recorder.usage, recorder.usage, language="none")
    for text in recorder.texts:
        if text.startswith("\b"):
            kept = text.removeprefix("\b\n")
            section += nodes.literal_block(kept, kept, language="none")
        else:
            section += _paragraph(" ".join(text.split()))
    for name, rows in recorder.sections:
        section += _table(name, rows)
    return section


def _table(title: str, rows: Sequence[tuple[str, str]]) -> nodes.table:
    group = nodes.tgroup(cols=2)
    group += [nodes.colspec(colwidth=width) for width in (35, 65)]
    group += nodes.tbody("", *(_row(*row) for row in rows))
    return nodes.table("", nodes.title(text=title), group, classes=["options"])


def _row(declaration: str, text: str) -> nodes.row:
    literal = nodes.paragraph("", "", nodes.literal(text=declaration))
    return nodes.row("", nodes.entry("", literal), nodes.entry("", _paragraph(text)))


def _paragraph(text: str) -> nodes.paragraph:
    """A paragraph in which backticks and options are code, so that their hyphens stay as they are."""
    paragraph = nodes.paragraph()
    for place, part in enumerate(re.split(r"`([^`]+)`|(?<![\w-])(--[a-z][a-z-]*)", text)):
        if part:
            paragraph += nodes.literal(text=part) if place % 3 else nodes.Text(part)
    return paragraph


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
