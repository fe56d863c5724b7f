import gzip
import hashlib
import json
import shlex

import numpy as np
import pytest

import taut.data.labelled_loading
import taut.data.official_sets
from support import invoke
from taut.data.official_sets import OFFICIAL_SETS, OfficialFile, OfficialSet


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAUT_DATA", str(tmp_path / "store"))
    return tmp_path


def run(line: str, code: int | None = None):
    return invoke("data", *shlex.split(line), code=code)


def idx(array: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


@pytest.fixture
def tiny(monkeypatch):
    """A set of four files that is known, but that no mirror has."""
    arrays = {
        "train-images-idx3-ubyte.gz": np.arange(48, dtype=np.uint8).reshape(4, 3, 4),
        "train-labels-idx1-ubyte.gz": np.array([0, 1, 1, 0], np.uint8),
        "t10k-images-idx3-ubyte.gz": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        "t10k-labels-idx1-ubyte.gz": np.array([1, 1], np.uint8),
    }
    packed = {name: gzip.compress(idx(array), mtime=0) for name, array in arrays.items()}
    files = tuple(
        OfficialFile(
            name,
            len(data),
            hashlib.sha256(data).hexdigest(),
            hashlib.sha256(gzip.decompress(data)).hexdigest(),
        )
        for name, data in packed.items()
    )
    known = OfficialSet("tiny", "Tiny", files, ("http://127.0.0.1:9/",), ("no", "yes"), ("tiny",))
    for module in (taut.data, taut.data.official_sets, taut.data.labelled_loading):
        monkeypatch.setattr(module, "OFFICIAL_SETS", {"tiny": known})
    return packed


def store(folder, packed):
    (folder / "store" / "tiny").mkdir(parents=True)
    for name, data in packed.items():
        (folder / "store" / "tiny" / name).write_bytes(data)


def test_the_list_says_what_is_there_and_what_is_not(folder, tiny):
    store(folder, dict(list(tiny.items())[:3]))
    result = run("list", code=0)
    assert "digits" in result.output and "in taut" in result.output
    digits, found = json.loads(run("list --json").output)["sets"]
    assert digits["missing"] == []
    assert found["found"] == str(folder / "store" / "tiny")
    assert found["missing"] == ["t10k-labels-idx1-ubyte.gz"]
    assert found["bytes"] == sum(map(len, tiny.values()))
    record = json.loads(run("list --json --data-dir elsewhere").output)
    assert record["data_dir"] == "elsewhere" and record["sets"][1]["found"] is None


def test_the_list_names_every_known_set():
    names = [each["name"] for each in json.loads(run("list --json").output)["sets"]]
    assert names == ["digits", *OFFICIAL_SETS]
    assert "not found" in run("list").output


def test_fetching_what_is_there_checks_it(folder, tiny):
    store(folder, tiny)
    result = run("fetch tiny", code=0)
    assert "Tiny is complete in" in result.stdout
    record = json.loads(run("fetch TINY --json").stdout)
    assert [path.rpartition("/")[2] for path in record["files"]] == list(tiny)


def test_fetching_from_nowhere(folder, tiny):
    result = run("fetch tiny", code=2)
    assert "taut data fetch: no mirror provides train-images-idx3-ubyte.gz: " in result.stderr
    assert not list((folder / "store").rglob("*.gz"))
    assert run("fetch digits").stdout == "digits is part of taut; there is nothing to download.\n"
    result = run("fetch tinny", code=2)
    assert "`NAME` must be one of 'tiny'" in result.stderr


def test_showing_a_known_set(folder, tiny):
    store(folder, tiny)
    result = run("show tiny", code=0)
    assert "tiny: images of 1 x 3 x 4, from 0 to 0.184314, 2 classes" in result.output
    record = json.loads(run("show tiny --json").output)
    assert record["classes"] == ["no", "yes"] and record["range"] == [0, 1]
    assert record["train"] == {"rows": 4, "counts": [2, 2]}
    assert record["test"] == {"rows": 2, "counts": [0, 2]}


def test_showing_digits():
    record = json.loads(run("show digits --json").output)
    assert record["shape"] == [1, 8, 8]
    assert sum(record["train"]["counts"]) + sum(record["test"]["counts"]) == 1797


def test_showing_a_table_with_and_without_labels(folder):
    rows = "".join(f"{i},{i % 3},{'ab'[i % 2]}\n" for i in range(20))
    (folder / "t.csv").write_text("one,two,kind\n" + rows)
    record = json.loads(run("show t.csv --label kind --json").output)
    assert record["columns"] == ["one", "two"] and record["classes"] == ["a", "b"]
    assert record["train"]["counts"] == [8, 8] and record["test"]["counts"] == [2, 2]
    assert (record["min"], record["max"], record["range"]) == (0, 19, None)
    assert "rows of 2 numbers" in run("show t.csv --label -1").output
    (folder / "n.csv").write_text("one,two\n1,2\n3,4\n")
    result = run("show n.csv", code=0)
    assert "2 rows of 2 numbers, no labels" in result.output
    record = json.loads(run("show n.csv --json").output)
    assert record["classes"] is None and record["rows"] == 2
    result = run("show n.csv --label three", code=2)
    assert "`--label` must be among 'one', 'two'" in result.stderr


def test_showing_the_images_of_one_class(folder, tiny):
    store(folder, tiny)
    result = run("show store/tiny/train-images-idx3-ubyte.gz:1 --json", code=0)
    assert json.loads(result.output)["rows"] == 2
