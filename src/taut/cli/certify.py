"""`taut certify`: how far the predictions of a classifier are proven."""

from pathlib import Path
from typing import Any

import click

from taut.cli.classifier_options import choose, classifier_options

__all__ = ["certify"]

_SHARES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)


@click.command()
@classifier_options
@click.option(
    "--arithmetic",
    type=click.Choice(["real", "float64", "float32"]),
    default="real",
    show_default=True,
    help="Whose predictions: those of exact numbers, or of an execution with its roundings.",
)
@click.option("--limit", type=click.IntRange(min=1), help="At most so many, evenly spread.")
@click.option(
    "--csv",
    "table",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write prediction and radius of each example.",
)
def certify(**options: Any) -> None:
    """Prove how far predictions hold.

    PATH is the folder of a run of taut train, or a network that taut.save wrote (then --data says
    which examples). Every prediction gets a radius within which no change of the input can change
    it; the table shows the share of examples that are right and proven within each radius.

    \b
    Examples:
      taut certify runs/a
      taut certify runs/a --radius 0.05 --radius 0.1 --arithmetic float32
      taut certify runs/a --data june.csv --csv radii.csv
      taut certify net.safetensors --data mnist --norm l2 --json
    """
    from taut.cli import classifier_output as output
    from taut.cli.wasserstein_output import print_json
    from taut.lab.robustness import spread_rows

    chosen = choose(options)
    subject = chosen.subject
    if options["limit"]:
        subject = subject.take(spread_rows(len(subject.examples), options["limit"]))
    found = subject.certify(options["arithmetic"])
    radius = chosen.radius or output.nice_radius(found)
    radii = sorted(set(options["radii"])) or [share * radius for share in _SHARES if radius]
    if options["radii"] and radius not in radii:
        radius = radii[0]
    if options["table"]:
        output.write_radii(options["table"], found, subject.spec)
    if options["as_json"]:
        record = {
            "path": str(options["path"]),
            "data": subject.name,
            "examples": len(found),
            "norm": found.norm.name,
            "arithmetic": found.arithmetic,
            "method": found.method,
            "lipschitz": found.lipschitz.value,
            "clean": float(found.certified_accuracy()),
            "certified": [
                {"radius": each, "accuracy": float(found.certified_accuracy(each))}
                for each in radii
            ],
            "median_radius": float(found.radius.median()),
            "csv": None if options["table"] is None else str(options["table"]),
        }
        print_json(record)
        return
    output.print_certified(found, subject.spec, radii, radius)
    if options["table"]:
        output.say(f"The radii: {options['table']}")
