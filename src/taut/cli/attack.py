"""`taut attack`: accuracy under attack beside certified accuracy."""

from pathlib import Path
from typing import Any

import click

from taut.cli.classifier_input import ClassifierInput, classifier_options, read_classifier
from taut.cli.parameters import COUNT, FILE, seed_option

__all__ = ["attack"]

_SHARES = (0.5, 1.0, 1.5, 2.0)
_VIOLATED = 3


@click.command()
@classifier_options
@click.option(
    "--attack",
    "attacks",
    type=click.Choice(["fgsm", "pgd", "autoattack", "all"]),
    multiple=True,
    help="Attack to run; may be given several times. AutoAttack is the strongest and the slowest.  "
    "[default: fgsm and pgd, autoattack in l1]",
)
@click.option(
    "--num-steps", type=COUNT, default=200, show_default=True, help="Number of PGD steps."
)
@click.option(
    "--num-restarts",
    type=COUNT,
    default=1,
    show_default=True,
    help="Number of random starts of PGD.",
)
@click.option(
    "--limit",
    type=COUNT,
    default=1000,
    show_default=True,
    help="Use at most N evenly spaced examples.",
)
@seed_option
@click.option(
    "--report/--no-report",
    default=True,
    help="Update the report of the run, index.html in its folder.  [default: report]",
)
@click.option("--page", type=FILE, metavar="PAGE.html", help="File of the report, instead.")
def attack(**options: Any) -> None:
    """Attack a classifier, and check each success against its certificates.

    PATH is the folder of a run of taut train, or a network that taut.save wrote (then give --data
    and --radius). Prints clean, certified and attacked accuracy side by side, and adds the attacks
    to the report of the run.

    Exit status: 0 attacked; 2 a file or an option is wrong; 3 an attack succeeded inside a
    certified radius, which would be an error in taut: please report it.

    \b
    Examples:
      taut attack runs/a
      taut attack runs/a --attack all --limit 200
      taut attack runs/a --attack pgd --radius 0.1 --radius 0.3 --num-restarts 10 --json
      taut attack net.safetensors --data mnist --norm l2 --radius 1.58
    """
    from taut.cli import classifier_output as output
    from taut.cli.output import print_json, say
    from taut.evaluation import evaluate_robustness, evenly_spaced_rows
    from taut.report import check_extras

    if options["page"] or (options["report"] and options["path"].is_dir()):
        check_extras()
    chosen = read_classifier(options)
    radii = _radii(chosen, options)
    names = _attacks(chosen, options["attacks"])
    part = chosen.classifier.take(
        evenly_spaced_rows(len(chosen.classifier.examples), options["limit"])
    )
    total = len(names) * len(radii) + 1
    with output.attack_progress(total, quiet=options["as_json"]) as on_attack:
        found = evaluate_robustness(
            part,
            radii,
            names,
            num_steps=options["num_steps"],
            num_restarts=options["num_restarts"],
            seed=options["seed"],
            on_attack=on_attack,
        )
    page = _write_page(chosen, found, options)
    if options["as_json"]:
        record = {
            "path": str(options["path"]),
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
            "report": None if page is None else str(page),
        }
        print_json(record)
    else:
        output.print_attacked(found)
        if page is not None:
            say(f"Report: {page}")
    if found.violations:
        for sentence in found.violations:
            click.secho(f"taut: VIOLATED CERTIFICATE: {sentence}", fg="red", bold=True, err=True)
        raise SystemExit(_VIOLATED)


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

    flat = chosen.classifier.norm.name == "l1"
    if flat and (idle := [name for name in asked if name in ("fgsm", "pgd")]):
        raise click.UsageError(f"--attack {idle[0]} does not support L1: use --attack autoattack.")
    if not asked:
        return ["autoattack"] if flat else ["fgsm", "pgd"]
    if "all" in asked:
        return ["autoattack"] if flat else list(ATTACKS)
    return [name for name in ATTACKS if name in asked]


def _write_page(chosen: ClassifierInput, found: Any, options: dict[str, Any]) -> Path | None:
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
