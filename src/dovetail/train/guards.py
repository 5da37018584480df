"""What scripts get wrong when they are made elastic, said before it does harm.

Lines of the old loop that are left in it, or state that the job was not told of, would go unseen
with one worker and spoil the training of several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from dovetail.train.state.save_policy import warn
from dovetail.train.state.state import KEPT, ExtraState, Stateful, from_bytes, to_bytes
from dovetail.train.sync.state_transfer import is_dense

UNSUITABLE = {
    "LBFGS": "evaluates the loss again and again within a step",
    "SparseAdam": "takes sparse gradients, and those of all workers are added up as dense ones",
}
SCHEDULES = ("step", "epoch")


def look_at_model(model: Any) -> None:
    """Raises ValueError for what is no model, or one that adds up gradients itself."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"the model must be a torch.nn.Module, not {type(model).__name__}")
    kinds = {kind.__name__ for kind in type(model).__mro__}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.layout != torch.strided or not is_dense(tensor):
            raise ValueError(
                f"{name} is expanded, cut out of another tensor or sparse, and could not be sent to"
                " workers that join: make it .contiguous(), or dense"
            )
    if kinds & {"DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule"}:
        raise ValueError(
            "give the model itself: the Job takes the place of torch.nn.parallel, and a script that"
            " uses that runs unmodified as a plain job"
        )


def look_at_optimizer(optimizer: Any) -> None:
    """Raises ValueError for what is no optimizer, or cannot be stepped once for all workers."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(
            f"the optimizer must be one torch.optim.Optimizer, not {type(optimizer).__name__};"
            " parameter groups take the place of several"
        )
    for kind in type(optimizer).__mro__:
        if kind.__name__ in UNSUITABLE:
            raise ValueError(f"{kind.__name__} {UNSUITABLE[kind.__name__]}: use another optimizer")


def look_at_scheduler(scheduler: Any, schedule: str) -> None:
    """Raises ValueError for a scheduler that the job cannot step."""
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule is one of {', '.join(SCHEDULES)}, not {schedule!r}")
    if isinstance(scheduler, ReduceLROnPlateau):
        raise ValueError(
            "ReduceLROnPlateau needs a number of yours: give it as keep={'plateau': scheduler}, and"
            " call its step(number) after each pass of job.epochs()"
        )


def look_at_kept(name: str, part: Any) -> None:
    """Raises ValueError for what is to be saved and sent, but cannot be."""
    if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
        raise ValueError(f"{name} must have state_dict() and load_state_dict()")
    try:
        from_bytes(to_bytes(part.state_dict()))
    except Exception as error:  # whatever torch or pickle say of it
        raise ValueError(f"the state of {name} must be plain values and tensors: {error}") from None


def look_at(
    model: Any, optimizer: Any, scheduler: Any, schedule: str, keep: Mapping[str, Any]
) -> None:
    """Raises ValueError for what a job cannot train."""
    look_at_model(model)
    look_at_optimizer(optimizer)
    look_at_scheduler(scheduler, schedule)
    if scheduler is not None:
        look_at_kept("the scheduler", scheduler)
    look_at_kept("the model", ExtraState(model))
    for name, part in keep.items():
        look_at_kept(f"keep[{name!r}]", part)


def drives(part: Any, optimizer: torch.optim.Optimizer, depth: int = 4) -> bool:
    """Returns whether a part is a scheduler of an optimizer, or holds one, in lists or the like."""
    if getattr(part, "optimizer", None) is optimizer:
        return True
    held: Iterable[Any] = getattr(part, "__dict__", {}).values()
    if isinstance(part, dict):
        held = part.values()
    elif isinstance(part, (list, tuple)):
        held = part
    return depth > 0 and any(drives(one, optimizer, depth - 1) for one in held)


class Guard:
    """Looks on while a script trains, at what belongs to the job alone."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, scheduler: Any, others: Mapping[str, Stateful]
    ) -> None:
        self._optimizer, self._scheduler = optimizer, scheduler
        self._others = others
        self._allowed = True
        self._steps: int | None = None

        def look(*_: object) -> None:
            if not self._allowed:
                raise RuntimeError(
                    "job.step() makes the optimizer's step, for all workers:"
                    " take optimizer.step() out of the loop"
                )

        look.of_dovetail = True  # type: ignore[attr-defined]
        optimizer.register_step_pre_hook(look)

    def begin(self) -> None:
        """From now on only the job steps. Raises ValueError for a scheduler it knows nothing of."""
        patched = getattr(self._optimizer.step, "_wrapped_by_lr_sched", False)
        if patched and not any(drives(p, self._optimizer) for p in self._others.values()):
            self._miss_scheduler()
        self._allowed = False

    def _miss_scheduler(self) -> None:
        """Raises ValueError, unless something that the script keeps may hold it unseen."""
        what = (
            "the optimizer has a scheduler that the Job was not given: Job(scheduler=...), or in"
            " keep={...} if the script steps it"
        )
        kept = [part for name, part in self._others.items() if name.startswith(KEPT)]
        if all(isinstance(part, (nn.Module, ExtraState)) for part in kept):
            raise ValueError(what)
        warn(what)

    def end(self) -> None:
        """The script may do as it likes."""
        self._allowed = True

    def allow(self, allowed: bool) -> None:
        """Lets the job step, or ends that."""
        self._allowed = allowed

    def scheduled(self) -> None:
        """Steps the scheduler. Raises RuntimeError if the script has done so too."""
        steps = getattr(self._scheduler, "_step_count", None)
        if self._steps is not None and steps != self._steps:
            raise RuntimeError(
                "job.step() steps the scheduler: take scheduler.step() out of the loop"
            )
        self._scheduler.step()
        self._steps = getattr(self._scheduler, "_step_count", None)

    def forget(self) -> None:
        """Counts the scheduler's steps anew: it has taken on another's state."""
        self._steps = None
