"""The state of a training job: tensors, and the plain values around them.

The state is a list of tensors in a fixed order and a small *skeleton*: plain values with
placeholders for the tensors. So it can be sent tensor by tensor while training continues, and
read back without executing anything (`weights_only`).
"""

from __future__ import annotations

import copy
import hashlib
import io
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

ELEMENTWISE = frozenset(
    getattr(torch.optim, name)
    for name in (
        "SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop",
        "Rprop", "ASGD",
    )
)  # fmt: skip
"""Optimizers that update each element independently: their state can be sent in parts."""

KEPT = "keep: "
"""Prefix of the names of objects from `keep=`, among the others."""
EXTRA = "_extra_state"
"""Suffix of the names of a module's extra state."""

StateDict = dict[str, Any]
"""What `state_dict()` returns: torch itself gives its values no narrower type."""
TensorKind = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""Shape, strides and data type of a tensor."""
T = TypeVar("T")


class StateValues(TypedDict):
    """The whole state of a job as plain values and tensors, as a checkpoint stores it."""

    model: StateDict
    optimizer: StateDict
    others: dict[str, StateDict]
    frozen: list[bool]
    begun: list[bool]


class Skeleton(TypedDict):
    """The plain values of a state, and shape, strides and type of the tensors left out."""

    held: list[TensorKind]
    optimizer: StateDict
    shapes: list[tuple[tuple[int, ...], tuple[int, ...], torch.dtype, str]]
    others: dict[str, StateDict]
    frozen: list[bool]


class LoopSettings(TypedDict):
    """Plain values that a script may change in its loop."""

    groups: list[StateDict]
    others: dict[str, StateDict]
    frozen: list[bool]


class Stateful(Protocol):
    """An object with state beside the model: a scheduler, a scaler, or one from `keep=`."""

    def state_dict(self) -> StateDict:
        """Returns its state."""

    def load_state_dict(self, state_dict: StateDict, /) -> None:
        """Restores its state."""


class ModuleExtraState:
    """The extra state of modules (`get_extra_state`), which is not tensors."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> StateDict:
        """Returns the extra state by module name."""
        state = self._model.state_dict()
        return {name: value for name, value in state.items() if name.endswith(EXTRA)}

    def load_state_dict(self, state_dict: StateDict, /) -> None:
        """Restores the extra state."""
        self._model.load_state_dict(state_dict, strict=False)


@dataclass(slots=True)
class TrainingState:
    """The objects of the script that have state."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    others: dict[str, Stateful] = field(default_factory=dict)
    _begun: list[bool] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._begun = self._frozen()

    @classmethod
    def of(
        cls,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        others: Mapping[str, Stateful | None],
        keep: Mapping[str, Stateful],
    ) -> TrainingState:
        """Builds the state of a script; `others` that are None are left out."""
        stateful = {name: part for name, part in others.items() if part is not None}
        stateful |= {KEPT + name: part for name, part in keep.items()}
        extra = ModuleExtraState(model)
        if extra.state_dict():
            stateful[KEPT + "extra state of the model"] = extra
        return cls(model, optimizer, stateful)

    def tensors(self) -> list[Tensor]:
        """Returns the live tensors of model and optimizer, in a fixed order."""
        return [t.detach() for t in (*model_tensors(self.model), *self._split()[1])]

    def trained(self) -> list[Tensor]:
        """Returns parameters and optimizer tensors: those that a step changes."""
        parameters = {memory_key(p): p for p in self.model.parameters()}.values()
        return [t.detach() for t in (*parameters, *self._split()[1])]

    def versions(self) -> list[int]:
        """Returns the version counters of the parameters, which grow with each change."""
        return [p._version for p in self.model.parameters()]

    def units(self) -> list[list[int]]:
        """Returns the indices into `tensors`, in groups that change together.

        A parameter is grouped with its optimizer state: updating one needs the other. Settings of
        the optimizer that are tensors come first, since all updates need them.
        """
        tensors = model_tensors(self.model)
        place = {memory_key(t): i for i, t in enumerate(tensors)}
        trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        count = len(tensors)
        # `tensors` lists those of the model first, then those of the optimizer.
        numbers = iter(range(count, count + len(self._split()[1])))
        units: dict[int, list[int]] = {i: [i] for i in range(count)}
        for key, state in self.optimizer.state_dict()["state"].items():
            units[place[memory_key(trained[key])]] += [next(numbers) for _ in tensors_in(state)]
        return [[i] for i in numbers] + list(units.values())

    @property
    def at_least(self) -> int:
        """Returns the smallest micro-batch to train on: batch normalization needs two samples."""
        return 2 if any(isinstance(m, _BatchNorm) for m in self.model.modules()) else 1

    @property
    def elementwise(self) -> bool:
        """Returns whether each element of a parameter is updated from its own state only.

        Hooks of the script may do anything, and so may optimizers that are not in `ELEMENTWISE`.
        """
        hooks = (
            self.optimizer._optimizer_step_pre_hooks,
            self.optimizer._optimizer_step_post_hooks,
        )
        foreign = [h for by_id in hooks for h in by_id.values() if not hasattr(h, "of_dovetail")]
        return type(self.optimizer) in ELEMENTWISE and not foreign

    def skeleton(self) -> bytes:
        """Returns the plain values, and the shapes of the optimizer's tensors."""
        plain, tensors = self._split()
        # The type of device only: the receiver's GPU may have another index.
        shapes = [(*_kind(t), t.device.type) for t in tensors]
        others = {name: part.state_dict() for name, part in self.others.items()}
        kinds = [_kind(t) for t in model_tensors(self.model)]
        skeleton: Skeleton = {
            "held": kinds,
            "optimizer": plain,
            "shapes": shapes,
            "others": others,
            "frozen": self._frozen(),
        }
        return to_bytes(skeleton)

    def take_skeleton(self, data: bytes) -> None:
        """Restores the plain values; the optimizer's tensors are allocated, but still zero.

        Raises ValueError for the state of another model or optimizer.
        """
        skeleton = cast(Skeleton, from_bytes(data))
        if skeleton["held"] != [_kind(t) for t in model_tensors(self.model)]:
            raise ValueError(
                "the model differs from that of the other workers in its parameters or buffers:"
                " was the script changed since they started, or does it change the model?"
            )
        # Adam keeps its step counter on the CPU, so each tensor names its type of device.
        device = next(self.model.parameters()).device
        tensors = [
            torch.empty_strided(
                shape, stride, dtype=dtype, device=device if kind != "cpu" else "cpu"
            ).zero_()
            for shape, stride, dtype, kind in skeleton["shapes"]
        ]
        try:
            load_optimizer_state(
                self.optimizer, fill_placeholders(skeleton["optimizer"], iter(tensors))
            )
        except (ValueError, KeyError) as error:
            raise ValueError(f"the optimizer of the other workers differs: {error}") from None
        if set(skeleton["others"]) != set(self.others):
            raise ValueError(f"the other workers also have state of {sorted(skeleton['others'])}")
        for name, part in self.others.items():
            part.load_state_dict(skeleton["others"][name])
        self._freeze(skeleton["frozen"])

    def settings(self, *, whole: bool) -> bytes:
        """Returns plain values that a script may change in its loop, such as learning rates.

        With `whole`, including the objects from `keep=`.
        """
        groups = self.optimizer.state_dict()["param_groups"]
        others = {
            name: part.state_dict()
            for name, part in self.others.items()
            if whole or not name.startswith(KEPT)
        }
        settings: LoopSettings = {"groups": groups, "others": others, "frozen": self._frozen()}
        return to_bytes(settings)

    def take_settings(self, data: bytes) -> None:
        """Applies what `settings` returned."""
        settings = cast(LoopSettings, from_bytes(data))
        for mine, theirs in zip(self.optimizer.param_groups, settings["groups"], strict=True):
            for key, value in theirs.items():
                # In place: a running transfer refers to this very tensor.
                if isinstance(mine.get(key), Tensor):
                    mine[key].copy_(value)
                elif key != "params":
                    mine[key] = value
        for name, state in settings["others"].items():
            self.others[name].load_state_dict(state)
        self._freeze(settings["frozen"])

    def whole(self) -> StateValues:
        """Returns the whole state as a dictionary of copies on the CPU."""
        state: StateValues = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "others": {name: part.state_dict() for name, part in self.others.items()},
            "frozen": self._frozen(),
            "begun": self._begun,
        }
        # By memory: tied weights must be one tensor when the file is read again.
        copies: dict[MemoryKey, Tensor] = {}

        def copy_once(t: Tensor) -> Tensor:
            place = memory_key(t)
            if place not in copies:
                copies[place] = t.detach().to("cpu", copy=True)
            return copies[place]

        return map_tensors(state, copy_once)

    def take_whole(self, state: StateValues) -> None:
        """Restores the whole state. Raises ValueError for the state of another model."""
        try:
            self.model.load_state_dict(state["model"])
            load_optimizer_state(self.optimizer, state["optimizer"])
            for name, part in self.others.items():
                part.load_state_dict(state["others"][name])
            if state.get("begun") == self._begun:
                # Otherwise the script froze other parameters before it created the Job than when
                # the checkpoint was written: it is in another stage of training.
                self._freeze(state["frozen"])
        except (RuntimeError, KeyError) as error:
            raise ValueError(f"the checkpoint is of another model: {error}") from None

    def digest(self) -> str:
        """Returns a checksum of all tensors, equal on workers that are bit-identical."""
        sha = hashlib.sha256()
        for t in self.tensors():
            # Bytes, not values: NaN compares unequal to itself, and -0.0 equal to 0.0.
            sha.update(t.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return sha.hexdigest()[:16]

    def _frozen(self) -> list[bool]:
        """Returns which parameters are frozen now; a script may change that at any time."""
        return [not p.requires_grad for p in self.model.parameters()]

    def _freeze(self, frozen: list[bool]) -> None:
        for p, is_frozen in zip(self.model.parameters(), frozen, strict=True):
            if p.requires_grad == is_frozen:
                p.requires_grad_(not is_frozen)

    def _split(self) -> tuple[StateDict, list[Tensor]]:
        tensors: list[Tensor] = []

        def take_out(t: Tensor) -> str:
            tensors.append(t)
            return PLACEHOLDER

        return map_tensors(self.optimizer.state_dict(), take_out), tensors


def _kind(tensor: Tensor) -> TensorKind:
    """Returns the layout of a tensor: bytes can be copied between tensors of the same layout."""
    return tuple(tensor.shape), tensor.stride(), tensor.dtype


def hash_values(*what: object) -> int:
    """Returns a 56-bit hash of plain values."""
    return int.from_bytes(hashlib.sha256(repr(what).encode()).digest()[:7])


PLACEHOLDER = "\0tensor"
"""Stands for a tensor in a skeleton."""


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: StateDict) -> None:
    """Loads an optimizer's state, keeping the data type of each tensor.

    NOTE: torch casts all but `step` to the type of the parameter. A float32 factor of NAdam would
    become float64 in a float64 model, and differ from the bytes it was read from.
    """
    optimizer.load_state_dict(state)
    loaded = optimizer.state_dict()["state"]
    for key, saved in state["state"].items():
        for name, value in saved.items():
            mine = loaded[key][name]
            if isinstance(value, Tensor) and mine.dtype != value.dtype:
                loaded[key][name] = value.to(mine.device)


MemoryKey = tuple[object, ...]


def memory_key(tensor: Tensor) -> MemoryKey:
    """Returns a key that is equal for tensors that share memory, such as tied weights.

    Equal keys mean the same elements of the same storage in the same order. A tensor without plain
    storage (sparse, empty, or of some subclasses) is only equal to itself.
    """
    try:
        place = tensor.data_ptr() if tensor.numel() else 0
    except (RuntimeError, NotImplementedError):
        place = 0
    if not place:
        return (id(tensor),)
    return (place, tensor.device, tensor.dtype, tuple(tensor.shape), tensor.stride())


def model_tensors(model: nn.Module) -> list[Tensor]:
    """Returns parameters and buffers, each once."""
    tensors = [*model.parameters(), *model.buffers()]
    return list({memory_key(t): t for t in tensors}.values())


def tensors_in(value: object) -> list[Tensor]:
    """Returns the tensors in nested plain values, in the order of `map_tensors`."""
    tensors: list[Tensor] = []
    map_tensors(value, tensors.append)
    return tensors


def map_tensors(value: T, change: Callable[[Tensor], object]) -> T:
    """Returns a copy of nested plain values with `change` applied to each tensor."""

    def mapped(leaf: object) -> object:
        if isinstance(leaf, np.generic):
            return leaf.item()  # `weights_only` refuses scalars of numpy
        return change(leaf) if isinstance(leaf, Tensor) else leaf

    return cast(T, _map_leaves(value, mapped))


def fill_placeholders(value: T, tensors: Iterator[Tensor]) -> T:
    """Returns a copy of nested plain values with tensors in place of the placeholders, in order."""

    def filled(leaf: object) -> object:
        return next(tensors) if isinstance(leaf, str) and leaf == PLACEHOLDER else leaf

    return cast(T, _map_leaves(value, filled))


def _map_leaves(value: object, change: Callable[[object], object]) -> object:
    if isinstance(value, dict):
        return _like(value, {k: _map_leaves(v, change) for k, v in value.items()})
    if isinstance(value, (list, tuple)):
        return type(value)(_map_leaves(v, change) for v in value)
    return change(value)


def _like(dictionary: dict[object, object], items: dict[object, object]) -> dict[object, object]:
    """Returns `items` as a dictionary of the same type, if `weights_only` can read that type.

    A scheduler relies on its `Counter`, and the state of a model carries its version.
    """
    if type(dictionary) not in (Counter, OrderedDict):
        return items
    copied = copy.copy(dictionary)
    vars(copied).update(vars(dictionary))
    for key, value in items.items():
        copied[key] = value
    return copied


def to_bytes(value: object) -> bytes:
    """Serializes plain values and tensors."""
    buffer = io.BytesIO()
    torch.save(map_tensors(value, lambda t: t), buffer)
    return buffer.getvalue()


def from_bytes(data: bytes) -> object:
    """Deserializes plain values and tensors; anything else is refused and never executed."""
    # The GPU index of the sender may not exist on this machine.
    values: object = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return values
