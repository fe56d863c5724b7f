"""`taut attack`: accuracy under attack beside certified accuracy."""

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.classifier_input import ClassifierInput, classifier_options, read_classifier
from taut.cli.parameters import COUNT, FILE, seed_option

if TYPE_CHECKING:
    from taut.evaluation import RobustnessResult

_SHARES = (0.5, 1.0, 1.5, 2.0)
_VIOLATED = 3


@click.command()
@classifier_options
@click.option(
    "--attack",
    "attacks",
    type=click.Choice(["fgsm", "pgd", "autoattack", "all"]),
    multiple=True,
    help="Attack to run; repeatable. AutoAttack is the strongest and the slowest.  [default: fgsm and "
    "pgd; autoattack in l1]",
)
@click.option("--num-steps", type=COUNT, default=200, help="Number of PGD steps.")
@click.option("--num-restarts", type=COUNT, default=1, help="Number of random restarts of PGD.")
@click.option(
    "--limit",
    type=COUNT,
    metavar="N",
    default=1000,
    help="Use at most N evenly spaced examples.",
)
@seed_option
@click.option(
    "--report/--no-report",
    default=True,
    help="Add the results to the HTML report of the run, PATH/index.html.",
)
@click.option(
    "--page",
    type=FILE,
    metavar="PAGE.html",
    help="Write the HTML report to this file instead of PATH/index.html.",
)
def attack(**options: Any) -> None:
    """Attack a classifier, and check that no attack contradicts its certificates.

    PATH is the folder of a taut train run, or a network file written by taut.save; for a file,
    --data and --radius are required. With a norm other than that of the training run, --radius
    is required, too. The command prints clean accuracy, certified accuracy and accuracy under attack
    side by side, and adds the attacks to the report of the run.

    Exit status: 0 success; 2 invalid file or option; 3 an attack succeeded inside a certified
    radius, which would be a bug in taut: please report it.

    \b
    Examples:
      taut attack runs/a
      taut attack runs/a --attack all --limit 200
      taut attack runs/a --attack pgd --radius 0.1 --radius 0.3 --num-restarts 10 --json
      taut attack net.safetensors --data mnist --norm l2 --radius 1.58
    """
    from taut.cli.output import announce_folders, print_json, progress, say
    from taut.evaluation import evaluate_robustness, evenly_spaced_rows
    from taut.report import ATTACK_NAMES, check_extras

    if options["page"] or (options["report"] and options["path"].is_dir()):
        check_extras()
    target = read_classifier(options)
    if target.classifier.spec.weights is not None:
        raise click.UsageError(
            "attacks perturb every column, but this run has fixed or free columns, so its "
            "certificates cover a different set of perturbations."
        )
    radii = _radii(target, options)
    names = _attacks(target, options["attacks"])
    rows = evenly_spaced_rows(len(target.classifier.examples), options["limit"])
    part = target.classifier.take(rows)
    settings = {name: options[name] for name in ("num_steps", "num_restarts", "seed")}
    with progress(quiet=options["as_json"]) as bar:
        done, total = count(), len(names) * len(radii) + 1

        def on_attack(name: str, radius: float) -> None:
            text = f"{ATTACK_NAMES[name]} at {radius:.4g}" if radius else "minimal perturbations"
            bar("attacks", next(done), total, text)

        robustness = evaluate_robustness(part, radii, names, on_attack=on_attack, **settings)
    with announce_folders((options["page"] or options["path"]).parent):
        page = _write_page(target, robustness, options)
    if options["as_json"]:
        record = {
            "path": options["path"],
            "data": target.classifier.name,
            "examples": len(robustness.certificates),
            "norm": part.norm.name,
            "lipschitz": robustness.certificates.lipschitz.value,
            "clean": robustness.clean,
            "radii": [
                {
                    "radius": radius,
                    "certified": robustness.certified(radius),
                    **{name: robustness.accuracy(radius, name) for name in robustness.distances},
                }
                for radius in robustness.radii
            ],
            "settings": robustness.settings,
            "violations": list(robustness.violations),
            "report": page,
        }
        print_json(record)
    else:
        print_attacked(robustness)
        if page is not None:
            say(f"Report: {page}")
    for sentence in robustness.violations:
        click.secho(f"taut attack: VIOLATED CERTIFICATE: {sentence}", fg="red", bold=True, err=True)
    if robustness.violations:
        raise SystemExit(_VIOLATED)


def print_attacked(robustness: "RobustnessResult") -> None:
    """Prints certified and attacked accuracy side by side."""
    from taut.cli.output import print_table, say
    from taut.report import accuracy_table, round_accuracies

    header, rows = accuracy_table(robustness.certificates, robustness.radii, robustness)
    cells = [
        [name, *(f"{share:.1f} %" for share in shares)] for name, shares in round_accuracies(rows)
    ]
    print_table(header, cells)
    if not robustness.violations:
        summary = "no attack changed a prediction inside its certified radius"
        say(f"{len(robustness.certificates):,} examples; {summary}.", style="green")


def _radii(target: ClassifierInput, options: dict[str, Any]) -> list[float]:
    if options["radii"]:
        return sorted(set(options["radii"]))
    if target.radius is None:
        raise click.UsageError(
            "give --radius: default radii exist only for a training run, and only in the norm of its "
            "training."
        )
    return [share * target.radius for share in _SHARES]


def _attacks(target: ClassifierInput, asked: tuple[str, ...]) -> list[str]:
    from taut.evaluation import ATTACKS

    if target.classifier.norm.name == "l1":
        if idle := [name for name in asked if name in ("fgsm", "pgd")]:
            message = f"--attack {idle[0]} does not support L1: use --attack autoattack."
            raise click.UsageError(message)
        return ["autoattack"]
    asked = asked or ("fgsm", "pgd")
    return [name for name in ATTACKS if name in asked or "all" in asked]


def _write_page(
    target: ClassifierInput, robustness: "RobustnessResult", options: dict[str, Any]
) -> Path | None:
    path = options["page"]
    if path is None and options["report"] and target.run is not None and options["data"] is None:
        path = options["path"] / "index.html"
    if path is None:
        return None
    from taut.report import classifier_page, run_metadata

    metadata = [] if target.run is None else run_metadata(target.run)
    settings = ", ".join(
        f"{name.partition('_')[2] or name} {n}" for name, n in robustness.settings.items()
    )
    metadata.append(("Attacks", f"{', '.join(robustness.distances)}: {settings}"))
    radius = target.radius or robustness.radii[0]
    certificates = target.classifier.certify()
    return classifier_page(
        target.classifier,
        certificates,
        radius,
        attacked=robustness,
        run=target.run,
        metadata=metadata,
    ).write(path)
