import pytest
import torch

import taut


@pytest.fixture(autouse=True, scope="session")
def _names_of_doctests(doctest_namespace):
    doctest_namespace["torch"] = torch
    doctest_namespace["taut"] = taut


@pytest.fixture(autouse=True)
def _same_draws():
    """A test that fails in the suite fails alone too: no test inherits another's generator."""
    torch.manual_seed(0)
