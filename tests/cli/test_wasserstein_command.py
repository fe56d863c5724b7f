"""`taut wasserstein`: every format, every alarm, every bad file, by real runs of the command."""

import gzip
import json
import os
import shlex
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from support import invoke

QUICK = ["--num-steps", "3"]


def run(*words: object, quick: bool = True, code: int | None = None) -> Result:
    return invoke("wasserstein", *words, *(QUICK if quick else []), code=code)


def answer(*words: object, quick: bool = True, code: int = 0) -> dict:
    return json.loads(run(*words, "--json", quick=quick, code=code).stdout)


def points(shift: float, rows: int = 60, dim: int = 3, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).uniform(size=(rows, dim))
    values[:, 0] += shift
    return values


def write_csv(path: Path, values: np.ndarray, names: str = "", mark: str = ",") -> Path:
    lines = [mark.join(repr(float(cell)) for cell in row) for row in values]
    path.write_text("\n".join([names] * bool(names) + lines) + "\n")
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    names = "height,width,age"
    return (
        write_csv(tmp_path / "a.csv", points(0.0), names),
        write_csv(tmp_path / "b.csv", points(5.0, seed=1), names),
    )


# The distance of two uniform cubes, one moved by 5, is 5.


def make(folder: Path, kind: str, name: str, values: np.ndarray) -> str:
    path = folder / f"{name}.{kind}"
    if kind == "csv":
        write_csv(path, values)
    elif kind == "tsv":
        write_csv(path, values, "a\tb\tc", "\t")
    elif kind == "npy":
        np.save(path, values)
    elif kind == "npz":
        np.savez(path, labels=np.zeros(3), rows=values)
        return f"{path}:rows"
    elif kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        table = pyarrow.table({c: values[:, i] for i, c in enumerate("abc")})
        parquet.write_table(table, path)
    elif kind == "idx":
        content = np.clip(values * 40, 0, 255).astype(np.uint8)
        head = struct.pack(">BBBB", 0, 0, 8, 2) + struct.pack(">II", *content.shape)
        path = folder / f"{name}-idx2-ubyte.gz"
        path.write_bytes(gzip.compress(head + content.tobytes(), mtime=0))
    elif kind == "folder":
        image = pytest.importorskip("PIL.Image")
        path.mkdir()
        for i, row in enumerate(values):
            pixels = np.tile(np.clip(row * 40, 0, 255).astype(np.uint8), (2, 1))
            image.fromarray(pixels).save(path / f"{i:03}.png")
    return str(path)


@pytest.mark.parametrize("kind", ["csv", "tsv", "npy", "npz", "parquet", "idx", "folder"])
def test_every_format_gives_an_interval_around_the_truth(tmp_path: Path, kind: str):
    a, b = (make(tmp_path, kind, name, points(s)) for name, s in (("a", 0.0), ("b", 5.0)))
    found = answer(a, b, "--finite")
    unit = {"idx": 40 / 255, "folder": 40 / 255 * 2**0.5}.get(kind, 1.0)
    # Bytes are whole numbers, so each pixel is off by at most half a step either way.
    tol = 1e-6 if unit == 1 else 2 * 6**0.5 / 255
    assert found["lower"]["value"] - tol <= 5 * unit <= found["upper"]["value"] + tol
    assert found["gap"] < 1e-6
    assert (found["a"]["rows"], found["b"]["rows"], found["confidence"]) == (60, 60, 1)


def test_json_tells_everything_and_nothing_else_is_on_standard_output(pair: tuple[Path, Path]):
    found = answer(*pair, "--confidence", "0.9", "--scaling", "robust", "--seed", "4")
    assert set(found) == {
        *("a", "b", "features", "columns", "encoding", "estimate", "lower", "upper", "gap"),
        *("column_comparisons", "confidence", "finite", "p_value", "critic", "scaling", "method"),
        *("num_steps", "seed", "notes", "guarantees", "fail_above", "alarm", "report", "saved"),
        *("seconds", "versions"),
    }
    assert found["a"] == {"path": str(pair[0]), "rows": 60}
    assert found["columns"] == ["height", "width", "age"]
    assert found["lower"]["value"] <= found["upper"]["value"]
    assert found["gap"] == found["upper"]["value"] - found["lower"]["value"]
    assert found["confidence"] == pytest.approx(0.9)
    assert found["lower"]["confidence"] == found["upper"]["confidence"] == pytest.approx(0.95)
    assert 0 < found["p_value"] <= 0.05
    assert 0 < found["critic"]["lipschitz"] <= 1 + 1e-6
    assert (found["scaling"], found["seed"], found["num_steps"]) == ("robust", 4, 3)
    assert (found["finite"], found["alarm"], found["report"]) == (False, False, None)


def test_the_seed_decides(pair: tuple[Path, Path]):
    first, again = (answer(*pair, "--seed", "1") for _ in range(2))
    other = answer(*pair, "--seed", "2")
    assert first["estimate"] == again["estimate"] != other["estimate"]


def test_the_table_has_the_figures_and_the_sentences(pair: tuple[Path, Path]):
    result = run(*pair, "--finite", "--explain", code=0)
    assert result.stdout.startswith("a.csv and b.csv are between ")
    words = " ".join(result.stdout.split())
    for text in ("estimate", "at least", "at most", "gap", "transport potential", "features 3"):
        assert text in words
    for text in ("Lower bound. At least 4.9", "Upper bound. At most 4.9", "Not claimed."):
        assert text in words


@pytest.mark.parametrize("finite", [True, False])
def test_without_explain_there_is_the_answer_and_its_assumptions(
    pair: tuple[Path, Path], finite: bool
):
    result = run(*pair, *["--finite"] * finite)
    headline, estimate, assumed, *notes, more, _ = result.stdout.splitlines()
    assert headline.startswith("a.csv and b.csv are ") and "--explain" in more
    assert estimate.endswith("in the data's own units; 60 and 60 rows of 3 features.")
    if finite:
        assert assumed == (
            "The bounds hold for these rows, and say nothing about the populations behind them."
        )
    else:
        assert assumed == (
            "Assumption: the rows of each dataset are i.i.d. samples of one population."
        )
        assert notes == [
            "Note: The upper bound assumes that neither population is wider than the data."
        ]


def test_columns_that_are_left_out_are_named_without_explain(tmp_path: Path):
    for name in "ab":
        lines = [f"{i % 7},{name}{i}" for i in range(60)]
        (tmp_path / f"{name}.csv").write_text("size,note\n" + "\n".join(lines) + "\n")
    result = run(tmp_path / "a.csv", tmp_path / "b.csv", "--finite")
    assert "Left out: note (text, 120 different values)." in result.stdout


def test_unseen_values_are_told_when_new_rows_are_scored(tmp_path: Path):
    for name, colours in {"a": "rgb", "b": "rgb", "new": "rgx"}.items():
        lines = [f"{i % 7},{colours[i % 3]}" for i in range(60)]
        (tmp_path / f"{name}.csv").write_text("size,colour\n" + "\n".join(lines) + "\n")
    critic = tmp_path / "critic.safetensors"
    run(tmp_path / "a.csv", tmp_path / "b.csv", "--save", critic)
    judge = ("--critic", critic, "--score", tmp_path / "new.csv")
    (note,) = answer(*judge, quick=False)["notes"]
    assert "unseen categories or gaps in 'colour'" in note
    assert "may be too small" in " ".join(run(*judge, quick=False).stdout.split())


def test_the_alarm_is_the_lower_bound(pair: tuple[Path, Path]):
    low = answer(*pair, "--finite")["lower"]["value"]
    below, above = np.nextafter(low, 0), np.nextafter(low, 9)
    assert answer(*pair, "--finite", "--fail-above", repr(float(below)), code=1)["alarm"]
    for limit in (low, above):
        assert not answer(*pair, "--finite", "--fail-above", repr(float(limit)))["alarm"]
    told = run(*pair, "--finite", "--fail-above", "1", code=1)
    assert "is above 1." in told.stdout
    told = run(*pair, "--finite", "--fail-above", "6", code=0)
    assert "is not above 6." in told.stdout


def test_one_population_raises_no_alarm(tmp_path: Path):
    a, b = (write_csv(tmp_path / f"{i}.csv", points(0.0, seed=i)) for i in (1, 2))
    assert not answer(a, b, "--fail-above", "0.05")["alarm"]
    # As they are, the two sets do differ.
    assert answer(a, b, "--fail-above", "0.05", "--finite", code=1)["alarm"]


def test_columns_by_name_and_position(pair: tuple[Path, Path], tmp_path: Path):
    assert answer(*pair, "--finite", "--columns", "width,age")["upper"]["value"] < 0.5
    found = answer(*pair, "--finite", "--columns", " age , 0")
    assert found["columns"] == ["height", "age"]  # in the order of the file
    assert found["lower"]["value"] > 4.9
    odd = write_csv(tmp_path / "odd.csv", points(0.0), '"a,b",c,d')
    assert answer(odd, odd, "--finite", "--columns", '"a,b",d')["columns"] == ["a,b", "d"]


def test_columns_in_another_order_are_matched_and_noted(pair: tuple[Path, Path], tmp_path: Path):
    other = write_csv(tmp_path / "c.csv", points(5.0, seed=1)[:, ::-1], "age,width,height")
    straight, turned = (answer(pair[0], b, "--finite") for b in (pair[1], other))
    assert turned["estimate"] == pytest.approx(straight["estimate"], abs=1e-9)
    assert turned["notes"] == ["columns of c.csv were put into the order of a.csv"]


def test_streams_are_read_in_parts(pair: tuple[Path, Path]):
    found = answer(*pair, "--stream", "--num-steps", "20", quick=False)
    assert (found["a"]["rows"], found["b"]["rows"]) == (60, 60)
    assert found["lower"]["value"] <= 5 <= found["upper"]["value"]


def test_save_and_score(pair: tuple[Path, Path], tmp_path: Path):
    critic = tmp_path / "deep" / "critic.safetensors"
    saved = answer(*pair, "--save", critic, "--num-steps", "30", quick=False)
    assert saved["saved"] == str(critic)
    assert f"Created folder {critic.parent}" not in run(*pair, "--save", critic).stderr
    near = write_csv(tmp_path / "near.csv", points(0.0, 200, seed=7), "height,width,age")
    far = write_csv(tmp_path / "far.csv", points(5.0, 200, seed=8)[:, ::-1], "age,width,height")
    judge = ["--critic", critic, "--fail-above", "1", "--score"]
    at_a = answer(*judge, near, quick=False)
    at_b = answer(*judge, far, "--scores-out", tmp_path / "new" / "s.csv", quick=False, code=1)
    assert set(at_a) == {
        *("critic", "new", "mean_score", "mean_scores_known", "lower_from_a", "lower_from_b"),
        *("scaling", "finite", "method", "seed", "fail_above", "alarm", "scores_out", "notes"),
        "versions",
    }
    assert (at_a["alarm"], at_b["alarm"]) == (False, True)
    assert at_a["lower_from_a"]["value"] < 0.5 < 1 < at_a["lower_from_b"]["value"] <= 5.3
    assert at_b["lower_from_b"]["value"] < 0.5 < 1 < at_b["lower_from_a"]["value"] <= 5.3
    assert at_b["mean_score"] < at_a["mean_score"]
    head, *scores = (tmp_path / "new" / "s.csv").read_text().split()
    assert (head, len(scores)) == ("score", 200)
    assert np.mean([float(score) for score in scores]) == pytest.approx(at_b["mean_score"])
    told = run("--critic", critic, "--score", near, quick=False, code=0)
    assert "Each bound holds with probability 95 %" in " ".join(told.stdout.split())


def test_a_critic_that_is_there_survives_a_run_that_fails(pair: tuple[Path, Path], tmp_path: Path):
    critic = tmp_path / "critic.safetensors"
    answer(*pair, "--finite", "--save", critic)
    before = critic.read_bytes()
    bad = tmp_path / "bad.csv"
    bad.write_text("height,width,age\n1,2,3\n4,,6\n")
    assert run(pair[0], bad, "--save", critic).exit_code == 2
    assert critic.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "b.csv", "bad.csv", critic.name]


BAD_FILES = {
    "other names": ("height,width,weight\n1,2,3\n4,5,6\n", "weight"),
    "fewer columns": ("height,width\n1,2\n3,4\n", "age"),
    "text": ("height,width,age\n1,2,old\n4,5,young\n", "'old'"),
    "infinity": ("height,width,age\n1,2,3\n4,inf,6\n7,8,9\n", "width"),
    "one row": ("height,width,age\n1,2,3\n", "row"),
    "a header alone": ("height,width,age\n", "rows"),
    "nothing": ("", "empty"),
    "too few rows for populations": ("height,width,age\n1,2,3\n4,5,6\n", "20 rows"),
    "a ragged row": ("height,width,age\n1,2,3\n4,5\n", "cells"),
}


@pytest.mark.parametrize("case", BAD_FILES)
@pytest.mark.parametrize("first", [True, False], ids=["as A", "as B"])
def test_a_bad_file_is_one_line_and_status_2(
    pair: tuple[Path, Path], tmp_path: Path, case: str, first: bool
):
    content, clue = BAD_FILES[case]
    bad = tmp_path / "bad.csv"
    bad.write_text(content)
    result = run(*((bad, pair[1]) if first else (pair[0], bad)), code=2)
    assert result.stdout == ""
    told = [line for line in result.stderr.splitlines() if line.startswith("taut wasserstein: ")]
    assert len(told) == 1
    assert clue in told[0]
    assert "Traceback" not in result.stderr


def test_with_json_an_error_is_an_object_on_standard_output(
    pair: tuple[Path, Path], tmp_path: Path
):
    few = write_csv(tmp_path / "few.csv", points(0.0, 5), "height,width,age")
    error = answer(pair[0], few, code=2)["error"]
    assert (error["command"], error["kind"]) == ("taut wasserstein", "ArgumentError")
    assert error["got"] == "60 and 5" and "or use --finite" in error["message"]
    typed = answer(*pair, "--confidence", "2", code=2)["error"]
    assert typed["argument"] == "--confidence" and "0<x<1" in typed["rule"]


def test_an_error_leaves_no_folders(pair: tuple[Path, Path], tmp_path: Path):
    few, new = write_csv(tmp_path / "few.csv", points(0.0, 5), "height,width,age"), tmp_path / "new"
    outputs = ["--report", new / "deep" / "page.html", "--save", new / "critic.safetensors"]
    assert "Created" not in run(pair[0], few, *outputs, code=2).stderr
    assert not new.exists()
    assert "Created folder" in run(*pair, *outputs).stderr
    assert len(list(new.rglob("*.*"))) == 2


def test_a_missing_file_is_named(pair: tuple[Path, Path]):
    result = run(pair[0], pair[1].with_name("c.csv"), code=2)
    assert "c.csv" in result.stderr


def test_constant_columns_are_measured(tmp_path: Path):
    x, y = points(0.0), points(5.0)
    x[:, 1] = y[:, 1] = 7
    a, b = (write_csv(tmp_path / f"{name}.csv", v) for name, v in (("a", x), ("b", y)))
    assert answer(a, b, "--scaling", "standard", "--finite")["lower"]["value"] > 1
    same = write_csv(tmp_path / "same.csv", np.ones((30, 2)))
    found = answer(same, same)
    assert (found["estimate"], found["lower"]["value"]) == (0, 0)


@pytest.mark.parametrize(
    ("words", "clue"),
    [
        ([], "two datasets are needed"),
        (["{a}"], "two datasets are needed"),
        (["--score", "{a}"], "--score NEW needs --critic"),
        (["{a}", "{b}", "--score", "{a}", "--critic", "{a}"], "neither A nor B"),
        (["{a}", "{b}", "--critic", "{a}"], "--critic can be used only with --score"),
        (["{a}", "{b}", "--scores-out", "s.csv"], "--scores-out can be used only with --score"),
        (["--critic", "{a}", "--score", "{b}", "--report", "p"], "cannot be used with --score"),
        (["--critic", "{a}", "--score", "{b}", "--scaling", "none"], "--scaling cannot be used"),
        (["--critic", "{a}", "--score", "{b}", "--finite"], "--finite cannot be used"),
        (["--critic", "{a}", "--score", "{b}", "--diameter", "1"], "--diameter cannot be used"),
        (["--critic", "{a}", "--score", "{b}", "--num-steps", "9"], "--num-steps cannot be used"),
        (["{a}", "{b}", "--finite", "--confidence", "0.9"], "cannot be used with --finite"),
        (["{a}", "{b}", "--finite", "--method", "betting"], "cannot be used with --finite"),
        (["{a}", "{b}", "--finite", "--diameter", "9"], "cannot be used with --finite"),
        (["{a}", "{b}", "--seed", "-1"], "--seed"),
        (["{a}", "{b}", "--seed", str(2**63)], "--seed"),
        (["{a}", "{b}", "--fail-above", "nan"], "nan"),
        (["{a}", "{b}", "--fail-above", "-1"], "-1"),
        (["{a}", "{b}", "--confidence", "1"], "--confidence"),
        (["{a}", "{b}", "--diameter", "inf"], "must be a finite number; got 'inf'"),
        (
            ["{a}", "{b}", "--columns", "a,,b"],
            "must be a list of columns, such as age,income,3; got 'a,,b'",
        ),
        (["{a}", "{b}", "--columns", "shoe"], "shoe"),
        (["{a}", "{b}", "--names", "age"], "`--names` must name all 3 columns; got 1 names"),
        (
            ["{a}", "{b}", "--diameter", "0.1"],
            "`--diameter` must be at least every distance inside a sample; got 0.1, and two points of "
            "the first sample",
        ),
        (["{a}", "{b}", "--save", "{b}"], "must not be written over inputs"),
        (["{a}", "{b}", "--report", "{a}/x.html"], "must be a folder, not a file"),
        (["{a}", "{b}", "--report", "{folder}"], "must be a file, not a folder"),
        (["{a}", "{b}", "--report", "{folder}/o", "--save", "{folder}/o"], "different files"),
        (["--critic", "{a}", "--score", "{b}"], "a.csv"),
    ],
)
def test_wrong_words_are_told(pair: tuple[Path, Path], words: list[str], clue: str):
    a, b = pair
    given = [word.format(a=a, b=b, folder=a.parent) for word in words]
    result = run(*given, quick="--score" not in words, code=2)
    assert clue in result.stderr
    assert result.stdout == ""


def test_the_page_is_written_with_the_command_that_repeats_it(
    pair: tuple[Path, Path], tmp_path: Path
):
    page = tmp_path / "new" / "page.html"
    words = (*map(str, pair), "--columns", "height,age", "--report", str(page))
    result = run(*words, code=0)
    html = page.read_text(encoding="utf-8")
    assert shlex.join(["taut", "wasserstein", *words, *QUICK, "--seed", "0"]) in html
    headline = result.stdout.splitlines()[0].rstrip(".")
    assert f"<title>{headline}</title>" in html


def test_the_answer_is_told_and_the_critic_kept_where_the_page_fails(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(self, path):
        raise OSError("no space left")

    monkeypatch.setattr("taut.report.page.Page.write", full)
    critic = tmp_path / "critic.safetensors"
    words = ["--finite", "--json", "--report", tmp_path / "page.html", "--save", critic]
    result = run(*pair, *words, code=70)
    assert "Traceback" in result.stderr and "OSError: no space left" in result.stderr
    assert json.loads(result.stdout)["report"] is None
    assert critic.is_file()


@pytest.mark.slow
def test_of_several_processes_only_the_first_speaks(pair: tuple[Path, Path], tmp_path: Path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "taut", "wasserstein", *map(str, pair)]
    critic = tmp_path / "critic.safetensors"
    several = subprocess.run(
        [*command, "--json", "--save", str(critic), *QUICK],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"},
    )
    assert several.returncode == 0, several.stderr
    found = json.loads(several.stdout)
    # Without a terminal, progress is a line in ten seconds.
    assert several.stderr.count("cone critic") <= 1
    assert critic.is_file()
    assert found["estimate"] == pytest.approx(answer(*pair)["estimate"], rel=1e-4)


def test_errors_name_the_options_of_the_command(pair: tuple[Path, Path], tmp_path: Path):
    few = write_csv(tmp_path / "few.csv", points(0.0, 5), "height,width,age")
    assert "or use --finite" in run(pair[0], few).stderr
    other = write_csv(tmp_path / "other.csv", points(0.0), "height,width,weight")
    assert "or use --columns height,width." in run(pair[0], other).stderr
    missing = run(pair[0], tmp_path / "nowhere.csv").stderr
    assert "taut wasserstein: `B` must be an existing file or folder; got" in missing


def test_no_failure_looks_like_the_alarm(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch):
    missing = pair[0].with_name("c.csv")
    told = invoke("--debug", "wasserstein", pair[0], missing)
    assert told.exit_code == 2 and "Traceback" in told.stderr
    for error, status in ((RuntimeError("odd"), 70), (KeyboardInterrupt(), 130)):

        def fail(*_: object, raised: BaseException = error):
            raise raised

        monkeypatch.setattr("taut.cli.wasserstein._compare", fail)
        told = run(*pair, "--fail-above", "0")
        assert told.exit_code == status
        assert ("RuntimeError: odd" in told.stderr) == (status == 70)
