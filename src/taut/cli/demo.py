"""`taut demo`: an HTML report in a minute or two."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from taut.cli.parameters import FOLDER, seed_option, threads_option

if TYPE_CHECKING:
    from taut.training import Progress


@click.command()
@click.option("--out", type=FOLDER, default=Path("demo"), help="Output folder of the HTML report.")
@seed_option
@threads_option
@click.option("--quick", is_flag=True, hidden=True, help="Use tiny networks, for tests.")
def demo(out: Path, seed: int, threads: int, quick: bool) -> None:
    """Run a demo and write an HTML report.

    The demo trains ReLU, MaxMin and FullSort critics on pairs of distributions whose Wasserstein
    distance is 1, to show the effect of the activation. It measures how far shifted data has moved,
    trains a digit classifier with certified radii, and attacks it. In the report, you can draw a
    digit and see its certified radius. The demo takes one or two minutes; the networks are so small
    that more threads rarely help.
    """
    import torch

    from taut.cli.attack import print_attacked
    from taut.cli.output import announce_folders, print_table, progress, say
    from taut.report import Meter, check_extras
    from taut.report.demo import LABELS, demo_page, demo_table
    from taut.report.demo_run import demo_tasks, run_demo

    check_extras()
    torch.set_num_threads(threads)
    tasks = demo_tasks(quick=quick)
    steps = {task.problem.name: task.num_steps for task in tasks}
    with progress() as bar:
        counts = Counter[str]()

        def on_step(problem: str, activation: str, dual: float) -> None:
            stage = f"{problem}, {LABELS[activation]}"
            counts[stage] += 1
            bar(stage, counts[stage], steps[problem], f"W1 {dual:.3f}")

        def on_progress(now: "Progress") -> None:
            done, total = (now.epoch - 1) * now.steps + now.step, now.epochs * now.steps
            bar("digits", done, total, f"loss {now.loss:.3f}")

        run = run_demo(
            seed=seed, tasks=tasks, quick=quick, on_step=on_step, on_progress=on_progress
        )
    with announce_folders(out):
        page = demo_page(run).write(out / "index.html")
    table = demo_table(run)
    say("Estimated W1, and mean slope where mass is transported", style="bold")
    rows = [[str(c.text if isinstance(c, Meter) else c) for c in row] for row in table.rows]
    print_table(table.header, rows)
    say("Distance of shifted data", style="bold")
    for shift, result in run.drift.items():
        say(f"shift {shift:g}: {result}")
    say("Digits: accuracy", style="bold")
    print_attacked(run.digits.attacked)
    say(f"{run.seconds:.0f} s. Report: {page}")
