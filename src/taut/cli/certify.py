"""`taut certify`: certified radii of the predictions of a classifier."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.classifier_input import classifier_options, read_classifier
from taut.cli.parameters import COUNT, FILE, arithmetic_option

if TYPE_CHECKING:
    from taut.certificates import Certificates

_SHARES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)


@click.command()
@classifier_options
@arithmetic_option
@click.option(
    "--method",
    type=click.Choice(["lipschitz", "interval", "best"]),
    help="Method of proof: lipschitz (from the Lipschitz constant), interval (interval propagation within "
    "the range of the data, linf only) or best (the larger of the two radii).  [default: the one that the "
    "run was trained for]",
)
@click.option("--limit", type=COUNT, metavar="N", help="Use at most N evenly spaced examples.")
@click.option("--csv", "table", type=FILE, help="Write the predictions and radii to a CSV file.")
def certify(**options: Any) -> None:
    """Certify the predictions of a classifier.

    PATH is the folder of a taut train run, or a network file written by taut.save; for a file,
    --data is required. Every prediction gets a certified radius: no smaller perturbation of the input
    can change it. The table shows the certified accuracy at each radius; by default, at multiples of
    the target radius, or of the median certified radius if there is no target radius in this norm.

    \b
    Examples:
      taut certify runs/a
      taut certify runs/a --radius 0.05 --radius 0.1 --arithmetic float32
      taut certify runs/wine --data june.csv --csv radii.csv
      taut certify net.safetensors --data mnist --norm l2 --json
    """
    from taut.cli.output import make_folders, print_json, print_table, say
    from taut.evaluation import evenly_spaced_rows
    from taut.report import (
        accuracy_table,
        certified_guarantees,
        certified_headline,
        format_bound,
        round_accuracies,
    )

    source = read_classifier(options)
    classifier, table = source.classifier, options["table"]
    if options["limit"]:
        classifier = classifier.take(evenly_spaced_rows(len(classifier.examples), options["limit"]))
    certificates = classifier.certify(options["arithmetic"], options["method"])
    median = float(certificates.radius.median())
    # Without a target radius, the median in one digit; 0 if most radii are 0.
    radius = source.radius or float(f"{median:.1g}")
    radii = sorted(set(options["radii"])) or [share * radius for share in _SHARES if radius]
    if options["radii"] and radius not in radii:
        radius = radii[0]
    if table:
        make_folders(table)
        _write_radii(table, certificates, classifier.spec.classes)
    header, rows = accuracy_table(certificates, radii)
    if options["as_json"]:
        record = {
            "path": options["path"],
            "data": classifier.name,
            "examples": len(certificates),
            "norm": certificates.norm.name,
            "arithmetic": certificates.arithmetic,
            "method": certificates.method,
            "lipschitz": certificates.lipschitz.value,
            "clean": rows[0][1][0],
            "certified": [
                {"radius": each, "accuracy": shares[0]}
                for each, (_, shares) in zip(radii, rows[1:], strict=True)
            ],
            "median_radius": median,
            "csv": table,
        }
        return print_json(record)
    say(
        f"{certified_headline(certificates, radius)}, of {len(certificates):,} examples.",
        style="bold",
    )
    cells = [
        [name, *(f"{share:.1f} %" for share in shares)] for name, shares in round_accuracies(rows)
    ]
    print_table(header, cells)
    say(f"Median radius {format_bound(median, 'lower', 4)}.")
    for name, sentence in certified_guarantees(certificates, classifier.spec).items():
        say(f"{name}: {sentence}")
    if table:
        say(f"Radii: {table}")


def _write_radii(path: Path, certificates: "Certificates", classes: tuple[str, ...]) -> None:
    """Writes one line for each example, in the order of the rows."""
    import csv

    assert certificates.correct is not None
    parts = (certificates.prediction, certificates.correct, certificates.radius)
    columns = zip(*(part.tolist() for part in parts), strict=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "prediction", "correct", "radius"])
        for row, (number, right, radius) in enumerate(columns):
            writer.writerow([row, classes[number], int(right), repr(radius)])
