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
    "pgd; in l1 autoattack]",
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
    --data and --radius are required. The command prints clean accuracy, certified accuracy and
    accuracy under attack side by side, and adds the attacks to the report of the run.

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
    chosen = read_classifier(options)
    if chosen.classifier.spec.weights is not None:
        raise click.UsageError(
            "attacks move every column, and this run has columns that are fixed or free: its "
            "certificates speak of other changes."
        )
    radii = _radii(chosen, options)
    names = _attacks(chosen, options["attacks"])
    rows = evenly_spaced_rows(len(chosen.classifier.examples), options["limit"])
    part = chosen.classifier.take(rows)
    settings = {name: options[name] for name in ("num_steps", "num_restarts", "seed")}
    with progress(quiet=options["as_json"]) as bar:
        done, total = count(), len(names) * len(radii) + 1

        def on_attack(name: str, radius: float) -> None:
            text = f"{ATTACK_NAMES[name]} at {radius:.4g}" if radius else "minimal perturbations"
            bar("attacks", next(done), total, text)

        found = evaluate_robustness(part, radii, names, on_attack=on_attack, **settings)
    with announce_folders((options["page"] or options["path"]).parent):
        page = _write_page(chosen, found, options)
    if options["as_json"]:
        record = {
            "path": options["path"],
            "data": chosen.classifier.name,
            "examples": len(found.certificates),
            "norm": part.norm.name,
            "lipschitz": found.certificates.lipschitz.value,
            "clean": found.clean,
            "radii": [
                {
                    "radius": radius,
                    "certified": found.certified(radius),
                    **{name: found.accuracy(radius, name) for name in found.distances},
                }
                for radius in found.radii
            ],
            "settings": found.settings,
            "violations": list(found.violations),
            "report": page,
        }
        print_json(record)
    else:
        print_attacked(found)
        if page is not None:
            say(f"Report: {page}")
    for sentence in found.violations:
        click.secho(f"taut attack: VIOLATED CERTIFICATE: {sentence}", fg="red", bold=True, err=True)
    if found.violations:
        raise SystemExit(_VIOLATED)


def print_attacked(found: "RobustnessResult") -> None:
    """Prints certified and attacked accuracy side by side."""
    from taut.cli.output import print_table, say
    from taut.report import accuracy_table, percent

    header, rows = accuracy_table(found.certificates, found.radii, found)
    print_table(header, [[name, *map(percent, shares)] for name, shares in rows])
    if not found.violations:
        held = "no attack changed a prediction inside its certified radius"
        say(f"{len(found.certificates):,} examples; {held}.", style="green")


def _radii(chosen: ClassifierInput, options: dict[str, Any]) -> list[float]:
    if options["radii"]:
        return sorted(set(options["radii"]))
    if chosen.radius is None:
        raise click.UsageError(
            "give --radius: a default is known only for the norm that the run was trained in."
        )
    return [share * chosen.radius for share in _SHARES]


def _attacks(chosen: ClassifierInput, asked: tuple[str, ...]) -> list[str]:
    from taut.evaluation import ATTACKS

    if chosen.classifier.norm.name == "l1":
        if idle := [name for name in asked if name in ("fgsm", "pgd")]:
            message = f"--attack {idle[0]} does not support L1: use --attack autoattack."
            raise click.UsageError(message)
        return ["autoattack"]
    asked = asked or ("fgsm", "pgd")
    return [name for name in ATTACKS if name in asked or "all" in asked]


def _write_page(
    chosen: ClassifierInput, found: "RobustnessResult", options: dict[str, Any]
) -> Path | None:
    path = options["page"]
    if path is None and options["report"] and chosen.run is not None and options["data"] is None:
        path = options["path"] / "index.html"
    if path is None:
        return None
    from taut.report import classifier_page, run_facts

    facts = [] if chosen.run is None else run_facts(chosen.run)
    told = ", ".join(f"{name.partition('_')[2] or name} {n}" for name, n in found.settings.items())
    facts.append(("Attacks", f"{', '.join(found.distances)}: {told}"))
    radius = chosen.radius or found.radii[0]
    certificates = chosen.classifier.certify()
    return classifier_page(
        chosen.classifier, certificates, radius, attacked=found, run=chosen.run, facts=facts
    ).write(path)
