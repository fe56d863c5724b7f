"""The pages of experiments show the numbers of the records, and compute none."""

import base64
import html
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from fake_experiments import register
from recorded_experiments import FOUND, on_mnist, sample, write_records
from taut_lab.framework import Check, ResultTable, TableEntry
from taut_lab.framework.records import Records
from taut_lab.report.claim_sentences import compare, difference_text, mean_text
from taut_lab.report.experiment_report import collect_report
from taut_lab.report.pages import write_report
from taut_lab.report.table_markup import escape_latex, escape_markdown, to_latex, to_markdown


class Cells(HTMLParser):
    """The texts of table cells, with the classes of what is inside; and where links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[list[tuple[str, str]]] = []
        self.links: list[str] = []
        self._class = ""
        self._inside = False
        self.feed(text)
        self.cells = [cell for cell in self.cells if cell]

    def handle_starttag(self, tag, attrs):
        held = dict(attrs)
        if tag == "td":
            self.cells.append([])
            self._inside = True
        self._class = held.get("class") or ""
        if tag == "a":
            self.links.append(held["href"] or "")

    def handle_endtag(self, tag):
        self._inside = self._inside and tag != "td"

    def handle_data(self, data):
        if self._inside and data.strip():
            self.cells[-1].append((self._class, data.strip()))


@pytest.fixture
def out(tmp_path, monkeypatch) -> Path:
    """One experiment that was run, one of which nothing is there, and one that needs data."""
    ran = sample()
    register(monkeypatch, ran, sample("not-yet"), sample("hungry", configs=on_mnist))
    write_records(ran, "cpu", tmp_path / "records")
    before = torch.random.get_rng_state()
    index = write_report(tmp_path / "records", tmp_path / "out")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert index == tmp_path / "out" / "index.html"
    return index.parent


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_the_numbers_are_those_of_the_records(out):
    cells = Cells(read(out / "sample.html")).cells
    relu, maxmin = ([error for error, _ in FOUND[net]] for net in ("relu", "maxmin"))
    spread = math.sqrt(0.5)  # of two values that are 1 apart
    assert (sum(relu) / 2, sum(maxmin) / 2) == (7.5, 3.5)
    assert [text for _, text in cells[0]] == [
        f"7.5 ± {spread:.1f} %",
        "paper 5.0 %",
        "+2.5, reduced budget",
    ]
    assert [text for _, text in cells[2]] == [
        f"3.5 ± {spread:.1f} %",
        "paper 5.0 %",
        "-1.5, better",
    ]
    assert [text for _, text in cells[1]] == [f"7.5 ± {spread:.1f} %"]
    assert [kind for kind, text in cells[0] + cells[2] if "," in text] == ["even", "better"]
    # Slopes have no better side: words without a colour.
    assert [text for _, text in cells[4]][-1] == "equal" and cells[4][-1][0] == "even"
    assert cells[5][-1] == ("even", "+0.500, higher")


def test_the_page_shows_the_claim_and_the_provenance(out):
    text = html.unescape(read(out / "sample.html"))
    for words in (
        "The paper claims: Sorting <wins>.",
        "What <came> out.",
        "Lower is better.",
        "A <note>.",
        "taut reproduce sample --preset cpu",
        "smoke: 0 of 2; cpu: 4 of 4; gpu: 0 of 2; paper: 0 of 8",
        "<dt>Seeds</dt><dd>0, 1</dd>",
        "net.hidden [8, 8], steps 10",
        "net.act: relu, maxmin",
        "taut 9.8.7, commit abcdef012345<",
        "abacus, 3 cores, wood",
        "2026-01-01 00:00 to 2026-01-04 00:00 UTC",
        "2 min of CPU time, 5 min wall-clock time",
    ):
        assert words in text, words
    assert "<wins>" not in read(out / "sample.html") and "<b>" not in read(out / "sample.html")


def test_the_index_lists_results_and_commands_for_the_rest(out):
    text = read(out / "index.html")
    assert "1 of 3 experiments" in text and "Experiments without records" in text
    assert ">1 better, 1 equal, 1 not comparable, 1 higher</td>" in text
    assert "taut reproduce not-yet --preset cpu</code>" in text
    assert "taut reproduce hungry --preset cpu --data-dir DATA</code>" in text
    assert not (out / "not-yet.html").exists()


def test_every_link_leads_to_a_file(out):
    pages = sorted(out.glob("*.html"))
    links = [(page, link) for page in pages for link in Cells(read(page)).links]
    assert {"sample.html", "index.html", "figures/sample-curve.png", "tables.tex"} <= {
        link for _, link in links
    }
    assert [link for page, link in links if not (page.parent / link).is_file()] == []


def test_figures_are_in_the_page_and_beside_it(out):
    svg = (out / "figures" / "sample-curve.svg").read_bytes()
    assert b"<svg" in svg
    assert (out / "figures" / "sample-curve.png").read_bytes().startswith(b"\x89PNG")
    (source,) = re.findall(
        r'<img class=chart src="data:image/svg\+xml;base64,([^"]+)"', read(out / "sample.html")
    )
    assert base64.b64decode(source) == svg


def test_equal_records_give_equal_files(out, tmp_path):
    again = write_report(tmp_path / "records", tmp_path / "again").parent
    files = {path.relative_to(out): path.read_bytes() for path in out.rglob("*.*")}
    assert files == {path.relative_to(again): path.read_bytes() for path in again.rglob("*.*")}


def test_a_damaged_record_is_reported_and_the_rest_is_shown(tmp_path, monkeypatch):
    ran, folder = sample(), tmp_path / "records"
    register(monkeypatch, ran)
    paths = write_records(ran, "cpu", folder)
    paths[0].write_text(paths[0].read_text()[:50])
    index = write_report(folder, tmp_path / "out")
    for page in (index, tmp_path / "out" / "sample.html"):
        assert f"{paths[0]} is not a complete record" in html.unescape(read(page))
    text = read(tmp_path / "out" / "sample.html")
    assert "1 of 4 cells are missing" in text and "cpu: 3 of 4" in text
    assert Cells(text).cells[0][0][1] == "8.0 %"  # one seed is left, and it has no spread


def test_failed_cells_and_unknown_files_are_reported(tmp_path, monkeypatch):
    ran, folder = sample(), tmp_path / "records"
    register(monkeypatch, ran)
    write_records(ran, "smoke", folder)
    reason = Records(folder).write_error(ran.cells("cpu")[0], "ValueError: no")
    (folder / "sample" / "0000000000000000.json").write_text("{}")
    text = read(write_report(folder, tmp_path / "out"))
    assert f"failed: see {reason}" in text
    assert "1 of the files" in text and "are not shown" in text


@pytest.mark.parametrize(
    ("begun", "shown"),
    [
        ({}, None),
        ({"smoke": 1}, "smoke"),
        ({"smoke": 2, "cpu": 1}, "cpu"),
        ({"smoke": 2, "cpu": 4, "paper": 1}, "cpu"),
        ({"cpu": 3, "paper": 1}, "cpu"),
    ],
    ids=lambda value: str(value),
)
def test_which_preset_is_shown(tmp_path, begun, shown):
    ran = sample()
    for preset, kept in begun.items():
        if preset == "paper":
            # Only the seeds that FOUND has.
            ran_small = sample(configs=lambda p: [c for c in ran.configs(p) if c["seed"] < 2])
            paths = write_records(ran_small, preset, tmp_path)
        else:
            paths = write_records(ran, preset, tmp_path)
        for path in paths[kept:]:
            path.unlink()
    assert collect_report(ran, Records(tmp_path)).preset == shown


def test_without_records_the_index_lists_commands_alone(tmp_path, monkeypatch):
    register(monkeypatch, sample())
    text = read(write_report(tmp_path / "nothing", tmp_path / "out"))
    assert "0 of 1 experiments" in text and "<h2>Results" not in text


def test_the_index_opens_with_verdicts(tmp_path, monkeypatch):
    def checks(results):
        found = {
            act: [r.outcome.numbers["error"] for r in results if r.config["net"]["act"] == act]
            for act in ("relu", "maxmin")
        }
        return [Check("fewer errors by sorting", {"test": (found["relu"], found["maxmin"])})]

    judged, waiting = sample(checks=checks), sample("not-yet", checks=checks)
    register(monkeypatch, judged, waiting, sample("extra", label="ours"))
    write_records(judged, "cpu", tmp_path / "records")
    index = write_report(tmp_path / "records", tmp_path / "out")
    texts = [[text for _, text in cell] for cell in Cells(read(index)).cells]
    assert texts[1:5] == [
        ["confirmed"],
        ["Holds: fewer errors by sorting."],
        ["2"],
        ["seeds 2 (paper 4)"],
    ]
    assert texts[6:8] == [["undecided"], ["No cells have been run."]]
    assert "1 confirmed, 1 undecided" in read(index) and read(index).count("Sorting") == 3
    page = read(tmp_path / "out" / "sample.html")
    assert "test: 7.5 &gt; 3.5, holds" in page


@pytest.mark.parametrize("better", ["higher", "lower", None])
@pytest.mark.parametrize("ours", [0.0, 0.4, 0.5004, 0.6, math.nan, math.inf])
def test_comparison_and_difference_agree(better, ours):
    table = ResultTable("t", ["c"], {}, better=better)
    entry = TableEntry([ours], paper=0.5)
    word = compare(entry, table)
    if not math.isfinite(ours):
        assert word == "" and difference_text(entry, table) == ""
    elif ours == 0.5004:
        assert word == "equal"
    else:
        above = ours > 0.5
        assert difference_text(entry, table).startswith("+" if above else "-")
        words = {
            "higher": ("worse", "better"),
            "lower": ("better", "worse"),
            None: ("lower", "higher"),
        }
        assert word == words[better][above]
        reduced = compare(entry, replace(table, comparable=False))
        assert reduced == ("not comparable" if word == "worse" else word)


def test_markdown_and_latex_tables(out):
    markdown, latex = read(out / "tables.md"), read(out / "tables.tex")
    assert (
        "| ReLU & \\<b\\> | 7.5 ± 0.7 % [5.0 %; +2.5, reduced budget] | 7.5 ± 0.7 % |" in markdown
    )
    assert (
        r"ReLU \& \textless{}b\textgreater{} & 7.5 $\pm$ 0.7 \% {[}5.0 \%; +2.5, reduced budget]"
        in latex
    )
    assert r"Max\_Min & " in latex
    for name in ("table", "tabular"):
        assert latex.count(rf"\begin{{{name}}}") == latex.count(rf"\end{{{name}}}") == 2
    # Without it nobody knows what the brackets are.
    legend = "in brackets the paper's value and the difference"
    assert markdown.count(legend) == latex.count(legend) >= 1


def test_special_characters_are_escaped():
    nasty = "".join(map(chr, range(32, 127))) + "±×√ε₁²字\n"
    table = ResultTable(nasty, [nasty], {nasty: [TableEntry([1.0])]})
    rows = to_markdown(table).splitlines()
    assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows] == [3, 3, 3]
    assert "`" not in escape_markdown("`a`").replace("\\`", "")
    for line in to_latex(table).splitlines()[2:-1]:
        if line != r"\hline":
            bare = re.sub(r"\\[&%$#_{}]", "", line)
            assert bare.count("&") == 1 and bare.endswith(r"\\")
            assert bare.count("{") == bare.count("}") and bare.count("$") % 2 == 0
            assert not set("%#_~") & set(bare.replace("$_1$", ""))
    assert escape_latex("字") == "?"
    assert mean_text(TableEntry(), table) == "-"
