"""The page of a classifier shows the numbers of its certificates and attacks."""

import re

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from support import make_classifier
from taut.evaluation import EvaluatedClassifier, evaluate_robustness
from taut.norms import L2
from taut.report import figures
from taut.report.classifier_report import classifier_page
from taut.report.figures import Tile, draw_gallery
from taut.training import Examples

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("shape", [(1, 5, 4), (3, 5, 5)], ids=["grey", "colour"])
def test_images_get_galleries(shape):
    classifier = make_classifier(shape, 0.0, 1.0)
    found = evaluate_robustness(classifier, [0.05, 0.1], ["pgd"], num_steps=5, num_minimal=3)
    html = classifier_page(classifier, classifier.certify(), 0.05, attacked=found).render()
    for words in (
        "Images and certified radii",
        "Input gradients",
        "adversarial example",
    ):
        assert words in html
    assert f"<td>{100 * found.certified(0.05):.1f}<" in html
    assert f"<td>{100 * found.accuracy(0.1):.1f}<" in html
    assert "&lt;cat&gt;" in html and "<cat>" not in html
    assert 'class="pictures three"' in html and 'class="pictures two"' in html
    assert "http" not in re.sub(r'src="data:[^"]*"', "", html)


def test_rows_get_a_histogram_and_a_table():
    classifier = make_classifier((6,), None, None)
    found = evaluate_robustness(classifier, [0.05], ["fgsm", "pgd"], num_steps=5, num_minimal=3)
    html = classifier_page(classifier, classifier.certify(), 0.05, attacked=found).render()
    assert "Certified radii" in html and "distance found" in html
    assert "Input gradients" not in html
    assert found.minimal is not None
    assert html.count("→") == int(found.minimal.success.sum())


def test_without_attacks_and_without_a_right_answer():
    classifier = make_classifier((1, 4, 4), 0.0, 1.0)
    wrong = (classifier.model(classifier.examples.inputs).argmax(1) + 1) % 3
    classifier = EvaluatedClassifier(
        "none", classifier.model, classifier.spec, Examples(classifier.examples.inputs, wrong), L2
    )
    html = classifier_page(classifier, classifier.certify(), 0.05).render()
    assert "0.0 % clean accuracy" in html and "Certified accuracy and attacks" not in html


def test_what_is_broken_within_one_radius_is_broken_within_more():
    classifier = make_classifier((6,), None, None)
    found = evaluate_robustness(classifier, [0.4, 0.1, 0.2], ["fgsm", "pgd"], num_steps=5)
    assert found.radii == (0.1, 0.2, 0.4)
    for name in found.distances:
        shares = [found.accuracy(radius, name) for radius in (0.0, *found.radii)]
        assert shares == sorted(shares, reverse=True) and shares[0] == found.clean
    assert all(found.certified(r) <= found.accuracy(r) for r in found.radii)
    assert found.violations == ()


def test_a_gallery_of_rows_of_different_length_is_drawn():
    tile = Tile(np.eye(3), "one\ntwo")
    picture = draw_gallery([[tile, tile], [Tile(np.eye(3), signed=True)]], (0.0, 1.0), "eyes")
    assert picture.source.startswith("data:image/svg+xml")


def test_words_below_images_are_read_on_a_phone(monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "draw", lambda paint, **options: drawn.append((paint, options)))
    tile = Tile(np.eye(3), "bee\ncertified 0.0467")
    for rows in ([[tile] * 3] * 2, [[tile]]):
        draw_gallery(rows, (0.0, 1.0), "eyes")
    for paint, options in drawn:
        width, height = options["size"]
        canvas = Figure(figsize=(width, height))
        renderer = FigureCanvasAgg(canvas).get_renderer()
        axes = canvas.add_axes((0, 0, 1, 1))
        paint(axes)
        for text in axes.texts:
            # 330 pixels are what a phone of 390 leaves to a picture; a point is 1/72 of an inch.
            assert text.get_fontsize() * 330 / (72 * width) >= 11
            box = text.get_window_extent(renderer)
            assert 0 <= box.x0 and box.x1 <= canvas.bbox.x1 and box.y0 >= -1
