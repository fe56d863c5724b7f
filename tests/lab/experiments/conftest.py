from functools import cache

import pytest

from taut_lab.experiments.registry import EXPERIMENTS
from taut_lab.framework.experiment import Result


@pytest.fixture(scope="session")
def smoke_results():
    """Name of an experiment -> the results of its smoke preset, computed once."""

    @cache
    def results(name: str) -> tuple[Result, ...]:
        experiment = EXPERIMENTS[name]
        return tuple(Result(c.config, experiment.run(c.config)) for c in experiment.cells("smoke"))

    return results
