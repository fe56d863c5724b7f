"""`taut watch`: drift from a reference, batch after batch, with one false-alarm rate for all of them."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.alarm_exit_command import AlarmExitCommand
from taut.cli.column_encoding_options import COLUMN_OPTIONS, column_options
from taut.cli.parameters import (
    COUNT,
    EXISTING_FILE,
    FILE,
    NOT_NEGATIVE,
    Finite,
    json_option,
    refuse_options,
    seed_option,
    threads_option,
)

if TYPE_CHECKING:
    from taut.transport import Monitor, MonitoredBatch

_SETTINGS = ("false_alarm_rate", "tolerance", "scaling", "window", "seed")


@click.command(cls=AlarmExitCommand)
@click.argument("files", nargs=-1, type=click.Path(), metavar="REFERENCE | BATCH...")
@click.option("--save", type=FILE, metavar="WATCH", help="Fit a monitor to REFERENCE and save it.")
@click.option(
    "--with",
    "monitor",
    type=EXISTING_FILE,
    metavar="WATCH",
    help="Saved monitor to check the batches against; the file is updated.",
)
@click.option(
    "--false-alarm-rate",
    type=Finite(0, 1, min_open=True, max_open=True),
    default=0.05,
    help="Largest allowed probability of a false alarm over the whole run, however many batches there are.",
)
@click.option(
    "--tolerance",
    type=NOT_NEGATIVE,
    default=0.0,
    help="Largest Wasserstein distance from the reference that is tolerated, in scaled units.",
)
@click.option(
    "--scaling",
    type=click.Choice(["none", "standard", "robust"]),
    default="standard",
    help="Scaling of the features: none (the units of the data), standard (mean and standard "
    "deviation) or robust (median and quartiles).",
)
@click.option(
    "--window",
    type=COUNT,
    metavar="N",
    help="After every N batches without an alarm, use their rows as the new reference, so that slow "
    "drift raises no alarm.",
)
@column_options
@click.option(
    "--log", type=FILE, metavar="LOG", help="Append one line of JSON per batch to this file."
)
@click.option(
    "--report", type=FILE, metavar="PAGE.html", help="Write an HTML report of all batches."
)
@seed_option
@threads_option
@json_option
def watch(files: Sequence[str], **options: Any) -> None:
    """Watch batches of rows for drift from a reference.

    `taut watch --save WATCH REFERENCE` fits a monitor to the reference and saves the monitor in the file
    WATCH; `taut watch --with WATCH BATCH...` checks new batches. REFERENCE and BATCH can have any format
    that `taut wasserstein` reads. WATCH also stores the evidence for drift, and every run updates it; if
    several processes use the same file, each waits for the others. With --window N, the rows of
    every N batches without an alarm become the new reference.

    The evidence is an e-value, a number that is unlikely ever to become large without drift. The alarm is
    raised when it reaches 1 / false-alarm rate (20 by default). Without drift, the probability that this
    ever happens is at most that rate, over all batches together. Once raised, the alarm stays on; to
    start again, fit a new monitor. Leave out columns that always increase, such as timestamps and row
    IDs (--drop).

    Exit status: 0 no alarm; 1 alarm; 2 invalid file or option; 70 internal error; 130 interrupted.

    \b
    Examples:
      taut watch january.csv --save watch.safetensors
      taut watch --with watch.safetensors monday.csv tuesday.csv --log watch.jsonl --report watch.html
    """
    given, save = options["monitor"], options["save"]
    if (given is None) == (save is None):
        raise click.UsageError("either --save (with a REFERENCE) or --with is needed.")
    if save is not None and len(files) != 1:
        raise click.UsageError("--save needs one REFERENCE.")
    if given is not None and not (files or options["report"]):
        raise click.UsageError("--with needs a BATCH, or --report.")
    options["names"] = [str(name) for name in options["names"] or ()]
    if save is None:
        refuse_options("cannot be used with --with", *_SETTINGS, *COLUMN_OPTIONS)
    else:
        refuse_options("cannot be used with --save", "log", "report")

    import torch

    torch.set_num_threads(options["threads"])
    alarm = _fit(files[0], options) if given is None else _update(files, options)
    if alarm:
        raise SystemExit(1)


def _fit(path: str, options: dict[str, Any]) -> bool:
    """Fits a monitor and saves it; never an alarm."""
    from taut.cli.output import check_outputs, make_folders, print_json, print_table, say
    from taut.data import ColumnSource, TableStream, open_source
    from taut.transport import fit_monitor, save_monitor

    check_outputs([options["save"]], [path], "watch")
    options["encode"] = dict(options["encode"])
    wishes = {name: options[name] for name in COLUMN_OPTIONS if options[name]}
    is_table = isinstance(open_source(path, options["names"]), ColumnSource)
    monitor = fit_monitor(
        TableStream(path, names=options["names"]),
        encoding=wishes if is_table else None,
        **{name: options[name] for name in _SETTINGS},
    )
    make_folders(options["save"])
    save_monitor(monitor, options["save"])
    encoding = monitor.encoding
    if options["as_json"]:
        uses = None if encoding is None else encoding.accounts
        summary = {"encoding": uses, "notes": monitor.notes}
        print_json(_settings(monitor, options["save"]) | summary)
        return False
    say(f"Fitted on {monitor.rows:,} rows of {Path(path).name}; saved to {options['save']}.")
    if encoding is not None:
        print_table(
            ["column", "use"], [list(pair) for pair in encoding.accounts.items()], left=(0, 1)
        )
    for note in monitor.notes:
        say(f"Note: {note}" + " with --drop." * is_table, style="yellow")
    say(
        f"{len(monitor.nodes)} scores are monitored. The probability of a false alarm is at most "
        f"{100 * monitor.false_alarm_rate:g} %, over all batches together."
    )
    return False


def _update(files: Sequence[str], options: dict[str, Any]) -> bool:
    """Updates the monitor with the batches and prints its state; whether drift is detected."""
    from taut.cli.output import check_outputs, make_folders, print_json, print_table, say
    from taut.data import TableStream
    from taut.report import check_extras, monitor_headline, monitor_page, monitor_rows
    from taut.transport import hold_monitor, load_monitor, save_monitor

    path = options["monitor"]
    if options["report"]:
        check_extras()
    check_outputs([options["log"], options["report"]], [str(path), *files], "watch")
    with hold_monitor(path):
        monitor = load_monitor(path)
        done = len(monitor.batches)
        try:
            for file in files:
                rows = TableStream(file, names=options["names"], min_rows=1)
                monitor.update(rows, Path(file).name)
        finally:
            # Batches before one that cannot be read have been seen.
            if len(monitor.batches) > done:
                save_monitor(monitor, path)
                make_folders(options["log"])
                _append(options["log"], monitor.batches[done:])
    page = None
    if options["report"]:
        metadata = [("Monitor", str(path)), ("Reference", f"{monitor.rows:,} rows")]
        make_folders(options["report"])
        page = monitor_page(monitor, metadata).write(options["report"])
    if options["as_json"]:
        print_json(_settings(monitor, path) | {"report": page})
        return monitor.alarm
    say(f"{monitor_headline(monitor)}.", style="bold red" if monitor.alarm else "bold")
    print_table(*monitor_rows(monitor, monitor.batches[done:]), left=(0, 4))
    if page is not None:
        say(f"Report: {page}")
    return monitor.alarm


def _append(log: Path | None, batches: "Sequence[MonitoredBatch]") -> None:
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(batch)) + "\n" for batch in batches)


def _settings(monitor: "Monitor", path: Path) -> dict[str, Any]:
    return {
        "monitor": path,
        "reference_rows": monitor.rows,
        "features": monitor.features,
        "false_alarm_rate": monitor.false_alarm_rate,
        "tolerance": monitor.tolerance,
        "scaling": monitor.scaling.method,
        "window": monitor.window,
        "alarm": monitor.alarm,
        "batches": [asdict(batch) for batch in monitor.batches],
    }
