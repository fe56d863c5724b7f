"""From a network to its outputs in float64 with proven errors: trace once, run batch by batch."""

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg

from taut.audit.trace import trace
from taut.certificates.calls import step_function
from taut.certificates.run import Run, Study
from taut.certificates.steps import step_module
from taut.errors import NoRuleError

__all__ = ["Execution"]


class Execution:
    """Runs a frozen network on batches.

    Args:
        network: what `freeze` made, and the audit has accepted.
        reach: `(3,)`, how far the input itself moves in each norm when it moves by 1.
        dtype: the arithmetic of the execution under study; None for real numbers.
    """

    def __init__(self, network: nn.Module, reach: Tensor, dtype: torch.dtype | None) -> None:
        self.network, self.graph = trace(network)
        self.reach = reach
        self.study = Study(dtype)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> tuple[Run, Tensor]:
        """The output for `(batch, ...)`, and how far from each sample nothing can overflow."""
        held: dict[fx.Node, Any] = {}
        start: Run | None = None
        for node in self.graph.nodes:
            if node.op == "placeholder":
                if start is None:
                    held[node] = start = self.study.start(x, self.reach)
                else:
                    held[node] = node.args[0]
            elif node.op == "get_attr":
                held[node] = self._attribute(str(node.target))
            elif node.op == "output":
                return held[node.args[0]], self.study.limit  # type: ignore[index]
            else:
                args, kwargs = map_arg((node.args, node.kwargs), lambda n: held[n])  # type: ignore[misc]
                held[node] = self._step(node, args, kwargs)
        raise NoRuleError("certify: the forward returns nothing.")

    def _step(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        try:
            if node.op == "call_module":
                return step_module(self.study, self._attribute(str(node.target)), args[0])
            return step_function(self.study, node, args, kwargs)
        except NoRuleError as error:
            name = node.target if isinstance(node.target, str) else node.target.__name__
            raise NoRuleError(
                f"certify: at `{name}` no error of evaluation is proven: {error}"
            ) from error

    def _attribute(self, path: str) -> Any:
        part: Any = self.network
        for name in path.split("."):
            part = getattr(part, name)
        return part
