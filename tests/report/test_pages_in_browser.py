"""Pages in a real browser, as wide as a phone and as a desk: quiet, whole, and never too wide."""

import html
import json
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from fake_experiments import register
from recorded_experiments import on_mnist, sample, write_records
from support import BROWSER, make_classifier
from taut.data import Table
from taut.evaluation import evaluate_robustness
from taut.report import Page, Section
from taut.report.classifier_report import classifier_page
from taut.report.demo import demo_page
from taut.report.demo_run import demo_tasks, run_demo
from taut.report.wasserstein_report import wasserstein_page
from taut.transport import wasserstein
from taut_lab.report.pages import write_report

PHONE, DESK = 390, 1280
TIMEOUT = 240.0  # seconds, for a machine that has much else to do

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no browser: install chromium to test the pages"),
]

# Browsers do not make windows as narrow as a phone; a frame can be. Frames of one folder may be
# looked into, so the page itself is seen, and not a copy.
LOOK = """
onload = () => {
  const found = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, root = page.documentElement;
    const images = [...page.images];
    return {
      page: frame.dataset.page,
      width: Number(frame.width),
      seen: root.clientWidth,
      content: Math.max(root.scrollWidth, page.body.scrollWidth),
      images: images.length,
      missing: images.filter(i => !i.complete || i.naturalWidth === 0).map(i => i.alt),
      unnamed: images.filter(i => !i.alt).length,
      words: page.body.innerText.length,
    };
  });
  document.getElementById("found").textContent = JSON.stringify(found);
};
"""


@dataclass(frozen=True)
class Seen:
    """What the browser found in each frame, and what it complained about."""

    frames: list[dict]
    complaints: list[str]


def see(folder: Path, pages: list[Path]) -> Seen:
    """Opens all pages at both widths in one browser."""
    frames = "\n".join(
        f'<iframe data-page="{page.name}" src="{page.as_uri()}" width="{width}" height="800" '
        'style="border: 0"></iframe>'
        for page in pages
        for width in (PHONE, DESK)
    )
    wrapper = folder / "wrapper.html"
    wrapper.write_text(
        f'<!doctype html><meta charset="utf-8"><body>{frames}<pre id="found"></pre>'
        f"<script>{LOOK}</script></body>",
        encoding="utf-8",
    )
    command = [
        str(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--allow-file-access-from-files",
        "--enable-logging=stderr",
        "--v=0",
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={DESK + 40},900",
        "--dump-dom",
        wrapper.as_uri(),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert run.returncode == 0, run.stderr
    match = re.search(r'<pre id="found">(.*?)</pre>', run.stdout, re.DOTALL)
    assert match and match[1], run.stderr
    complaints = [line for line in run.stderr.splitlines() if ":CONSOLE" in line]
    return Seen(json.loads(html.unescape(match[1])), complaints)


def too_wide(seen: Seen) -> list[tuple[str, int]]:
    return [(f["page"], f["width"]) for f in seen.frames if f["content"] > f["seen"]]


def missing(seen: Seen) -> list[tuple[str, str]]:
    return [(f["page"], alt) for f in seen.frames for alt in f["missing"]]


def demonstration() -> Page:
    tasks = tuple(replace(task, num_steps=5) for task in demo_tasks(quick=True))
    return demo_page(run_demo(seed=1, tasks=tasks, quick=True))


def classifier() -> Page:
    classifier = make_classifier((1, 5, 4), 0.0, 1.0)
    found = evaluate_robustness(classifier, [0.05, 0.1], ["pgd"], num_steps=3, num_minimal=2)
    return classifier_page(classifier, classifier.certify(), 0.05, attacked=found)


def distance() -> Page:
    draws = np.random.default_rng(0)
    names = tuple(f"a column with a rather long name, number {j}" for j in range(12))
    x, y = (Table(draws.uniform(size=(40, 12)) + s, names, None, "rows.csv") for s in (0.0, 1.0))
    result = wasserstein(x, y, num_steps=3)
    metadata = [("Command", "taut wasserstein " + "a-very-long-folder/" * 8 + "rows.csv")]
    return wasserstein_page(result, x, y, names=("old.csv", "new.csv"), metadata=metadata)


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> Seen:
    folder = tmp_path_factory.mktemp("pages")
    ran = sample()
    with pytest.MonkeyPatch.context() as patch:
        register(patch, ran, sample("not-yet-" + "long" * 8, configs=on_mnist))
        write_records(ran, "cpu", folder / "records")
        index = write_report(folder / "records", folder / "lab")
    pages = [
        index,
        folder / "lab" / "sample.html",
        demonstration().write(folder / "demo.html"),
        classifier().write(folder / "classifier.html"),
        distance().write(folder / "distance.html"),
    ]
    return see(folder, pages)


def test_every_page_was_opened_at_both_widths(seen):
    names = ["index.html", "sample.html", "demo.html", "classifier.html", "distance.html"]
    frames = [(frame["page"], frame["width"]) for frame in seen.frames]
    assert frames == [(name, width) for name in names for width in (PHONE, DESK)]
    assert all(frame["seen"] == frame["width"] for frame in seen.frames)
    assert all(frame["words"] > 200 for frame in seen.frames)


def test_the_console_is_quiet(seen):
    assert seen.complaints == []


def test_every_image_is_there_and_has_words(seen):
    assert missing(seen) == []
    assert [frame["page"] for frame in seen.frames if frame["unnamed"]] == []
    images = {frame["page"]: frame["images"] for frame in seen.frames}
    assert images["sample.html"] == 1 and images["index.html"] == 0
    assert min(images[name] for name in ("demo.html", "classifier.html", "distance.html")) >= 2


def test_no_page_is_wider_than_its_screen(seen):
    assert too_wide(seen) == []


def test_what_is_wrong_would_be_seen(tmp_path):
    good = Page("Good", sections=[Section("Words", ["Quiet. " * 50])]).write(tmp_path / "good.html")
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<!doctype html><body><img src="nowhere.png" alt="lost">'
        '<div style="width: 800px">wide</div><script>console.error("loud")</script></body>'
    )
    found = see(tmp_path, [good, bad])
    assert too_wide(found) == [("bad.html", PHONE)]
    assert missing(found) == [("bad.html", "lost")] * 2
    assert len([line for line in found.complaints if "loud" in line]) == 2
