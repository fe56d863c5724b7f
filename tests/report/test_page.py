"""Pages stand alone: nothing fetched, nothing run, nothing unescaped."""

import base64
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from taut.errors import ArgumentError, MissingExtraError
from taut.report import Meter, Page, Section, Table, check_extras, draw


class Tags(HTMLParser):
    """Every tag with its attributes, and a check that what opens is closed."""

    VOID = frozenset({"meta", "img", "br", "hr", "link", "input"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def paint(axes: Any) -> None:
    axes.plot([0, 1], [1, 0], label="descent")
    axes.legend()


def example() -> Page:
    return Page(
        title="A <title> & more",
        lead="Lead with <script>alert(1)</script>.",
        sections=[
            Section(
                "Numbers",
                ["If a < b & b < c."],
                table=Table(["who", "W₁"], [["ours", Meter(0.98765, 1.0)], ["theirs", "<none>"]]),
                pictures=[draw(paint, alt='a "falling" line', caption="Falls.", title="Line")],
                columns=2,
                note="Small print.",
            )
        ],
        metadata=[("Seed", "7")],
    )


def test_page_is_whole_and_fetches_nothing() -> None:
    html = example().render()
    for tag, attributes in Tags(html).found:
        assert tag not in {"link", "iframe", "object"}
        for name in ("src", "href"):
            assert (attributes.get(name) or "data:").startswith("data:")
    for word in ("@import", "fetch(", "XMLHttpRequest", "import(", "WebSocket"):
        assert word not in html
    assert "url(" not in html


def test_every_word_and_number_is_there_and_escaped() -> None:
    html = example().render()
    for text in (
        "A &lt;title&gt; &amp; more",
        "&lt;script&gt;",
        "If a &lt; b &amp; b &lt; c.",
        "0.988",
        "width: 98.8%",
        "&lt;none&gt;",
        "Falls.",
        "Small print.",
        "How it was run",
    ):
        assert text in html
    images = [attributes for tag, attributes in Tags(html).found if tag == "img"]
    assert [image["alt"] for image in images] == ['a "falling" line']


def test_style_serves_dark_screens_and_narrow_ones() -> None:
    html = example().render()
    assert "prefers-color-scheme: dark" in html
    assert 'name="viewport"' in html


def test_figures_are_svg_and_repeatable() -> None:
    first, again = (draw(paint, alt="line") for _ in range(2))
    assert first == again
    head, _, content = first.source.partition(",")
    assert head == "data:image/svg+xml;base64"
    assert b"<svg" in base64.b64decode(content)


def test_drawing_leaves_the_style_of_others_alone() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    draw(paint, alt="line")
    assert dict(matplotlib.rcParams) == before


def test_write_makes_the_folder(tmp_path: Path) -> None:
    page = example()
    path = page.write(tmp_path / "deep" / "er" / "index.html")
    assert path.read_text(encoding="utf-8") == page.render()


def test_meter_stays_within_its_track() -> None:
    assert Meter(1.2, 1.0).share == 1.0
    assert Meter(-0.2, 1.0).share == 0.0
    assert Meter(1.2, 1.0).text == "1.200"
    with pytest.raises(ArgumentError, match="Meter: `truth` must be finite and positive"):
        Meter(1.0, truth=0.0)


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_a_missing_package_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    sentence = rf"a report needs {package}\. Install it with pip install 'taut\[report\]'"
    with pytest.raises(MissingExtraError, match=sentence):
        check_extras()
