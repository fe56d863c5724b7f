"""What readers do with a page: sort, slide, point, turn; with the mouse, the keys, or no script at all."""

import dataclasses
import json
import math

import numpy as np
import pytest

from taut.plotting import draw
from taut.report import Page, Section
from taut.report.page import AccuracyCurve, Table

pytestmark = pytest.mark.slow


def test_tables_sort_and_the_slider_counts_what_is_certified(browser, tmp_path):
    rows = [["b", "10.5"], ["a", "9"], ["c", "1,000"], ["d", "none"]]
    curve = AccuracyCurve([0.1, 0.2, 0.4], total=4)
    section = Section("Numbers", table=Table(["name", "value"], rows), curve=curve)
    path = Page("Numbers", sections=[section]).write(tmp_path / "numbers.html")
    page = browser.new_page()
    page.goto(path.as_uri())
    names = "() => [...document.querySelectorAll('tbody th')].map(cell => cell.textContent)"
    page.click("text=value")
    assert page.evaluate(names) == ["a", "b", "c", "d"]
    page.click("text=value")
    assert page.evaluate(names) == ["d", "c", "b", "a"]
    page.click("text=name")
    assert page.evaluate(names) == ["a", "b", "c", "d"]
    assert page.inner_text(".slider output") == "0.00: 75.0 % certified"
    page.locator(".slider input").fill("500")  # half of the largest radius: 0.2, which is excluded
    assert page.inner_text(".slider output") == "0.200: 25.0 % certified"


def test_dates_sort_as_dates_and_numbers_in_names_as_numbers(browser, tmp_path):
    rows = [["b10", "2024-02-01"], ["b9", "2024-01-09"], ["b1", "2023-12-31"]]
    section = Section("Sorted", table=Table(["name", "day"], rows))
    page = browser.new_page()
    page.goto(Page("Sorted", sections=[section]).write(tmp_path / "days.html").as_uri())
    names = "() => [...document.querySelectorAll('tbody th')].map(cell => cell.textContent)"
    page.click("text=day")
    assert page.evaluate(names) == ["b1", "b9", "b10"]
    page.click("text=day")
    page.click("text=name")
    assert page.evaluate(names) == ["b1", "b9", "b10"]


def test_the_page_is_used_without_a_mouse(browser, tmp_path):
    table = Table(["", "value"], [["b", "2"], ["a", "1"], ["c", "3"]])
    curve = AccuracyCurve([0.12344, 0.12344, 0.37], total=3)
    section = Section("Numbers", table=table, curve=curve)
    path = Page("Numbers", sections=[section]).write(tmp_path / "numbers.html")
    page = browser.new_page()
    page.goto(path.as_uri())
    assert page.locator("thead button").count() == 1  # none where there is nothing to press
    page.locator("thead button").press("Enter")
    assert page.locator("tbody th").all_inner_texts() == ["a", "b", "c"]
    output = page.locator(".slider output")
    page.locator(".slider input").press("ArrowRight")
    assert output.inner_text() == "0.000370: 100.0 % certified"
    page.locator(".slider input").fill("333")  # 0.12321, shown as 0.123
    assert output.inner_text() == "0.123: 100.0 % certified"
    page.locator(".slider input").fill("334")  # 0.12358, shown as 0.124
    assert output.inner_text() == "0.124: 33.3 % certified"


def open_section(browser, folder, **parts):
    path = Page("Played", sections=[Section("Played", **parts)]).write(folder / "played.html")
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(path.as_uri())
    return page


def falling(axes):
    x = np.linspace(0, 2, 501)
    axes.plot(x, 100 * np.exp(-x), label="certified", gid="lower")
    axes.plot([0, 1, 2], [90, 60, 50], label="attacked", drawstyle="steps-post")
    axes.hist([0.5, 1.5, 1.5], [0, 1, 2], label="counts")
    axes.plot([0.3, 0.1], [1, 1], label="not a function of x")
    axes.set(xlim=(0, 2), xlabel="radius")


def test_charts_tell_values_at_the_pointer(browser, tmp_path):
    curve = AccuracyCurve([0.5, 1.0], total=2)
    page = open_section(browser, tmp_path, pictures=[draw(falling, alt="Falls.")], curve=curve)
    data = json.loads(page.locator(".picture script").text_content())
    image = page.locator(".picture img")
    frame, inset = image.bounding_box(), 0.6 * 16 + 1
    left, _, width, _ = data["box"]

    def read_at(radius):
        inner = frame["width"] - 2 * inset
        x = frame["x"] + inset + (left + width * radius / 2) * inner
        page.mouse.move(x, frame["y"] + frame["height"] / 2)
        lines = page.locator(".picture output").inner_text().splitlines()
        at = float(lines[0].removeprefix("radius "))
        assert at == pytest.approx(radius, abs=0.01)
        return at, dict(line.split(": ") for line in lines[1:])

    for radius, attacked, count in ((0.4, 90, 1), (1.3, 60, 2)):
        at, found = read_at(radius)
        exact = 100 * math.exp(-at)
        assert exact * 0.99 < float(found["certified"]) <= exact  # rounded down, never up
        assert (float(found["attacked"]), float(found["counts"])) == (attacked, count)
        assert set(found) == {"certified", "attacked", "counts"}
    page.mouse.move(0, 0)
    assert not page.locator(".picture output").is_visible()
    page.locator(".picture").press("ArrowRight")
    assert page.locator(".picture output").is_visible()
    page.locator(".slider input").fill("1000")
    mark = page.locator(".picture i").nth(1).bounding_box()
    inner = frame["width"] - 2 * inset
    assert mark["x"] == pytest.approx(frame["x"] + inset + (left + width / 2) * inner, abs=2)
    assert page.complaints == []


def surface_picture():
    heights = np.add.outer(np.linspace(0, 1, 5), np.linspace(-1, 0, 8)).tolist()
    data = {"heights": heights, "extent": (-3, 3, -1, 1), "low": -1.0, "high": 1.0}
    return dataclasses.replace(draw(lambda axes: axes.imshow(heights), alt="A plane."), data=data)


def test_surfaces_turn_together(browser, tmp_path):
    page = open_section(browser, tmp_path, pictures=[surface_picture()] * 2, columns=2)
    drawn = "() => [...document.querySelectorAll('.surface')].map(each => each.toDataURL())"
    first = page.evaluate(drawn)
    assert first[0] == first[1] and not page.locator(".picture img").first.is_visible()
    frame = page.locator(".surface").first.bounding_box()
    page.mouse.move(frame["x"] + 50, frame["y"] + 50)
    page.mouse.down()
    page.mouse.move(frame["x"] + 150, frame["y"] + 50, steps=4)
    page.mouse.up()
    second = page.evaluate(drawn)
    assert second[0] == second[1] != first[0]
    page.locator(".surface").nth(1).press("ArrowUp")
    assert page.evaluate(drawn)[0] not in (first[0], second[0])
    page.click("text=Show maps")
    assert page.locator(".picture img").first.is_visible()
    assert not page.locator(".surface").first.is_visible()
    assert page.complaints == []


def test_without_scripts_pictures_and_tables_are_there(browser, tmp_path):
    table = Table(["name", "value"], [["a", "1"], ["b", "2"], ["c", "3"]])
    pictures = [surface_picture(), draw(falling, alt="Falls.")]
    curve = AccuracyCurve([0.5], total=2)
    section = Section("Quiet", table=table, pictures=pictures, curve=curve)
    path = Page("Quiet", sections=[section]).write(tmp_path / "quiet.html")
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(path.as_uri())
    assert all(image.is_visible() for image in page.locator(".picture img").all())
    assert page.locator("tbody th").all_inner_texts() == ["a", "b", "c"]
    assert page.locator("button, canvas").count() == 0
    assert not page.locator(".slider").is_visible()
