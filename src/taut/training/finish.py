"""The end of a run: the best weights, tested, proven and written."""

from importlib.metadata import version
from platform import python_version
from typing import Any

import torch

from taut import parallel
from taut.data import LabelledData
from taut.export import save
from taut.training.evaluation import evaluate
from taut.training.folder import write_json
from taut.training.run import TrainedRun
from taut.training.session import Session, meet

__all__ = ["finish"]


def finish(session: Session, source: LabelledData) -> TrainedRun:
    """Tests the best network on the test rows and writes it, its proof and the result."""
    state, place, config = session.state, session.state.place, session.config
    spec, folder = session.data.spec, session.folder
    assert config.radius is not None
    if state.best:
        state.model.load_state_dict(state.best)
    model = state.model.eval().cpu()
    test = session.data.test.to(torch.device("cpu"), session.settings.dtype)
    found = evaluate(model, test, config.norm)
    result: dict[str, Any] = {
        "clean": found.clean,
        "certified": found.certified(config.radius),
        "radius": config.radius,
        "norm": config.norm,
        "lipschitz": found.lipschitz.value,
        "median_radius": found.radii.median().item(),
        "test_rows": len(test),
        "train_rows": len(session.rows),
        "epochs": place.epoch,
        "best_epoch": place.best_epoch or place.epoch,
        "seconds": session.count_seconds(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "processes": parallel.world_size(),
        "threads": session.settings.threads,
        "device": str(session.settings.device),
        "fingerprint": session.data.fingerprint,
        "versions": {
            "python": python_version(),
            **{name: version(name) for name in ("taut", "torch", "numpy")},
        },
    }
    if folder is not None and parallel.is_first():
        save(model, folder.model_file, norm=config.norm, input_shape=spec.shape)
        write_json(folder.result_file, result)
    meet()
    path = None if folder is None else folder.path
    return TrainedRun(config, model, tuple(place.history), result, spec, path, source)
