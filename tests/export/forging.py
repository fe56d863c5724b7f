"""Taut files made by hand: what the format says, stated a second time, for honest and evil use."""

import hashlib
import json
import struct
from typing import Any

import numpy as np

CODES = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "bool": "BOOL"}
BLANK = "0" * 64


def linear_header(**changes: Any) -> dict[str, Any]:
    """The header of a file that holds one dense layer of shape (2, 3)."""
    header = {
        "format": 2,
        "sha256": BLANK,
        "model": linear_model(),
        "frozen": [],
        "norm": "l2",
        "output_norm": "l2",
        "constant": 10.0,
        "method": "by hand",
        "input_shape": None,
        "witnesses": {"": {"l2": 10.0, "route": "dense"}},
        "versions": {"taut": "0"},
    }
    return {**header, **changes}


def linear_model(**changes: Any) -> dict[str, Any]:
    arguments = {"in_features": 3, "out_features": 2, "bias": True, **changes}
    return {"kind": "Linear", "arguments": arguments}


def linear_tensors(prefix: str = "") -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0).standard_normal
    return {
        f"{prefix}weight": draw((2, 3)).astype(np.float32),
        f"{prefix}bias": draw(2).astype(np.float32),
    }


def forge(stated: Any, tensors: dict[str, np.ndarray], text: str | None = None) -> bytes:
    """A safetensors file with a right checksum, whatever else is wrong with it."""
    entries: dict[str, Any] = {}
    body = b""
    for name, array in tensors.items():
        blob = np.ascontiguousarray(array).tobytes()
        entries[name] = {
            "dtype": CODES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + len(blob)],
        }
        body += blob
    text = json.dumps(stated, separators=(",", ":")) if text is None else text
    header = json.dumps({"__metadata__": {"taut": text}, **entries}).encode()
    data = struct.pack("<Q", len(header)) + header + body
    return data.replace(BLANK.encode(), hashlib.sha256(data).hexdigest().encode(), 1)


def split(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the tensors of a file, for another `forge`."""
    size = struct.unpack("<Q", data[:8])[0]
    entries = json.loads(data[8 : 8 + size])
    header = json.loads(entries.pop("__metadata__")["taut"])
    names = {code: name for name, code in CODES.items()}
    tensors = {}
    for name, entry in entries.items():
        start, stop = (8 + size + offset for offset in entry["data_offsets"])
        flat = np.frombuffer(data[start:stop], names[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"]).copy()
    return header, tensors
