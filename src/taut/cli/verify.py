"""`taut verify`: what an independent checker proves of a saved network."""

from pathlib import Path
from typing import Any

import click

from taut.cli.parameters import json_option, network_argument, network_file


@click.command()
@network_argument
@click.option(
    "--sha256",
    help="Expected SHA-256 digest of the file, from a source you trust.",
)
@json_option
def verify(path: Path, sha256: str | None, as_json: bool) -> None:
    """Verify the stated Lipschitz constant of a saved network with an independent checker.

    PATH is a file written by taut.save, or the folder of a taut train run. The checker is one
    file, taut/checker.py, which shares no code with the prover and needs only NumPy; it also runs
    without taut: python checker.py FILE. It proves a bound on the norm of each layer from the stored
    weights and from evidence that taut.save stored with them, and accounts for roundoff.

    A file holds the parameters of each layer, and the weights that the layer uses in evaluation mode.
    The proof covers the latter; taut.load computes them again from the parameters, and rejects the file
    if they differ. The proof does not show who wrote the file: to check that, compare its digest with
    one from a source you trust (--sha256).

    Exit status: 0 proven; 1 not proven; 2 missing file or invalid option.

    \b
    Example:
      python -c "import taut; taut.save(taut.nn.mlp([784, 64, 10]), 'net.safetensors')"
      sha256sum net.safetensors
      taut verify net.safetensors --sha256 DIGEST
    """
    from taut.checker import Refused, check
    from taut.cli.output import print_json

    file = network_file(path)
    report: dict[str, Any] = {"file": file}
    try:
        report |= {"verdict": "proven", **check(file.read_bytes(), sha256)}
        line = (
            f"proven: Lipschitz constant <= {report['constant']!r} "
            f"({report['norm']} to {report['output_norm']})"
        )
    except Refused as error:
        report |= {"verdict": "refused", "reason": str(error)}
        line = f"refused: {file.name}: {error}"
    if as_json:
        print_json(report)
    else:
        click.echo(line)
    if report["verdict"] == "refused":
        raise SystemExit(1)
