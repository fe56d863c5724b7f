"""`RuleInterpreter`: programs read through the records; what is carried along, subclasses say."""

import operator
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves, tree_map_only

from taut.audit.program import Program
from taut.errors import NoRuleError
from taut.rules import Call, Record, Value, find_record
from taut.rules.operation_registry import bind_arguments
from taut.rules.shape import EXACT_ON_STORED


class RuleInterpreter(fx.Interpreter):
    """Runs a program with other objects in place of the tensors that depend on its input.

    A subclass says what those objects are (`tracked`), how the rules see one (`value_of`), and what
    an operation makes of them (`apply`).
    """

    tracked: type

    def __init__(self, program: Program, subject: str) -> None:
        super().__init__(program.module)
        self.extra_traceback = False  # errors name the place in the model instead
        self.program = program
        self.subject = subject

    def value_of(self, tracked: Any) -> Value:
        """What the rules see of a tracked object."""
        raise NotImplementedError

    def apply(self, record: Record, call: Call, tracked: list[Any], node: fx.Node) -> Any:
        """What an operation makes of its tracked arguments."""
        raise NotImplementedError

    def size_of(self, tracked: Any) -> Any:
        """The size of the batch that a tracked object stands for; any will do for constants."""
        return 1

    @torch.no_grad()
    def run_node(self, n: fx.Node) -> Any:
        """One step of the program; a refusal names its place in the model."""
        if n.op not in ("call_function", "call_module"):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        try:
            return self._step(n, args, kwargs)
        except NoRuleError as error:
            place, kind = n.meta.get("place", n.name), n.meta.get("kind", "")
            named = f"`{place}`" if kind in ("", place) or kind in place else f"`{place}` ({kind})"
            raise NoRuleError(
                self.subject,
                rule=f"nothing is proven at {named}: {str(error).rstrip('.')}",
                remedy="What has no record is never assumed to be 1; change the layer, or register "
                "a record with taut.rules.register.",
            ) from error

    def _step(self, n: fx.Node, args: Any, kwargs: Any) -> Any:
        target: Any = n.target
        leaves = tree_leaves((args, kwargs))
        tracked = [leaf for leaf in leaves if isinstance(leaf, self.tracked)]
        if target is torch.ops.aten.sym_size.int:
            return self.size_of(args[0]) if tracked else target(*args)
        if target is operator.getitem:
            return args[0][args[1]]
        if not tracked:
            if target in EXACT_ON_STORED:
                return self._stored(n, args, kwargs)
            if all(isinstance(part, int) for part in args):
                return target(*args)
            raise NoRuleError(rule="a constant computed in the forward is not supported")
        if n.op == "call_module":
            target = self.program.module.get_submodule(str(n.target))
            arguments = {"input": args[0]}
        else:
            arguments = bind_arguments(target, args, kwargs)
        if "refusal" in n.meta:
            raise NoRuleError(rule=n.meta["refusal"].rstrip("."))
        record = find_record(target) or Record()
        if record.constants is None:
            name = n.meta.get("kind") or getattr(target, "__name__", str(target))
            raise NoRuleError(rule=record.refusal.rstrip(".") or f"{name} has no record")
        shape = n.meta.get("shape")
        call = Call(
            target,
            tree_map_only(self.tracked, self.value_of, arguments),
            shape if isinstance(shape, tuple) else None,
            self.program.proofs,
        )
        return self.apply(record, call, tracked, n)

    def _stored(self, n: fx.Node, args: Any, kwargs: Any) -> Any:
        """A stored tensor on its way to an operation, in float64, made once.

        What is proven of a tensor is found by its identity, so it must live as long as the proofs.
        """
        key = (n, repr(tree_map_only(Tensor, id, (args, kwargs))))
        if key not in self.program.proofs:
            made = n.target(*args, **kwargs)  # type: ignore[operator]
            self.program.proofs[key] = tree_map_only(Tensor, _widened, made)
        return self.program.proofs[key]


def _widened(stored: Tensor) -> Tensor:
    return stored.double() if stored.is_floating_point() else stored
