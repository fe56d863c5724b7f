import io
import sys

import numpy as np
import pytest
from PIL import Image

from taut.data import TableStream, count_rows, read_table
from taut.errors import ArgumentError, DamagedFileError, DataError, MissingExtraError

draw = np.random.default_rng(0)
GREY = draw.integers(0, 256, (4, 6), dtype=np.uint8)
COLOUR = draw.integers(0, 256, (4, 6, 3), dtype=np.uint8)


def png(array) -> bytes:
    file = io.BytesIO()
    (array if isinstance(array, Image.Image) else Image.fromarray(array)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def fill(tmp_path):
    def fill(**files):
        for name, data in files.items():
            (tmp_path / name.replace("_", ".")).write_bytes(
                data if isinstance(data, bytes) else png(data)
            )
        return tmp_path

    return fill


def test_grey_images_in_the_order_of_their_names(fill):
    folder = fill(b_png=255 - GREY, a_png=GREY, notes_txt=b"x", _hidden_png=b"x")
    Image.fromarray(GREY).save(folder / "c.bmp")
    table = read_table(folder)
    wanted = np.stack([GREY, 255 - GREY, GREY]).reshape(3, 24)
    assert np.array_equal(table.values, wanted.astype(np.float32) / 255)
    assert (table.image_shape, table.source) == ((4, 6), folder.name)
    assert count_rows(folder) == len(TableStream(folder)) == 3


def test_coloured_images_have_channels_first(fill):
    palette = Image.fromarray(COLOUR).quantize(256)
    table = read_table(fill(a_png=COLOUR, b_png=palette))
    assert table.image_shape == (3, 4, 6)
    wanted = COLOUR.astype(np.float32).transpose(2, 0, 1) / 255
    assert np.array_equal(table.values[0].reshape(3, 4, 6), wanted)


def test_photographs(fill):
    folder = fill()
    for name in ("a.jpg", "b.JPEG"):
        Image.new("RGB", (6, 4), (200, 100, 50)).save(folder / name, "JPEG", quality=100)
    values = read_table(folder).values.reshape(2, 3, 24)
    assert np.abs(values - np.array([200, 100, 50])[:, None] / 255).max() < 0.02


def test_one_and_sixteen_bits(fill):
    bits = Image.fromarray(GREY).convert("1")
    deep = Image.fromarray(np.full((4, 6), 65535, np.uint16))
    values = read_table(fill(a_png=bits, b_png=deep)).values
    assert set(np.unique(values[0])) <= {0, 1}
    assert np.all(values[1] == 1)


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        (GREY[:3], "a.png is 4 x 6 grey, b.png is 3 x 6 grey. Resize or convert them first."),
        (COLOUR, "a.png is 4 x 6 grey, b.png is 4 x 6 RGB."),
        (
            Image.fromarray(COLOUR).convert("RGBA"),
            'images must be grey or RGB; b.png is RGBA. Convert it first: image.convert("RGB").',
        ),
    ],
)
def test_images_that_do_not_fit(fill, second, sentence):
    with pytest.raises(DataError) as caught:
        read_table(fill(a_png=GREY, b_png=second))
    assert sentence in str(caught.value)


def test_images_that_cannot_be_read(fill):
    large = png(draw.integers(0, 256, (50, 50), dtype=np.uint8))
    for bad in (b"", b"junk", large[:20], large[:-30], large[: len(large) // 2]):
        with pytest.raises(DamagedFileError, match="b.png must be an image that can be read; got"):
            read_table(fill(a_png=large, b_png=bad))


def test_folders_that_are_no_sample(fill, tmp_path):
    with pytest.raises(DataError, match="must hold images .*; this one holds none.$"):
        read_table(fill(notes_txt=b"x"))
    (tmp_path / "cats").mkdir()
    with pytest.raises(DataError, match="holds none, only folders: give one of them."):
        read_table(tmp_path)
    with pytest.raises(DataError, match="at least two rows; got one."):
        read_table(fill(a_png=GREY))
    with pytest.raises(DataError, match="this is one image. Give the folder it is in."):
        read_table(tmp_path / "a.png")
    with pytest.raises(ArgumentError, match="`columns` must be left out for images"):
        read_table(tmp_path, columns=[0])


def test_without_pillow(fill, monkeypatch):
    folder = fill(a_png=GREY, b_png=GREY)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError) as caught:
        read_table(folder)
    assert str(caught.value) == (
        "data: a folder of images needs pillow. Install it with pip install 'taut[data]'."
    )
