"""The report of a monitor: the sizes of changes."""

import torch

from taut.report import monitor_rows
from taut.transport import fit_monitor


def test_a_change_has_a_size_only_where_the_batch_went_that_way():
    generator = torch.Generator().manual_seed(0)
    monitor = fit_monitor(torch.randn(2000, 1, generator=generator), seed=0)
    batches = [
        monitor.update(torch.randn(400, 1, generator=generator) + shift) for shift in (2.0, -0.2)
    ]
    header, rows = monitor_rows(monitor, batches)
    texts = [row[header.index("strongest evidence for")] for row in rows]
    assert texts[1] == batches[1].changes[0].what
    assert batches[0].changes[0].difference > 0 > batches[1].changes[0].difference
    assert [", by " in text for text in texts] == [True, False]
