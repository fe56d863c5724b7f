"""`taut verify`: what an independent checker proves of a saved network."""

import json
from pathlib import Path

import click

__all__ = ["verify"]


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--sha256",
    help="SHA-256 digest that the file must have, from a source you trust, like its author's page.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object instead of a sentence."
)
def verify(path: Path, sha256: str | None, as_json: bool) -> None:
    """Prove the stated Lipschitz constant of a saved network with an independent checker.

    PATH is a file written by taut.save, or the folder of a run of taut train. The checker is one
    short file, taut/checker.py, that shares no code with the prover and needs numpy alone; anyone
    can run it without taut: python checker.py FILE. It proves the norm of each layer from the
    stored weights and a witness stored beside them, rounding included.

    A proof says that the stored network has the stated constant. It does not say who wrote the
    file: compare its digest with one that you have from elsewhere, by --sha256.

    Exit status: 0 proven; 1 refused; 2 an option is wrong.

    \b
    Example:
      python -c "import taut; taut.save(taut.nn.mlp([784, 64, 10]), 'net.safetensors')"
      sha256sum net.safetensors
      taut verify net.safetensors --sha256 DIGEST
    """
    from taut.checker import Refused, check
    from taut.cli.audit import network_file

    file = network_file(path)
    report: dict[str, object] = {"file": str(file)}
    try:
        report |= {"verdict": "proven", **check(file.read_bytes(), sha256)}
        line = (
            f"proven: Lipschitz constant <= {report['constant']!r} "
            f"({report['norm']} to {report['output_norm']})"
        )
    except Refused as error:
        report |= {"verdict": "refused", "reason": str(error)}
        line = f"refused: {file.name}: {error}"
    click.echo(json.dumps(report) if as_json else line)
    if report["verdict"] == "refused":
        raise SystemExit(1)
