r"""Classifies with a saved network and returns certified radii, with numpy and nothing else.

`python runner.py FILE ROWS.csv` reads what `taut.save` or `taut export --to safetensors` wrote, in
float32, bfloat16 or int8, and prints prediction, margin and radius of every row. It shares no code
with taut, and its file may be copied to where taut is not installed.

The network is computed in float64 beside a bound $e$ of the rounding error of every number: a dense
layer on $n$ inputs adds $(n + 2) (u (|W| |x| + |b|) + 2^{-1073})$ to $|W| e$, with $u = 2^{-53}$;
sorting, magnitudes and ReLU move no number by more than the largest error of those they choose from.
With the margin $m_i$ of the predicted class over class $i$, and the Lipschitz constant $L_i$ of that margin
from the file,

$$r = \min_i (m_i - e_t - e_i) / L_i :$$

no input nearer than $r$ has another prediction by the network in exact arithmetic, and none where this
program returns a positive radius has another prediction by this program. The constants are the file's
own statement: prove its constant once with `checker.py`, which needs numpy alone as well.
"""

import json
import math
import sys
from typing import Any

import numpy as np

__all__ = ["Runner", "Unsupported"]

U = 2.0**-53 * (1 + 1e-6)
# What underflow may take from a product.
TINY = 2.0**-1073
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I8": "<i1"}
# By how much the margin of one class over another can grow, for outputs that move by 1 in a norm.
PAIR = {"l1": 1.0, "l2": math.sqrt(2) * (1 + 1e-15), "linf": 2.0}


class Unsupported(ValueError):
    """The file, or a layer in it, is not one that this program runs."""


def read(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the tensors of a file in float64, which holds all of them exactly."""
    first = 8 + int.from_bytes(data[:8], "little")
    entries = json.loads(data[8:first])
    header = json.loads(entries.pop("__metadata__")["taut"])
    if header["format"] != 2:
        raise Unsupported(f"the format is {header['format']}, not 2")
    tensors = {}
    for name, entry in entries.items():
        start, stop = (first + offset for offset in entry["data_offsets"])
        flat = np.frombuffer(data[start:stop], DTYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":
            flat = (flat.astype("<u4") << 16).view("<f4")
        tensors[name] = flat.reshape(entry["shape"]).astype(np.float64)
    for name in [n for n in tensors if n.endswith(":row-scale") and n[:-10] in tensors]:
        tensors[name[:-10]] = tensors[name[:-10]] * tensors.pop(name)
    return header, tensors


class Runner:
    """A classifier from a file.

    Args:
        data: content of the file.

    Attributes:
        classes: names of the classes, or their numbers.
        columns: names of the inputs of a table, where they are known.
        norm: norm of the radii.
        tolerance: unit of each input; None if it is 1. Inputs with tolerance 0 do not change.
        margin_lipschitz: proven Lipschitz constants of the margins, `(classes, classes)`.
    """

    def __init__(self, data: bytes) -> None:
        self.header, self.tensors = read(data)
        about = self.header.get("metadata", {})
        # Rows are flat from the start, so what works along a dimension must come behind a Flatten.
        self.flat = len(self._shape()) == 1
        self.layers = list(self._layers(self.header["model"], ""))
        stated = about.get("certificate")
        outputs = self._run(np.zeros((1, *self._shape()))).shape[1]
        if stated is None:
            constant, norm = self.header["constant"], self.header["output_norm"]
            factor = PAIR[norm] if outputs > 1 else 1.0
            stated = {"norm": self.header["norm"], "tolerance": None}
            stated["rates"] = np.full((outputs, outputs), constant * factor)
        self.norm, self.tolerance = stated["norm"], stated["tolerance"]
        self.margin_lipschitz = np.array(stated["rates"], dtype=np.float64)
        self.classes = about.get("classes", [str(i) for i in range(max(2, outputs))])
        self.columns = about.get("columns", [])

    def _shape(self) -> list[int]:
        if self.header["input_shape"] is None:
            raise Unsupported("the file does not state the shape of its inputs")
        return self.header["input_shape"]

    def _layers(self, model: dict[str, Any], path: str) -> Any:
        if model["kind"] == "Sequential":
            for name, child in model["children"]:
                yield from self._layers(child, f"{path}.{name}" if path else name)
            return
        kind, arguments = model["kind"], model.get("arguments", {})
        if kind == "Flatten":
            self.flat = self.flat or (arguments["start_dim"], arguments["end_dim"]) == (1, -1)
        elif kind not in ("Identity", "Dropout", "Scale", "Abs", "ReLU") and not (
            kind in ("Linear", "MaxMin", "GroupSort", "FullSort")
            and self.flat
            and arguments.get("dim", -1) in (-1, 1)
        ):
            raise Unsupported(f"layer `{path}` ({kind}) is not one that this program runs there")
        names = [f"{path}.{name}" if path else name for name in ("weight", "bias")]
        yield kind, arguments, *(self.tensors.get(name) for name in names)

    def _run(self, x: np.ndarray) -> np.ndarray:
        return self.evaluate(x)[0]

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The outputs for `(n, ...)` in float64, and bounds of their rounding errors."""
        x = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
        error = np.zeros_like(x)
        for kind, arguments, weight, bias in self.layers:
            if kind == "Linear":
                size = np.abs(x) @ np.abs(weight).T + (0.0 if bias is None else np.abs(bias))
                room = 1 + (x.shape[1] + 4) * U
                error = (error @ np.abs(weight).T + (x.shape[1] + 2) * (U * size + TINY)) * room
                x = x @ weight.T + (0.0 if bias is None else bias)
            elif kind == "Scale":
                factor = arguments["factor"]
                error = (error + 2 * U * np.abs(x)) * abs(factor) * (1 + 4 * U) + TINY
                x = x * factor
            elif kind in ("MaxMin", "GroupSort", "FullSort"):
                x, error = sort_groups(kind, arguments, x, error)
            elif kind == "Abs":
                x = np.abs(x)
            elif kind == "ReLU":
                x = np.maximum(x, 0.0)
        return x, error

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Predicted class numbers, margins and certified radii of `(n, ...)` inputs."""
        outputs, error = self.evaluate(x)
        if outputs.shape[1] == 1:
            prediction = (outputs[:, 0] > 0).astype(int)
            margin, rate = np.abs(outputs), np.broadcast_to(self.margin_lipschitz, outputs.shape)
        else:
            prediction = outputs.argmax(1)
            rows = np.arange(len(outputs))
            margin = outputs[rows, prediction][:, None] - outputs
            error = error[rows, prediction][:, None] + error
            rate = self.margin_lipschitz[prediction].copy()
            margin[rows, prediction] = math.inf
            rate[rows, prediction] = 1.0
        # A margin and a quotient are rounded as well.
        sure = margin * (1 - 8 * U) - error * (1 + 8 * U)
        # No slope at all, as of a constant network, is divided by as the smallest float.
        radius = (np.maximum(sure, 0.0) / np.maximum(rate, TINY)).min(1) * (1 - 8 * U)
        radius[~np.isfinite(outputs).all(1)] = 0.0
        return prediction, margin.min(1), radius


def sort_groups(
    kind: str, arguments: dict[str, Any], x: np.ndarray, error: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sorts groups, of which slice j holds the j-th members; entries get the largest error of theirs."""
    size = {"MaxMin": 2, "FullSort": x.shape[1]}.get(kind) or arguments["group_size"]
    groups = np.sort(x.reshape(len(x), size, -1), axis=1)
    if kind == "MaxMin":
        groups = groups[:, ::-1]
    worst = error.reshape(len(x), size, -1).max(1, keepdims=True)
    return groups.reshape(x.shape), np.broadcast_to(worst, groups.shape).reshape(x.shape)


def main(path: str, table: str) -> None:
    """Prints a line for each row of a CSV file of numbers, with or without a header."""
    with open(path, "rb") as file:
        runner = Runner(file.read())
    with open(table, encoding="utf-8") as file:
        first = file.readline().strip().split(",")
    columns = [first.index(name) for name in runner.columns if name in first]
    named = len(columns) == len(runner.columns) > 0
    rows = np.loadtxt(
        table, delimiter=",", skiprows=int(named), usecols=columns if named else None, ndmin=2
    )
    sys.stdout.write("row,prediction,margin,radius\n")
    for row, (number, margin, radius) in enumerate(zip(*runner(rows), strict=True)):
        line = f"{row},{runner.classes[number]},{float(margin)!r},{float(radius)!r}\n"
        sys.stdout.write(line)


if __name__ == "__main__":
    main(*sys.argv[1:3])
