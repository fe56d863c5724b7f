"""The end of a run: the best weights are tested, certified and written."""

from importlib.metadata import version
from platform import python_version
from typing import Any

import torch

from taut import parallel
from taut.data import LabelledData
from taut.export import save
from taut.training.evaluation import evaluate
from taut.training.run import TrainedRun
from taut.training.run_folder import write_json
from taut.training.session import Session, barrier

__all__ = ["finalise"]


def finalise(session: Session, source: LabelledData) -> TrainedRun:
    """Evaluates the best weights on the test rows, and writes the network and the result."""
    state, position, config = session.state, session.state.position, session.config
    spec, folder = session.data.spec, session.folder
    assert config.radius is not None
    if state.best:
        state.model.load_state_dict(state.best)
    model = state.model.eval().cpu()
    test = session.data.test.to(torch.device("cpu"), session.environment.dtype)
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
        "epochs": position.epoch,
        "best_epoch": position.best_epoch or position.epoch,
        "seconds": session.count_seconds(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "processes": parallel.world_size(),
        "threads": session.environment.threads,
        "device": str(session.environment.device),
        "fingerprint": session.data.fingerprint,
        "versions": {
            "python": python_version(),
            **{name: version(name) for name in ("taut", "torch", "numpy")},
        },
    }
    if folder is not None and parallel.is_first():
        save(model, folder.model_file, norm=config.norm, input_shape=spec.shape)
        write_json(folder.result_file, result)
    barrier()
    path = None if folder is None else folder.path
    return TrainedRun(config, model, tuple(position.history), result, spec, path, source)
