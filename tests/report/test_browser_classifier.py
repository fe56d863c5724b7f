"""Networks that run in the page: the same predictions and radii as in Python, drawn with a real mouse."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import taut
from support import make_classifier
from taut.evaluation import EvaluatedClassifier
from taut.norms import L2, LINF, Norm
from taut.report import Page, Section
from taut.report.browser_classifier import drawing
from taut.training import Examples, InputSpec

NETWORKS = {
    "maxmin": (L2, {"activation": "maxmin", "lipschitz": 2.0}),
    "groupsort4": (L2, {"activation": "groupsort4"}),
    "fullsort": (L2, {"activation": "fullsort"}),
    "abs": (L2, {"activation": "abs"}),
    "relu": (L2, {"activation": "relu", "constraint": "spectral"}),
    "linf": (LINF, {"activation": "maxmin", "constraint": "linf", "lipschitz": 3.0}),
}


def classifier(norm: Norm = L2, **options) -> EvaluatedClassifier:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = taut.nn.mlp([64, 32, 24, 10], **options)
        images = torch.rand(30, 1, 8, 8)
    spec = InputSpec((1, 8, 8), tuple("0123456789"), low=0.0, high=1.0)
    model = torch.nn.Sequential(torch.nn.Flatten(), net).eval()
    return EvaluatedClassifier("digits", model, spec, Examples(images, torch.arange(30) % 10), norm)


def open_page(browser, folder, network):
    path = Page("Draw", sections=[Section("Draw", drawing=network)]).write(folder / "draw.html")
    page = browser.new_page(viewport={"width": 800, "height": 700})
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(path.as_uri())
    return page


def draw_strokes(page, strokes):
    """Moves a real mouse over the board, which reports the image and the result."""
    page.click(".clear")
    frame = page.locator(".board").bounding_box()
    for stroke in strokes:
        places = [
            (frame["x"] + u * frame["width"], frame["y"] + v * frame["height"]) for u, v in stroke
        ]
        page.mouse.move(*places[0])
        page.mouse.down()
        for place in places[1:]:
            page.mouse.move(*place, steps=3)
        page.mouse.up()
    return page.evaluate(
        "() => { const b = document.querySelector('.drawing').board;"
        " const near = b.network.nearest(b.image, b.result.prediction);"
        " return { image: [...b.image], logits: [...b.result.logits], ...b.result,"
        "   near: near && [...near.image], text: b.answer.textContent, view: [...b.image] }; }"
    )


def agrees(found, evaluated: EvaluatedClassifier) -> None:
    image = torch.tensor(found["image"], dtype=torch.float64).reshape(1, 1, 8, 8)
    assert image.max() > 0 and image.min() >= 0 and image.max() <= 1
    certified = taut.certify(evaluated.model, image, evaluated.norm)
    assert found["prediction"] == certified.prediction.item()
    radius = certified.radius.item()
    # Never above what Python proves, and below it by no more than the rounding that the page states.
    assert radius - 2e-9 <= found["radius"] <= radius
    if found["near"] is not None:
        near = torch.tensor(found["near"], dtype=torch.float64).reshape(1, 1, 8, 8)
        exact = taut.fold(evaluated.model).double()
        assert exact(near).argmax().item() != found["prediction"]
        distance = evaluated.norm.vector((near - image).flatten()).item()
        assert distance >= found["radius"]


@pytest.mark.slow
def test_twenty_drawings_agree_with_python(browser, tmp_path):
    evaluated = classifier(**NETWORKS["maxmin"][1])
    page = open_page(browser, tmp_path, drawing(evaluated))
    random = np.random.default_rng(0)
    radii = set()
    for _ in range(20):
        strokes = [random.uniform(0.1, 0.9, (4, 2)).tolist() for _ in range(random.integers(1, 4))]
        found = draw_strokes(page, strokes)
        agrees(found, evaluated)
        assert f"Prediction: {found['prediction']}." in found["text"]
        radii.add(found["radius"])
    assert len(radii) == 20
    assert page.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_every_kind_of_layer_agrees_with_python(browser, tmp_path, name):
    norm, options = NETWORKS[name]
    evaluated = classifier(norm, **options)
    page = open_page(browser, tmp_path, drawing(evaluated))
    agrees(draw_strokes(page, [[(0.3, 0.2), (0.7, 0.5), (0.2, 0.8)]]), evaluated)
    page.reload()  # a page starts with a test image
    shown = page.evaluate("() => [...document.querySelector('.drawing').board.image]")
    assert shown == evaluated.examples.inputs[0].flatten().double().tolist()
    assert page.complaints == []


@pytest.mark.slow
def test_only_the_first_pointer_draws_and_only_on_the_board(browser, tmp_path):
    page = open_page(browser, tmp_path, drawing(classifier()))
    page.click(".clear")
    frame = page.locator(".board").bounding_box()
    state = "document.querySelector('.drawing').board"
    page.mouse.move(frame["x"] + 50, frame["y"] + 50)
    page.mouse.down(button="right")
    page.mouse.move(frame["x"] + 90, frame["y"] + 90)
    page.mouse.up(button="right")
    second = "new PointerEvent('pointerdown', {pointerId: 7, isPrimary: false, button: 0})"
    page.evaluate(f"() => {{ {state}.board.dispatchEvent({second}); }}")
    assert page.evaluate(f"() => {state}.strokes.length") == 0
    page.mouse.down()
    page.mouse.move(frame["x"] - 300, frame["y"] + 90, steps=3)
    page.mouse.up()
    points = page.evaluate(f"() => {state}.strokes.flat(2)")
    assert len(points) == 16 and 0 <= min(points) <= max(points) <= 1
    answer = page.locator(".answer")
    assert "was found" not in answer.inner_text()  # the search does not delay the strokes
    page.wait_for_function("() => /found/.test(document.querySelector('.answer').textContent)")
    page.click(".clear")
    page.wait_for_timeout(200)
    assert answer.inner_text() == "Nothing is drawn yet."
    assert page.complaints == []


def test_only_small_dense_classifiers_of_grey_images_can_be_drawn():
    known = classifier()
    assert drawing(known) is not None
    assert drawing(replace(known, spec=replace(known.spec, high=255.0))) is None
    assert drawing(replace(known, spec=replace(known.spec, shape=(64,)))) is None
    assert (
        drawing(replace(known, model=torch.nn.Sequential(known.model, torch.nn.Softmax(1)))) is None
    )
    with_convolution = torch.nn.Sequential(
        taut.nn.OrthonormalConv2d(1, 1, 3, padding=1), known.model
    )
    assert drawing(replace(known, model=with_convolution)) is None
    assert drawing(make_classifier((3, 4, 4), 0.0, 1.0)) is None


def test_the_frame_is_that_of_the_ink():
    images = torch.zeros(5, 1, 8, 8)
    images[..., 1:7, 2:5] = 1.0
    known = classifier()
    found = drawing(replace(known, examples=Examples(images, torch.arange(5))))
    assert found is not None
    assert found.frame == {"size": 0.75, "x": 3.5 / 8, "y": 0.5}


@pytest.mark.slow
def test_arrow_keys_draw(browser, tmp_path):
    evaluated = classifier()
    page = open_page(browser, tmp_path, drawing(evaluated))
    board = page.locator(".board")
    board.press("Shift+ArrowUp")
    assert page.evaluate("() => document.querySelector('.drawing').board.strokes.length") == 0
    for key in ["ArrowDown"] * 8 + ["ArrowRight"] * 5:
        board.press(key)
    state = "document.querySelector('.drawing').board"
    found = page.evaluate(f"() => ({{ ...{state}.result, image: [...{state}.image], near: null }})")
    agrees(found, evaluated)
    assert page.complaints == []
