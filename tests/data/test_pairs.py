import numpy as np
import pytest

from taut.data import Table, TableStream, check_pair
from taut.errors import DataError


def table(source, columns=(), dim=None, image_shape=None) -> Table:
    dim = dim or len(columns)
    return Table(np.arange(2.0 * dim).reshape(2, dim), tuple(columns), image_shape, source)


def test_equal_columns_pass_untouched():
    a, b = table("a", "xyz"), table("b", "xyz")
    first, second, notes = check_pair(a, b)
    assert first is a and second is b and notes == ()


def test_another_order_is_put_right_and_stated():
    pair = check_pair(table("a", "xyz"), table("b", "zxy"))
    assert pair.second.columns == ("x", "y", "z")
    assert pair.second.values.tolist() == [[1, 2, 0], [4, 5, 3]]
    assert pair.notes == ("columns of b were put into the order of a",)


def test_streams_are_put_right_too(tmp_path):
    (tmp_path / "b.csv").write_text("y,note,x\n1,u,2\n3,v,4\n")
    pair = check_pair(table("a", "xy"), TableStream(tmp_path / "b.csv", columns=["y", "x"]))
    assert np.concatenate(list(pair.second)).tolist() == [[2, 1], [4, 3]]


def test_names_on_one_side():
    for a, b in [(table("a", "xy"), table("b", dim=2)), (table("b", dim=2), table("a", "xy"))]:
        assert check_pair(a, b).notes == (
            "b has no column names: columns were matched by position",
        )


@pytest.mark.parametrize(
    ("a", "b", "sentence"),
    [
        (
            table("a", "xyz"),
            table("b", "xyw"),
            "check_pair: a and b must have the same columns; got no 'z' in b, also 'w' in b. Give "
            "files with the same columns, or use columns=['x', 'y'].",
        ),
        (table("a", "xy"), table("b", "xyw"), "same columns; got also 'w' in b."),
        (table("a", "xyw"), table("b", "xy"), "same columns; got no 'w' in b."),
        (table("a", "xy"), table("b", dim=3), "equally many columns; got 2 and 3."),
        (table("a", dim=4), table("b", dim=3), "equally many columns; got 4 and 3."),
        (
            table("a", dim=12, image_shape=(3, 2, 2)),
            table("b", dim=12, image_shape=(2, 2, 3)),
            "must hold images of one shape; got (3, 2, 2) and (2, 2, 3).",
        ),
    ],
)
def test_columns_that_differ(a, b, sentence):
    with pytest.raises(DataError) as caught:
        check_pair(a, b)
    assert sentence in str(caught.value)


def test_axes_of_length_one_are_no_difference():
    a = table("a", dim=4, image_shape=(1, 2, 2))
    assert check_pair(a, table("b", dim=4, image_shape=(2, 2))).notes == ()
    assert check_pair(a, table("b", dim=4)).notes == ()
