"""Images are shifted and mirrored at random, by the seed and the position in the run alone."""

import itertools

import numpy as np
import pytest
import torch

from support import seeded
from taut.data import LabelledData, LabelledSet
from taut.errors import ArgumentError
from taut.training import TrainConfig, train
from taut.training.augmentation import augment


def crops_of(image, flips):
    """Every image that may come of one, by numpy."""
    _, height, width = image.shape
    border = min(height, width) // 8
    padded = np.pad(image, ((0, 0), (border, border), (border, border)))
    places = itertools.product(range(2 * border + 1), repeat=2)
    made = [padded[:, top : top + height, left : left + width] for top, left in places]
    return made + [crop[:, :, ::-1] for crop in made] if flips else made


@pytest.mark.parametrize("kind, flips", [("crop", False), ("crop-flip", True)])
@pytest.mark.parametrize("shape", [(1, 8, 9), (3, 16, 17)], ids=str)
def test_every_result_is_a_crop_and_every_crop_comes(kind, flips, shape):
    image = torch.rand(shape, generator=seeded(1))
    moved = augment(image.expand(1500, *shape), kind, seeded())
    wanted = {crop.tobytes() for crop in crops_of(image.numpy(), flips)}
    assert {row.numpy().tobytes() for row in moved} == wanted


def test_crops_are_equally_likely():
    image = torch.rand(1, 8, 8, generator=seeded(1))
    moved = augment(image.expand(9000, 1, 8, 8), "crop", seeded())
    _, counts = np.unique(moved.flatten(1).numpy(), axis=0, return_counts=True)
    # Nine places of 1,000 each: five standard deviations are 150.
    assert len(counts) == 9 and abs(counts - 1000).max() < 150


def test_small_images_stay_and_none_changes_nothing():
    x = torch.rand(5, 1, 7, 30, generator=seeded(1))
    assert augment(x, "none", seeded()) is x
    assert torch.equal(augment(x, "crop", seeded()), x)


def test_the_argument_is_left_alone():
    x = torch.rand(5, 2, 16, 16, generator=seeded(1))
    before = x.clone()
    augment(x, "crop-flip", seeded())
    assert torch.equal(x, before)


def test_rows_of_tables_and_unknown_kinds_are_refused():
    rows = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    part = LabelledSet(rows, np.arange(20) % 2, ("a", "b"), (), None, None, "rows")
    with pytest.raises(ArgumentError, match="`augment` must be 'none' for inputs that are not im"):
        train(TrainConfig(augment="crop"), data=LabelledData(part, part, "rows"))
    with pytest.raises(ArgumentError, match="`augment` must be one of 'none', 'crop', 'crop-flip'"):
        TrainConfig(augment="rotate")


def test_training_follows_the_seed_and_the_augmentation():
    small = {"hidden": (8,), "epochs": 1, "batch_size": 720, "threads": 1, "validation": 0.0}
    runs = [
        train(TrainConfig(**small, augment=kind)).history[0]["loss"]
        for kind in ("crop", "crop", "crop-flip", "none")
    ]
    assert runs[0] == runs[1] and len(set(runs)) == 3
