"""`taut bench conv` on tiny sizes: the run, its record, and the command."""

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from taut.cli.main import main
from taut_lab.benchmarks import ConvSettings, TimingRecord, run_conv
from taut_lab.benchmarks.timed_layers import PLAIN_CONV, circle_errors

TINY = ConvSettings(
    shapes=((2, 4, 5), (4, 2, 4)), batch=2, peers=False, rounds=2, min_rounds=1, warmup=1
)


@pytest.fixture(scope="module")
def record():
    return run_conv(TINY)


def test_every_comparison_is_run_and_taut_layers_have_no_excess(record):
    assert [dict(comparison.sizes) for comparison in record.comparisons] == [
        {"in": 2, "out": 4, "side": 5, "batch": 2},
        {"in": 4, "out": 2, "side": 4, "batch": 2},
    ]
    for comparison in record.comparisons:
        assert comparison.kind == "conv" and comparison.ratio(PLAIN_CONV) == 1
        entries = {entry.timing.name: entry for entry in comparison.entries}
        assert entries["taut OrthonormalConv2d"].error <= 1e-6
        for name, entry in entries.items():
            assert entry.timing.failure is None
            assert not name.startswith("taut") or entry.excess <= 1e-6


def test_errors_are_those_of_the_dense_circular_convolution():
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular", bias=False).double()
    n = 2 * 4 * 4
    with torch.no_grad():
        dense = layer(torch.eye(n).double().view(n, 2, 4, 4)).reshape(n, -1).numpy()
    deviation = np.linalg.svd(dense, compute_uv=False) - 1
    error, excess = circle_errors(layer.weight.detach(), 4)
    assert error == pytest.approx(np.abs(deviation).max())
    assert excess == pytest.approx(deviation.max())
    assert circle_errors(torch.full((1, 1, 3, 3), float("nan")), 4) == (None, None)


def test_the_command_writes_a_record_and_shows_it(tmp_path):
    path = tmp_path / "record.json"
    run = CliRunner().invoke(main, ["bench", "conv", "--quick", "--no-peers", "--out", str(path)])
    assert run.exit_code == 0, run.output
    assert len(TimingRecord.read(path).comparisons) == 1
    shown = CliRunner().invoke(main, ["bench", "conv", "--show", str(path)])
    assert shown.exit_code == 0 and "taut OrthonormalConv2d" in shown.output
