"""`taut certify`: certified radii of the predictions of a classifier."""

from typing import Any

import click

from taut.cli.classifier_input import classifier_options, read_classifier
from taut.cli.parameters import COUNT, FILE

__all__ = ["certify"]

_SHARES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)


@click.command()
@classifier_options
@click.option(
    "--arithmetic",
    type=click.Choice(["real", "float64", "float32"]),
    default="real",
    show_default=True,
    help="Arithmetic that the certificate covers.",
)
@click.option("--limit", type=COUNT, help="Use at most N evenly spaced examples.")
@click.option("--csv", "table", type=FILE, help="Write the prediction and radius of each example.")
def certify(**options: Any) -> None:
    """Certify the predictions of a classifier.

    PATH is the folder of a run of taut train, or a network that taut.save wrote (then give --data).
    Every prediction gets a certified radius: no smaller perturbation of the input can change it. The
    table shows the certified accuracy at each radius.

    \b
    Examples:
      taut certify runs/a
      taut certify runs/a --radius 0.05 --radius 0.1 --arithmetic float32
      taut certify runs/a --data june.csv --csv radii.csv
      taut certify net.safetensors --data mnist --norm l2 --json
    """
    from taut.cli import classifier_output as output
    from taut.cli.output import print_json, say
    from taut.evaluation import evenly_spaced_rows

    chosen = read_classifier(options)
    classifier = chosen.classifier
    if options["limit"]:
        classifier = classifier.take(evenly_spaced_rows(len(classifier.examples), options["limit"]))
    found = classifier.certify(options["arithmetic"])
    radius = chosen.radius or output.default_radius(found)
    radii = sorted(set(options["radii"])) or [share * radius for share in _SHARES if radius]
    if options["radii"] and radius not in radii:
        radius = radii[0]
    if options["table"]:
        output.write_radii(options["table"], found, classifier.spec)
    if options["as_json"]:
        record = {
            "path": str(options["path"]),
            "data": classifier.name,
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
    output.print_certified(found, classifier.spec, radii, radius)
    if options["table"]:
        say(f"Radii: {options['table']}")
