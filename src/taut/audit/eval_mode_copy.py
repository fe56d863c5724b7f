"""The network as evaluation runs it: a copy of plain layers that hold the numbers in use."""

import copy
import pickle
from dataclasses import dataclass
from inspect import isroutine
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from taut.errors import ArgumentError, NonFiniteError, NoRuleError
from taut.rules import find_record

_WRAPPERS = {
    "OptimizedModule": "_orig_mod",
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "AveragedModel": "module",
}


@dataclass(frozen=True, eq=False)
class Prepared:
    """A copy of a network for evaluation, and the layers that its own stand for.

    Attributes:
        model: the copy; constrained and parametrised layers are plain ones of `torch.nn`, whose
            weights are bit by bit those that evaluation multiplies by.
        originals: for each replaced layer the one of the model that it stands for.
        source: the network itself.
    """

    model: nn.Module
    originals: dict[nn.Module, nn.Module]
    source: nn.Module

    def kind(self, module: nn.Module) -> str:
        """The type of a layer as the user knows it."""
        original = self.originals.get(module, module)
        return parametrize.type_before_parametrizations(original).__name__


def unwrap(model: nn.Module) -> nn.Module:
    """The network inside a compiled, distributed or averaged one.

    Example:
        >>> net = torch.nn.Linear(2, 2)
        >>> unwrap(torch.nn.DataParallel(net)) is net
        True
    """
    while type(model).__name__ in _WRAPPERS and type(model).__module__.startswith("torch."):
        model = getattr(model, _WRAPPERS[type(model).__name__])
    return model


def prepare(model: nn.Module, subject: str) -> Prepared:
    """A copy of `model` in evaluation mode that shares nothing with it; `model` is left alone.

    Raises:
        NoRuleError: hooks or a replaced forward may change what a module computes.
        NonFiniteError: a parameter or buffer holds NaN or infinity.
        ArgumentError: the model cannot be copied.
    """
    wrapper, model = model, unwrap(model)
    while wrapper is not model:
        # What a compiler puts in place of the forward is the forward.
        compiled = type(wrapper).__name__ == "OptimizedModule"
        _check_call(wrapper, "model", subject, replaceable=compiled)
        wrapper = getattr(wrapper, _WRAPPERS[type(wrapper).__name__])
    _check_modules(model, subject)
    replaced: dict[int, nn.Module] = {}
    originals: dict[nn.Module, nn.Module] = {}
    with torch.no_grad():
        # Parts first, so that a parametrised container holds parts that are plain already.
        for path, module in reversed(list(model.named_modules())):
            if "parametrizations" in path.split("."):
                continue  # what makes a weight is run as it is
            made = _plain(module, replaced)
            if made is not None:
                replaced[id(module)] = made
                originals[made] = module
    twin = copy_for_evaluation(model, subject, replaced).requires_grad_(False)
    return Prepared(twin, originals, model)


def copy_for_evaluation(
    model: nn.Module, subject: str, replaced: dict[int, nn.Module] | None = None
) -> nn.Module:
    """A deep copy in evaluation mode, with other modules in place of some, by their identities."""
    try:
        return copy.deepcopy(model, {**(replaced or {})}).eval()
    except Exception as error:
        rule = "must be one that copy.deepcopy can copy"
        got = f"{type(model).__name__}, and copying failed: {str(error).rstrip('.')}"
        remedy = (
            "Keep tensors that are part of a graph out of attributes, and use "
            "torch.nn.utils.parametrizations instead of hooks."
        )
        raise ArgumentError(subject, "model", rule, got, remedy) from error


def _plain(module: nn.Module, replaced: dict[int, nn.Module]) -> nn.Module | None:
    """The plain layer that evaluation amounts to, with tensors of its own, or None if it is one."""
    record = find_record(module)
    if record is not None and record.plain is not None:
        made = record.plain(module)
        return None if made is module else copy.deepcopy(made, {**replaced}).eval()
    if not parametrize.is_parametrized(module):
        return None
    # Reading a parametrised weight may run code that writes, as power iterations do.
    return _without_parametrizations(copy.deepcopy(module, {**replaced}).eval())


def _without_parametrizations(module: nn.Module) -> nn.Module:
    """The module with its present tensors in place of what makes them.

    Built beside it: `remove_parametrizations` on a copy would reach, through the class that the two
    share, into the original.
    """
    kind = parametrize.type_before_parametrizations(module)
    plain: nn.Module = object.__new__(kind)
    plain.__dict__.update(module.__dict__)
    plain._parameters = dict(module._parameters)
    plain._buffers = dict(module._buffers)
    plain._modules = {k: v for k, v in module._modules.items() if k != "parametrizations"}
    for name in module.parametrizations:  # type: ignore[union-attr]
        tensor = getattr(module, name).detach().clone()
        before = content_of(module.parametrizations)  # the first reading may fill a cache
        same = torch.equal(tensor, getattr(module, name))
        if not same or content_of(module.parametrizations) != before:
            raise NoRuleError(
                rule=f"the parametrised `{name}` of {kind.__name__} changes from one reading to "
                "the next, so no proof holds for the next forward pass",
                remedy="Make it a function of the parameter alone.",
            )
        plain._parameters[name] = nn.Parameter(tensor)
    return plain


def content_of(value: Any) -> Any:
    """What changes with a value, whatever it holds."""
    try:
        return pickle.dumps(value)
    except Exception:  # functions, locks and the like
        return id(value), repr(value)


def _check_call(module: nn.Module, name: str, subject: str, replaceable: bool = False) -> str:
    """Raises where a call of the module may do more than its type's forward; else its place."""
    label = f"`{name}` ({type(module).__name__})"
    if module._forward_hooks or module._forward_pre_hooks:
        rule = f"{label} has forward hooks, which may change what it computes"
        raise NoRuleError(subject, rule=rule, remedy="Remove them first.")
    if isinstance(module, torch.jit.ScriptModule):
        rule = f"{label} is compiled by TorchScript, which hides its operations"
        raise NoRuleError(subject, rule=rule, remedy="Use the Python module that it was made from.")
    if (method := _replaced_method(module)) and not replaceable:
        rule = f"the {method} of {label} was replaced on the instance, so its type says nothing"
        raise NoRuleError(subject, rule=rule, remedy="Write a class for it.")
    return label


def _replaced_method(module: nn.Module) -> str | None:
    """A method that another function of the instance hides, if what the type does is relied on."""
    if "forward" in vars(module):
        return "forward"
    compiled: Any = module._compiled_call_impl  # by `module.compile()`, and by nothing else
    origin = getattr(compiled, "_torchdynamo_orig_callable", compiled)
    if compiled is not None and origin != module._call_impl:
        return "_compiled_call_impl"
    if find_record(module) is None:
        return None  # its forward is captured, with all that it calls
    return next((n for n in vars(module) if isroutine(getattr(type(module), n, None))), None)


def _check_modules(model: nn.Module, subject: str) -> None:
    """Raises where a module is not what its type says."""
    hooks = torch.nn.modules.module
    if hooks._global_forward_hooks or hooks._global_forward_pre_hooks:
        rule = "global forward hooks may change what every module computes"
        raise NoRuleError(subject, rule=rule, remedy="Remove them.")
    for name, module in model.named_modules():
        label = _check_call(module, name or "model", subject)
        stored = {**module._parameters, **module._buffers}
        for tensor_name, tensor in {**vars(module), **stored}.items():
            if not isinstance(tensor, Tensor):
                continue
            if type(tensor) not in (nn.Parameter, Tensor):
                kind = type(tensor).__name__
                rule = f"`{tensor_name}` of {label} is a {kind}, which may compute something else"
                raise NoRuleError(subject, rule=rule, remedy="Convert it to a plain tensor.")
            numbers = tensor_name in stored and tensor.is_floating_point()
            if numbers and not torch.isfinite(tensor).all():
                rule = f"`{tensor_name}` of {label} must be finite"
                raise NonFiniteError(subject, rule=rule, got="NaN or infinity")
