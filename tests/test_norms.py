import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from taut.errors import ArgumentError
from taut.norms import L1, L2, LINF, as_norm

NORMS = [L1, L2, LINF]
norms = pytest.mark.parametrize("norm", NORMS, ids=str)
ORDER = {L1: 1, L2: 2, LINF: np.inf}
vectors = hnp.arrays(np.float64, (2, 6), elements=st.floats(-10, 10, width=16))
# The pairs with a closed form, input to output.
PAIRS = [(L1, L1), (L1, L2), (L1, LINF), (L2, L2), (L2, LINF), (LINF, LINF)]
HARD = [(L2, L1), (LINF, L1), (LINF, L2)]


@norms
@given(vectors)
def test_vector_norms_equal_numpy(norm, x):
    got = norm.vector(torch.from_numpy(x))
    np.testing.assert_allclose(got.numpy(), np.linalg.norm(x, ORDER[norm], axis=-1), rtol=1e-14)


@norms
def test_vector_norms_over_any_dimensions(norm):
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    flat = np.linalg.norm(x.numpy().reshape(2, 12), ORDER[norm], axis=-1)
    np.testing.assert_allclose(norm.vector(x, (1, 2)).numpy(), flat, rtol=1e-14)
    moved = np.linalg.norm(x.numpy(), ORDER[norm], axis=1)
    np.testing.assert_allclose(norm.vector(x, 1).numpy(), moved, rtol=1e-14)


@norms
@given(vectors)
def test_hoelder(norm, pair):
    x, y = torch.from_numpy(pair)
    assert abs(x @ y) <= norm.vector(x) * norm.dual.vector(y) * (1 + 1e-12) + 1e-300


@norms
def test_the_dual_of_the_dual_is_the_norm(norm):
    assert norm.dual.dual == norm
    assert 1 / norm.p + 1 / norm.dual.p == 1


@pytest.mark.parametrize(("p", "q"), PAIRS, ids=str)
@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_operator_norms_bound_every_image_and_are_attained(p, q, seed):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(4, 5, dtype=torch.float64, generator=generator)
    size = p.operator(weight, q)
    x = torch.randn(200, 5, dtype=torch.float64, generator=generator)
    assert (q.vector(x @ weight.mT) <= size * p.vector(x) * (1 + 1e-12)).all()
    # Where the supremum sits: a corner, an edge, a row, a singular vector.
    rows = {L1: torch.eye(5).double()[weight.abs().argmax(1)], L2: weight, LINF: weight.sign()}
    candidates = [torch.eye(5, dtype=torch.float64), torch.linalg.svd(weight).Vh, rows[p]]
    z = torch.cat(candidates)
    assert (q.vector(z @ weight.mT) / p.vector(z)).max() >= size * (1 - 1e-12)


def test_operator_norms_of_batches():
    weight = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    for p, q in PAIRS:
        sizes = p.operator(weight, q)
        assert sizes.shape == (2, 3)
        torch.testing.assert_close(sizes[1, 2], p.operator(weight[1, 2], q))


@pytest.mark.parametrize(("p", "q"), HARD, ids=str)
def test_hard_pairs_are_refused(p, q):
    with pytest.raises(ArgumentError, match=f"closed form; got {p} -> {q}.*Use equal norms"):
        p.operator(torch.eye(2), q)


@norms
def test_names(norm):
    assert as_norm(norm) is norm
    assert as_norm(str(norm)) is norm
    assert repr(norm) == str(norm).upper()
    assert copy.deepcopy(norm) == norm == pickle.loads(pickle.dumps(norm))
    assert len({norm, copy.deepcopy(norm)}) == 1


@pytest.mark.parametrize("name", ["l3", "L2", "", 2, None])
def test_unknown_names_are_refused(name):
    with pytest.raises(ArgumentError, match="f: `norm` must be 'l1', 'l2' or 'linf'; got norm="):
        as_norm(name, "f")
