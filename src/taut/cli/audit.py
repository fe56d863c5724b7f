"""`taut audit`: what is proven of a saved network."""

import json
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

    from taut.bounds import Bound

__all__ = ["ShapeType", "audit", "network_file"]


class ShapeType(click.ParamType):
    """Whole numbers with commas between them: the shape of one input, or another list of sizes.

    Args:
        what: what the list is, for the sentence about one that is none.
        example: how to write one.
    """

    name = "shape"

    def __init__(self, what: str = "a shape", example: str = "784 or 1,28,28") -> None:
        self.what = what
        self.example = example

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """From text such as `1,28,28`."""
        if isinstance(value, tuple):
            return value
        parts = str(value).split(",")
        if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
            self.fail(
                f"{value!r} is not {self.what}, positive whole numbers with commas between them; "
                f"write it like {self.example}.",
                param,
                ctx,
            )
        return tuple(int(part) for part in parts)


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--norm",
    type=click.Choice(["l1", "l2", "linf"]),
    help="The norm of input and output.  [default: those the file was saved with]",
)
@click.option(
    "--input-shape",
    type=ShapeType(),
    help="The shape of one input, like 1,28,28.  [default: as saved, or the first layer's]",
)
@click.option(
    "--at-most",
    type=click.FloatRange(min=0),
    help="Fail unless the constant is proven to be at most this.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def audit(
    path: Path,
    norm: str | None,
    input_shape: tuple[int, ...] | None,
    at_most: float | None,
    as_json: bool,
) -> None:
    """Prove the Lipschitz constant of a saved network, layer by layer.

    PATH is a file written by taut.save, or the folder of a run of taut train. Its checksum, shapes
    and numbers are verified, no code of it is run, and the constant is proven from the stored
    weights, rounding included.

    Exit status: 0 proven; 1 refused, or above --at-most; 2 the file or an option is wrong.

    \b
    Example:
      python -c "import taut; taut.save(taut.nn.mlp([784, 64, 10]), 'net.safetensors')"
      taut audit net.safetensors --norm l2 --at-most 1
    """
    from rich.console import Console

    from taut.audit import bound_lipschitz
    from taut.errors import NoRuleError
    from taut.export import open_file
    from taut.norms import as_norm

    saved = open_file(_taut_file(network_file(path)))
    shape = input_shape or saved.input_shape
    assert saved.bound.norm is not None
    p, q = (as_norm(norm),) * 2 if norm else (saved.bound.norm, saved.output_norm)
    bound, reason = None, None
    try:
        bound = bound_lipschitz(saved.model, p, shape, q)
        if at_most is not None and bound.value > at_most:
            reason = f"above the {at_most:g} that was asked for"
    except NoRuleError as error:
        reason = str(error)
    verdict = "proven" if reason is None else "refused"
    if as_json:
        record = {
            "file": str(path),
            "verdict": verdict,
            "reason": reason,
            "constant": bound and bound.value,
            "norm": str(p),
            "output_norm": str(q),
            "at_most": at_most,
            "layers": [
                {"name": r.name, "kind": r.kind, "factor": r.value, "proven_by": r.method}
                for r in (bound.layers if bound else ())
            ],
            "written_by": saved.versions,
        }
        click.echo(json.dumps(record))
    else:
        console = Console()
        if bound is not None:
            console.print(_table(bound))
            value = _rounded_up(bound.value)
            norms = str(p) if p == q else f"{p} to {q}"
            console.print(f"Lipschitz constant <= {value} ({norms})", highlight=False)
        colour = "green" if reason is None else "red"
        text = verdict if reason is None else f"{verdict}: {reason}"
        console.print(text, style=colour, highlight=False, markup=False, soft_wrap=True)
    if reason is not None:
        raise SystemExit(1)


def network_file(path: Path) -> Path:
    """The file itself, or that of the network of a run."""
    if not path.is_dir():
        return path
    from taut.errors import ArgumentError
    from taut.training.folder import RunFolder

    found = RunFolder(path).model_file
    if not found.exists():
        raise ArgumentError(
            f"taut: PATH must be a network or the folder of a finished run; {path} has no "
            f"{found.name}. Finish the run: give the same training command again."
        )
    return found


def _taut_file(path: Path) -> Path:
    from taut.errors import ArgumentError

    if path.suffix in (".pt2", ".onnx", ".pt", ".pth"):
        raise ArgumentError(
            f"audit: PATH must be a file written by taut.save; got {path.name}, which does not name "
            "its layers. Audit the safetensors file it was made from, or call taut.bound_lipschitz."
        )
    return path


def _rounded_up(value: float) -> str:
    """Six digits, never below the value."""
    return str(float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(value)))


def _table(bound: "Bound") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("layer")
    table.add_column("kind")
    table.add_column("factor", justify="right")
    table.add_column("proven by")
    for row in bound.layers:
        table.add_row(row.name, row.kind, _rounded_up(row.value), row.method)
    return table
