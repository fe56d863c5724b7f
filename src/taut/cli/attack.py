"""`taut attack`: the honest attack next to the proof."""

from pathlib import Path
from typing import Any

import click

from taut.cli.classifier_options import Chosen, choose, classifier_options

__all__ = ["attack"]

_SHARES = (0.5, 1.0, 1.5, 2.0)
_VIOLATED = 3


@click.command()
@classifier_options
@click.option(
    "--attack",
    "attacks",
    type=click.Choice(["fgs", "pgd", "autoattack", "all"]),
    multiple=True,
    help="May be given several times; AutoAttack is the strongest and the slowest.  [default: "
    "fgs and pgd, in L1 autoattack]",
)
@click.option("--steps", type=click.IntRange(min=1), default=200, show_default=True, help="Of pgd.")
@click.option(
    "--restarts", type=click.IntRange(min=1), default=1, show_default=True, help="Of pgd."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Attack at most so many examples, evenly spread.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Decides every draw.")
@click.option(
    "--report/--no-report",
    default=True,
    help="Renew the page of the run, index.html in its folder.  [default: report]",
)
@click.option(
    "--page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PAGE.html",
    help="Write the page there instead.",
)
def attack(**options: Any) -> None:
    """Attack a classifier, and hold each success against the proof.

    PATH is the folder of a run of taut train, or a network that taut.save wrote (then --data says
    which examples, and --radius how far). Clean, proven and attacked accuracy stand side by side;
    the page of the run is renewed with the attacks in it.

    Exit status: 0 attacked; 2 a file or an option is wrong; 3 an attack succeeded inside a proven
    radius, which would be an error of taut: please report it.

    \b
    Examples:
      taut attack runs/a
      taut attack runs/a --attack all --limit 200
      taut attack runs/a --attack pgd --radius 0.1 --radius 0.3 --restarts 10 --json
      taut attack net.safetensors --data mnist --norm l2 --radius 1.58
    """
    from taut.cli import classifier_output as output
    from taut.cli.wasserstein_output import print_json
    from taut.lab.robustness import attack as assault
    from taut.lab.robustness import spread_rows
    from taut.report import check_extras

    if options["page"] or (options["report"] and options["path"].is_dir()):
        check_extras()
    chosen = choose(options)
    radii = _radii(chosen, options)
    names = _attacks(chosen, options["attacks"])
    part = chosen.subject.take(spread_rows(len(chosen.subject.examples), options["limit"]))
    total = len(names) * len(radii) + 1
    with output.attack_progress(total, quiet=options["as_json"]) as on_attack:
        found = assault(
            part,
            radii,
            names,
            num_steps=options["steps"],
            num_restarts=options["restarts"],
            seed=options["seed"],
            on_attack=on_attack,
        )
    page = _write_page(chosen, found, options)
    if options["as_json"]:
        record = {
            "path": str(options["path"]),
            "data": chosen.subject.name,
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
            output.say(f"The page: {page}")
    if found.violations:
        for sentence in found.violations:
            click.secho(f"taut: VIOLATED CERTIFICATE: {sentence}", fg="red", bold=True, err=True)
        raise SystemExit(_VIOLATED)


def _radii(chosen: Chosen, options: dict[str, Any]) -> list[float]:
    if options["radii"]:
        return sorted(set(options["radii"]))
    if chosen.radius is None:
        raise click.UsageError(
            "say how far to attack: --radius is known only for the trained norm."
        )
    return [share * chosen.radius for share in _SHARES]


def _attacks(chosen: Chosen, asked: tuple[str, ...]) -> list[str]:
    from taut.lab.robustness import ATTACKS

    flat = chosen.subject.norm.name == "l1"
    if flat and (idle := [name for name in asked if name in ("fgs", "pgd")]):
        raise click.UsageError(
            f"--attack {idle[0]} follows a gradient, and L1 has none to follow: use --attack "
            "autoattack."
        )
    if not asked:
        return ["autoattack"] if flat else ["fgs", "pgd"]
    if "all" in asked:
        return ["autoattack"] if flat else list(ATTACKS)
    return [name for name in ATTACKS if name in asked]


def _write_page(chosen: Chosen, found: Any, options: dict[str, Any]) -> Path | None:
    path = options["page"]
    if path is None and options["report"] and chosen.run is not None and options["data"] is None:
        path = options["path"] / "index.html"
    if path is None:
        return None
    from taut.report.classifier import classifier_page, run_facts

    facts = [] if chosen.run is None else run_facts(chosen.run)
    told = ", ".join(f"{name.partition('_')[2] or name} {n}" for name, n in found.settings.items())
    facts.append(("Attacks", f"{', '.join(found.distances)}: {told}"))
    radius = chosen.radius or found.radii[0]
    certificates = chosen.subject.certify()
    return classifier_page(
        chosen.subject, certificates, radius, attacked=found, run=chosen.run, facts=facts
    ).write(path)
