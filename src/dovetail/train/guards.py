"""Detects mistakes in scripts that are made elastic, before they do harm.

Lines left over from the old loop, or state that the job does not know of, have no effect with one
worker and corrupt the training of several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from dovetail.train.process.environment import warn
from dovetail.train.state.state import KEPT, ModuleExtraState, Stateful, from_bytes, to_bytes
from dovetail.train.sync.state_transfer import is_dense

UNSUITABLE = {
    "LBFGS": "evaluates the loss several times within a step",
    "SparseAdam": "takes sparse gradients, and gradients are summed over workers as dense tensors",
}
SCHEDULES = ("step", "epoch")
SUM = 2
"""The value of `reduction="sum"` in torch's autograd nodes."""
TERMS_MAX = 100


def check_model(model: object) -> None:
    """Raises ValueError if it is not a module, or one that sums gradients itself."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"the model must be a torch.nn.Module, not {type(model).__name__}")
    kinds = {kind.__name__ for kind in type(model).__mro__}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.layout != torch.strided or not is_dense(tensor):
            raise ValueError(
                f"{name} is expanded, a slice of another tensor or sparse, and cannot be sent to"
                " joining workers: make it .contiguous(), or dense"
            )
    if kinds & {"DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule"}:
        raise ValueError(
            "pass the unwrapped model: the Job replaces torch.nn.parallel. A script that uses"
            " torch.nn.parallel runs unmodified as a plain job"
        )


def check_optimizer(optimizer: object) -> None:
    """Raises ValueError if it is not an optimizer, or cannot step once for all workers."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(
            f"the optimizer must be one torch.optim.Optimizer, not {type(optimizer).__name__};"
            " use parameter groups instead of several optimizers"
        )
    for kind in type(optimizer).__mro__:
        if kind.__name__ in UNSUITABLE:
            raise ValueError(f"{kind.__name__} {UNSUITABLE[kind.__name__]}: use another optimizer")


def check_scheduler(scheduler: object, schedule: str) -> None:
    """Raises ValueError for a scheduler that the job cannot step."""
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, not {schedule!r}")
    if isinstance(scheduler, ReduceLROnPlateau):
        raise ValueError(
            "ReduceLROnPlateau needs a metric from the script: pass it in"
            " keep={'plateau': scheduler}, and call its step(metric) after each job.epochs() pass"
        )


def check_saved_part(name: str, part: object) -> None:
    """Raises ValueError for an object whose state cannot be saved and sent."""
    if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
        raise ValueError(f"{name} must have state_dict() and load_state_dict()")
    try:
        from_bytes(to_bytes(cast(Stateful, part).state_dict()))
    except Exception as error:  # torch and pickle raise many types
        raise ValueError(f"the state of {name} must be plain values and tensors: {error}") from None


def check_arguments(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: LRScheduler | None,
    schedule: str,
    keep: Mapping[str, Stateful],
) -> None:
    """Raises ValueError for arguments that a job cannot train with."""
    check_model(model)
    check_optimizer(optimizer)
    check_scheduler(scheduler, schedule)
    if scheduler is not None:
        check_saved_part("the scheduler", scheduler)
    check_saved_part("the model", ModuleExtraState(model))
    for name, part in keep.items():
        check_saved_part(f"keep[{name!r}]", part)


def refers_to(part: object, optimizer: torch.optim.Optimizer, depth: int = 4) -> bool:
    """Returns whether an object is a scheduler of the optimizer, or contains one."""
    if getattr(part, "optimizer", None) is optimizer:
        return True
    contents: Iterable[object] = getattr(part, "__dict__", {}).values()
    if isinstance(part, dict):
        contents = part.values()
    elif isinstance(part, (list, tuple)):
        contents = part
    # Bounded: objects may refer to each other in cycles.
    return depth > 0 and any(refers_to(one, optimizer, depth - 1) for one in contents)


def is_sum(loss: Tensor, samples: int) -> bool:
    """Returns whether a term of the loss is a plain sum over `samples` samples.

    On one worker a sum trains as well as a mean. Split among workers, its gradient changes with
    their number, and its value does not show that. The autograd graph that computed it does.
    """
    terms = [loss.grad_fn]
    for _ in range(TERMS_MAX):
        term = terms.pop() if terms else None
        if term is None:
            return False
        # One of several terms may be a penalty on parameters that happens to have as many rows.
        is_only_term = term is loss.grad_fn
        is_rows = is_only_term and term.name() == "SumBackward0" and _rows(term) == samples
        if term.name().startswith(("AddBackward", "SubBackward")):
            terms += [node for node, _ in term.next_functions if node is not None]
        elif is_rows or getattr(term, "_saved_reduction", None) == SUM:
            return True
    return False


def _rows(term: object) -> int:
    shape = tuple(getattr(term, "_saved_self_sym_sizes", ()))
    return int(shape[0]) if shape else 0


class ScriptGuard:
    """Detects what a script does to objects that only the job may use."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        scheduler: LRScheduler | None,
        others: Mapping[str, Stateful],
    ) -> None:
        self._optimizer, self._scheduler = optimizer, scheduler
        self._others = others
        self._allowed = True
        self._steps: int | None = None

        # A hook, since the script may have its own reference to `optimizer.step`.
        def check_caller(*_: object) -> None:
            if not self._allowed:
                raise RuntimeError(
                    "job.step() steps the optimizer for all workers:"
                    " take optimizer.step() out of the loop"
                )

        # Marked, or the optimizer would count as one with hooks of the script (`elementwise`).
        check_caller.of_dovetail = True  # type: ignore[attr-defined]
        optimizer.register_step_pre_hook(check_caller)

    def begin(self) -> None:
        """Forbids the script to step the optimizer. Raises ValueError for an unknown scheduler."""
        # Constructing a scheduler wraps `optimizer.step`: the only trace of one the Job lacks.
        patched = getattr(self._optimizer.step, "_wrapped_by_lr_sched", False)
        if patched and not any(refers_to(p, self._optimizer) for p in self._others.values()):
            self._report_unknown_scheduler()
        self._allowed = False

    def _report_unknown_scheduler(self) -> None:
        """Raises ValueError, or warns if an object from `keep=` may contain the scheduler."""
        problem = (
            "the optimizer has a scheduler that the Job was not given: pass Job(scheduler=...),"
            " or keep={...} if the script steps it"
        )
        parts = [part for name, part in self._others.items() if name.startswith(KEPT)]
        if all(isinstance(part, (nn.Module, ModuleExtraState)) for part in parts):
            raise ValueError(problem)
        warn(problem)

    def end(self) -> None:
        """Allows the script everything again."""
        self._allowed = True

    def allow(self, allowed: bool) -> None:
        """Allows the optimizer's step, around the one that the job makes."""
        self._allowed = allowed

    def scheduled(self) -> None:
        """Steps the scheduler. Raises RuntimeError if the script has stepped it too."""
        steps = getattr(self._scheduler, "_step_count", None)
        if self._steps is not None and steps != self._steps:
            raise RuntimeError(
                "job.step() steps the scheduler: take scheduler.step() out of the loop"
            )
        assert self._scheduler is not None
        self._scheduler.step()
        self._steps = getattr(self._scheduler, "_step_count", None)

    def forget(self) -> None:
        """Accepts the scheduler's step count as it is: its state came from another worker."""
        self._steps = None
