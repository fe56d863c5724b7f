"""`taut audit`: the proven Lipschitz constant of a saved network."""

from pathlib import Path

import click

from taut.cli.parameters import (
    NORM,
    NOT_NEGATIVE,
    input_shape_option,
    json_option,
    network_argument,
    network_file,
)
from taut.errors import ArgumentError, NoRuleError
from taut.names import NormName


@click.command()
@network_argument
@click.option(
    "--norm",
    type=NORM,
    help="Norm of the inputs and outputs.  [default: the norms stored in the file]",
)
@input_shape_option
@click.option(
    "--at-most",
    type=NOT_NEGATIVE,
    help="Largest allowed constant; exit with status 1 if the proven constant exceeds it.",
)
@json_option
def audit(
    path: Path,
    norm: NormName | None,
    input_shape: tuple[int, ...] | None,
    at_most: float | None,
    as_json: bool,
) -> None:
    """Prove a bound on the Lipschitz constant of a saved network, layer by layer.

    PATH is a file written by taut.save, or the folder of a taut train run. No code from the file is run;
    its checksum and the shapes of its weights are verified. The constant is proven from the stored
    weights, and covers the roundoff of computing it.

    Exit status: 0 proven; 1 not proven, or above --at-most; 2 invalid file or option.

    \b
    Example:
      python -c "import taut; taut.save(taut.nn.mlp([784, 64, 10]), 'net.safetensors')"
      taut audit net.safetensors --norm l2 --at-most 1
    """
    from taut.audit import bound_lipschitz
    from taut.cli.output import print_json, print_table, say
    from taut.export import open_file
    from taut.norms import as_norm

    file = network_file(path)
    if file.suffix in (".pt2", ".onnx", ".pt", ".pth"):
        rule, got = "must be a file written by taut.save", "which does not list its layers"
        remedy = "Audit the safetensors file it was made from, or call taut.bound_lipschitz."
        raise ArgumentError(argument="PATH", rule=rule, got=f"{file.name}, {got}", remedy=remedy)
    saved = open_file(file)
    shape = input_shape or saved.input_shape
    assert saved.bound.norm is not None
    p, q = (as_norm(norm),) * 2 if norm else (saved.bound.norm, saved.output_norm)
    bound, reason = None, None
    try:
        bound = bound_lipschitz(saved.model, p, shape, q)
        if at_most is not None and bound.value > at_most:
            reason = f"above {at_most:g}, the largest allowed constant"
    except NoRuleError as error:
        reason = str(error.replace(subject=""))
    verdict = "proven" if reason is None else "refused"
    if as_json:
        layers = [
            {"name": r.name, "kind": r.kind, "factor": r.value, "proven_by": r.method}
            for r in (bound.layers if bound else ())
        ]
        print_json(
            {
                **{"file": path, "verdict": verdict, "reason": reason},
                "constant": bound and bound.value,
                **{"norm": str(p), "output_norm": str(q), "at_most": at_most, "layers": layers},
                "hypotheses": list(bound.hypotheses.statements) if bound else [],
                "digest": bound and bound.hypotheses.digest,
                "written_by": saved.versions,
            }
        )
    else:
        if bound is not None:
            rows = [(r.name, r.kind, _decimals(r.value), r.method) for r in bound.layers]
            print_table(["layer", "kind", "factor", "proven by"], rows, left=(0, 1, 3))
            norms = str(p) if p == q else f"{p} to {q}"
            say(f"Lipschitz constant <= {_decimals(bound.value)} ({norms}), where:")
            say(str(bound.hypotheses))
        text = verdict if reason is None else f"{verdict}: {reason}"
        say(text, style="green" if reason is None else "red")
    if reason is not None:
        raise SystemExit(1)


def _decimals(value: float) -> str:
    from taut.report import format_bound

    return str(float(format_bound(value, "upper", 6)))
