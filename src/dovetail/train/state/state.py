"""All that a training job knows: tensors, and the plain values around them.

Everything is a list of tensors in a fixed order and a small *skeleton* of plain values with holes
where the tensors belong. So state can be sent tensor by tensor while training goes on, and read
back without executing anything (`weights_only`).
"""

from __future__ import annotations

import copy
import hashlib
import io
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

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
"""Optimizers in which elements do not depend on each other: state can be sent in parts."""

KEPT = "keep: "
"""How the names of what a script keeps itself begin, among the others."""


EXTRA = "_extra_state"
"""How names of the extra state of modules end."""


class Stateful(Protocol):
    """What has state beside the model: a scheduler, a scaler, what a script keeps itself."""

    def state_dict(self) -> dict[str, Any]:
        """Returns its state."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Takes a state on."""


class ExtraState:
    """What modules keep beside tensors (`get_extra_state`)."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        """Returns it by the names of the modules."""
        state = self._model.state_dict()
        return {name: value for name, value in state.items() if name.endswith(EXTRA)}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Gives it to the modules."""
        self._model.load_state_dict(state_dict, strict=False)


@dataclass(slots=True)
class Parts:
    """The objects of the user's script that have state."""

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
    ) -> Parts:
        """Returns the parts of a script that has these others, if they are, and keeps these."""
        found = {name: part for name, part in others.items() if part is not None}
        found |= {KEPT + name: part for name, part in keep.items()}
        extra = ExtraState(model)
        if extra.state_dict():
            found[KEPT + "extra state of the model"] = extra
        return cls(model, optimizer, found)

    def tensors(self) -> list[Tensor]:
        """Returns the tensors of model and optimizer, the live ones, in a fixed order."""
        return [t.detach() for t in (*held_tensors(self.model), *self._split()[1])]

    def trained(self) -> list[Tensor]:
        """Returns parameters and the tensors of the optimizer, which each step changes."""
        parameters = {memory_of(p): p for p in self.model.parameters()}.values()
        return [t.detach() for t in (*parameters, *self._split()[1])]

    def versions(self) -> list[int]:
        """Returns numbers that grow whenever parameters change."""
        return [p._version for p in self.model.parameters()]

    def units(self) -> list[list[int]]:
        """Returns the tensors, by their places in `tensors`, in groups that change together.

        A parameter is with its state: updating the one needs the other. Settings of the optimizer
        that are tensors come first, since all updates need them.
        """
        held = held_tensors(self.model)
        place = {memory_of(t): i for i, t in enumerate(held)}
        trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        numbers = iter(range(len(held), len(held) + len(self._split()[1])))
        units: dict[int, list[int]] = {i: [i] for i in range(len(held))}
        for key, state in self.optimizer.state_dict()["state"].items():
            units[place[memory_of(trained[key])]] += [next(numbers) for _ in tensors_in(state)]
        return [[i] for i in numbers] + list(units.values())

    @property
    def at_least(self) -> int:
        """Returns on how many samples at a time the model can train: normalizing takes two."""
        return 2 if any(isinstance(m, _BatchNorm) for m in self.model.modules()) else 1

    @property
    def elementwise(self) -> bool:
        """Returns whether each element of a parameter is updated from its own state alone.

        Hooks of the user's may do anything, and so may optimizers that are not known here.
        """
        hooks = (
            self.optimizer._optimizer_step_pre_hooks,
            self.optimizer._optimizer_step_post_hooks,
        )
        foreign = [h for held in hooks for h in held.values() if not hasattr(h, "of_dovetail")]
        return type(self.optimizer) in ELEMENTWISE and not foreign

    def skeleton(self) -> bytes:
        """Returns the plain values, with the shapes of the optimizer's tensors."""
        plain, tensors = self._split()
        shapes = [(*_kind(t), t.device.type) for t in tensors]
        others = {name: part.state_dict() for name, part in self.others.items()}
        held = [_kind(t) for t in held_tensors(self.model)]
        return to_bytes(
            {
                "held": held,
                "optimizer": plain,
                "shapes": shapes,
                "others": others,
                "frozen": self._frozen(),
            }
        )

    def take_skeleton(self, said: bytes) -> None:
        """Takes on the plain values; the optimizer's tensors are there, but still empty.

        Raises ValueError for a state of another model.
        """
        skeleton = from_bytes(said)
        if skeleton["held"] != [_kind(t) for t in held_tensors(self.model)]:
            raise ValueError(
                "the model is another one than that of the other workers, in its parameters or"
                " buffers: was the script changed since they began, or does it change the model?"
            )
        device = next(self.model.parameters()).device
        tensors = [
            torch.empty_strided(
                shape, stride, dtype=dtype, device=device if kind != "cpu" else "cpu"
            ).zero_()
            for shape, stride, dtype, kind in skeleton["shapes"]
        ]
        try:
            load_exactly(self.optimizer, fill_holes(skeleton["optimizer"], iter(tensors)))
        except (ValueError, KeyError) as error:
            raise ValueError(f"the optimizer is another one: {error}") from None
        if set(skeleton["others"]) != set(self.others):
            raise ValueError(f"the state has {sorted(skeleton['others'])} beside the optimizer")
        for name, part in self.others.items():
            part.load_state_dict(skeleton["others"][name])
        self._freeze(skeleton["frozen"])

    def settings(self, *, whole: bool) -> bytes:
        """Returns plain values that a script may change in its loop: learning rates and the like.

        The `whole` of them includes what the script keeps itself.
        """
        groups = self.optimizer.state_dict()["param_groups"]
        others = {
            name: part.state_dict()
            for name, part in self.others.items()
            if whole or not name.startswith(KEPT)
        }
        return to_bytes({"groups": groups, "others": others, "frozen": self._frozen()})

    def take_settings(self, said: bytes) -> None:
        """Takes on what `settings` gave."""
        settings = from_bytes(said)
        for mine, theirs in zip(self.optimizer.param_groups, settings["groups"], strict=True):
            for key, value in theirs.items():
                if isinstance(mine.get(key), Tensor):
                    mine[key].copy_(value)
                elif key != "params":
                    mine[key] = value
        for name, state in settings["others"].items():
            self.others[name].load_state_dict(state)
        self._freeze(settings["frozen"])

    def whole(self) -> dict[str, Any]:
        """Returns everything as one dictionary, on the CPU and apart from the live tensors.

        Tensors that are one (tied weights) are one there too, and are saved once.
        """
        state: dict[str, Any] = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "others": {name: part.state_dict() for name, part in self.others.items()},
            "frozen": self._frozen(),
            "begun": self._begun,
        }
        copies: dict[Memory, Tensor] = {}

        def copy_once(t: Tensor) -> Tensor:
            place = memory_of(t)
            if place not in copies:
                copies[place] = t.detach().to("cpu", copy=True)
            return copies[place]

        copied: dict[str, Any] = map_tensors(state, copy_once)
        return copied

    def take_whole(self, state: dict[str, Any]) -> None:
        """Takes everything on. Raises ValueError for a state of another model."""
        try:
            self.model.load_state_dict(state["model"])
            load_exactly(self.optimizer, state["optimizer"])
            for name, part in self.others.items():
                part.load_state_dict(state["others"][name])
            if state.get("begun") == self._begun:
                # Else the script wants others trained than when it was saved: another stage of it.
                self._freeze(state["frozen"])
        except (RuntimeError, KeyError) as error:
            raise ValueError(f"the checkpoint is of another model: {error}") from None

    def digest(self) -> str:
        """Returns a checksum of all tensors, equal on workers that are equal bit by bit."""
        sha = hashlib.sha256()
        for t in self.tensors():
            sha.update(t.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return sha.hexdigest()[:16]

    def _frozen(self) -> list[bool]:
        """Returns which parameters are not trained now: a script may change that as it goes."""
        return [not p.requires_grad for p in self.model.parameters()]

    def _freeze(self, frozen: list[bool]) -> None:
        for p, stays in zip(self.model.parameters(), frozen, strict=True):
            if p.requires_grad == stays:
                p.requires_grad_(not stays)

    def _split(self) -> tuple[Any, list[Tensor]]:
        tensors: list[Tensor] = []

        def hole(t: Tensor) -> Hole:
            tensors.append(t)
            return HOLE

        return map_tensors(self.optimizer.state_dict(), hole), tensors


def _kind(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype]:
    """Returns what two tensors have in common when the bytes of one make sense in the other."""
    return tuple(tensor.shape), tensor.stride(), tensor.dtype


def number_of(*what: object) -> int:
    """Returns a number for plain values, hardly ever the same one for others."""
    return int.from_bytes(hashlib.sha256(repr(what).encode()).digest()[:7])


Hole = str
HOLE: Hole = "\0tensor"


def load_exactly(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Gives an optimizer a state, each tensor in the type that it had.

    NOTE: torch gives all but `step` the type of the parameter: a float32 factor of NAdam would
    become float64 in a float64 model, and have other bytes than the one it was read from.
    """
    optimizer.load_state_dict(state)
    held = optimizer.state_dict()["state"]
    for key, given in state["state"].items():
        for name, value in given.items():
            mine = held[key][name]
            if isinstance(value, Tensor) and mine.dtype != value.dtype:
                held[key][name] = value.to(mine.device)


Memory = tuple[object, ...]


def memory_of(tensor: Tensor) -> Memory:
    """Returns what two tensors have in common that are one: weights tied under two names.

    The same elements of the same storage in the same order; without a storage of plain memory
    (sparse, empty, or one of a subclass) a tensor is one with itself alone.
    """
    try:
        place = tensor.data_ptr() if tensor.numel() else 0
    except (RuntimeError, NotImplementedError):
        place = 0
    if not place:
        return (id(tensor),)
    return (place, tensor.device, tensor.dtype, tuple(tensor.shape), tensor.stride())


def held_tensors(model: nn.Module) -> list[Tensor]:
    """Returns parameters and buffers, each once."""
    found = [*model.parameters(), *model.buffers()]
    return list({memory_of(t): t for t in found}.values())


def tensors_in(value: Any) -> list[Tensor]:
    """Returns the tensors in nested plain values, in the order of `map_tensors`."""
    found: list[Tensor] = []
    map_tensors(value, found.append)
    return found


def map_tensors(value: Any, change: Any) -> Any:
    """Returns a copy of nested plain values with each tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return _like(value, {k: map_tensors(v, change) for k, v in value.items()})
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(v, change) for v in value)
    if isinstance(value, np.generic):
        return value.item()  # numbers of numpy are not read back
    return value


def _like(dictionary: dict[Any, Any], items: dict[Any, Any]) -> dict[Any, Any]:
    """Returns items in a dictionary of the same kind, if that is one that can be read back.

    A scheduler counts on its `Counter`, and a model's state says of which version it is.
    """
    if type(dictionary) not in (Counter, OrderedDict):
        return items
    found = copy.copy(dictionary)
    vars(found).update(vars(dictionary))
    for key, value in items.items():
        found[key] = value
    return found


def fill_holes(value: Any, tensors: Iterator[Tensor]) -> Any:
    """Returns the nested values with tensors in the holes, in order."""
    if isinstance(value, str) and value == HOLE:
        return next(tensors)
    if isinstance(value, dict):
        return _like(value, {k: fill_holes(v, tensors) for k, v in value.items()})
    if isinstance(value, (list, tuple)):
        return type(value)(fill_holes(v, tensors) for v in value)
    return value


def to_bytes(value: object) -> bytes:
    """Returns plain values and tensors as bytes."""
    buffer = io.BytesIO()
    torch.save(map_tensors(value, lambda t: t), buffer)
    return buffer.getvalue()


def from_bytes(said: bytes) -> Any:
    """Returns plain values and tensors from bytes; anything else is refused, never executed."""
    # The GPU of who said it may have a number that none has here.
    return torch.load(io.BytesIO(said), map_location="cpu", weights_only=True)
