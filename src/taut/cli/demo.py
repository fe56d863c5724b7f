"""`taut demo`: an HTML report in a minute or two."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

    from taut.report.demo_run import DemoRun
    from taut.training import Progress as Moment

__all__ = ["demo"]


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo"),
    show_default=True,
    help="Folder of the HTML report.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed.")
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of CPU threads. The networks are small, so more threads rarely help.",
)
@click.option("--quick", is_flag=True, hidden=True, help="Use tiny networks, for tests.")
def demo(out: Path, seed: int, threads: int, quick: bool) -> None:
    """Run a demonstration and write an HTML report.

    Trains ReLU, MaxMin and FullSort critics on problems whose Wasserstein distance is 1, to show
    the effect of the activation; then trains a classifier of digits with certified radii, and
    attacks it. Takes a minute or two.
    """
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from taut.cli.classifier_output import print_attacked
    from taut.report import check_extras
    from taut.report.demo import LABELS, demo_page
    from taut.report.demo_run import ACTIVATIONS, demo_tasks, run_demo

    check_extras()
    torch.set_num_threads(threads)
    console = Console()
    tasks = demo_tasks(quick=quick)
    columns = (
        TextColumn("{task.description:<26}"),
        BarColumn(),
        TextColumn("{task.fields[found]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bars = {
            (task.problem.name, activation): progress.add_task(
                f"{task.problem.name}, {LABELS[activation]}",
                total=task.num_steps,
                start=False,
                found="",
            )
            for task in tasks
            for activation in ACTIVATIONS
        }

        def on_step(problem: str, activation: str, dual: float) -> None:
            progress.start_task(bars[problem, activation])
            progress.update(bars[problem, activation], advance=1, found=f"W1 {dual:.3f}")

        digits = progress.add_task("digits, certified", total=None, start=False, found="")

        def on_progress(now: "Moment") -> None:
            proven = now.row["certified"] if now.row else 0.0
            done, total = (now.epoch - 1) * now.steps + now.step, now.epochs * now.steps
            progress.start_task(digits)
            progress.update(digits, completed=done, total=total, found=f"{100 * proven:.1f} %")

        run = run_demo(
            seed=seed, tasks=tasks, quick=quick, on_step=on_step, on_progress=on_progress
        )

    page = demo_page(run).write(out / "index.html")
    console.print(_table(run))
    print_attacked(run.digits.attacked)
    console.print(f"{run.seconds:.0f} s. Report: {page}", soft_wrap=True)


def _table(run: "DemoRun") -> "Table":
    from rich.table import Table

    from taut.report.demo import LABELS

    table = Table(
        title="Estimated W1, and mean slope where mass is transported", title_justify="left"
    )
    table.add_column("activation")
    for record in run.tasks:
        table.add_column(f"{record.task.problem.name}: W1", justify="right")
        table.add_column("slope", justify="right")
    for index, critic in enumerate(run.tasks[0].critics):
        cells = [LABELS[critic.activation]]
        for record in run.tasks:
            found = record.critics[index]
            cells += [f"{found.fit.estimate.value:.3f}", f"{found.mean_slope:.3f}"]
        table.add_row(*cells)
    table.add_section()
    truth = ["truth"]
    for record in run.tasks:
        truth += [f"{record.task.problem.distance:.3f}", "1.000"]
    table.add_row(*truth)
    return table
