"""What a policy is, how it is found by name, and how its parameters are written.

A policy is a frozen dataclass of parameters. It declares what it must know (`knows`), what it
may do to jobs (`powers`) and how it ranks them (`order`); `decide` is a pure function of a view
and the policy's own immutable memory.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar, cast, get_args, get_origin, get_type_hints

from dovetail.core.errors import InputError, nearest
from dovetail.core.messages import Reason
from dovetail.core.order import Order
from dovetail.core.plan import Draft
from dovetail.core.view import View

KNOWLEDGE = ("length", "attained service", "scaling", "interference", "stages", "memory")
Kept = Mapping[str, object]
"""What a policy keeps of its memory for its next controller: values for JSON, by who keeps them."""
UNTIL_S = "until_s"
"""The name in `Kept` of when another policy took over, if one has since."""
POWERS = (
    "preempt",
    "migrate",
    "resize",
    "share",
    "interleave",
    "restrict",
    "delay",
    "change batch",
)


@dataclass(frozen=True, slots=True)
class Decision:
    """A policy's answer. `draft=None` leaves the plan as it is.

    `memory` is handed back at the next call, which is due at `wake_at` at the latest.
    `because`: why jobs wait, recorded when it changes. `order` ranks the waiting jobs
    anew from here on, for policies whose ranking changes as they learn.
    """

    draft: Draft | None = None
    memory: object = None
    wake_at: float = float("inf")
    because: tuple[Reason, ...] | None = None
    order: Order | None = None


class Policy(Protocol):
    """The protocol of every policy; see docs/guides/write-a-policy.md."""

    @property
    def knows(self) -> frozenset[str]:
        """Returns what it must know; a class attribute unless the policy wraps another."""

    @property
    def powers(self) -> frozenset[str]:
        """Returns what it may do to jobs; a class attribute unless the policy wraps another."""

    @property
    def order(self) -> Order:
        """Returns how the policy ranks jobs."""

    @property
    def initial(self) -> object:
        """Returns the memory before the first decision."""

    def decide(self, view: View, memory: object) -> Decision:
        """Returns the plan the policy wants at this instant."""


def reserves(policy: Policy) -> bool:
    """True if the policy keeps GPUs free until a time that it computes from lengths.

    Such a policy says so with a class attribute `reserves`; by default it does not.
    """
    return bool(getattr(policy, "reserves", False))


def reads_limits(policy: Policy) -> bool:
    """True if the policy, or one that it wraps, reads the users' time limits whatever the forecast.

    Such a policy says so with a class attribute `reads_limits`; by default it does not.
    """
    inner = getattr(policy, "inner", None)
    return bool(getattr(policy, "reads_limits", False)) or (
        inner is not None and reads_limits(inner)
    )


def takes_parts(policy: Policy) -> bool:
    """True if the policy serves jobs that ask for parts of GPUs, or for none.

    Such a policy places jobs where `view.placing` finds room and does not count GPUs itself, or
    counts parts as parts. It says so with an attribute `takes_parts`; by default it does not.
    """
    return bool(getattr(policy, "takes_parts", False))


@dataclass(frozen=True, slots=True)
class Preset:
    """A name for a policy with some parameters fixed: what it is in one line, and their values."""

    summary: str
    fixed: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Registered:
    """A policy name: its class, and the parameters that the name fixes."""

    name: str
    cls: type[Policy]
    fixed: Mapping[str, object]
    page: str
    """The text of `dovetail policies NAME`."""
    is_preset: bool = False

    def __call__(self, **parameters: object) -> Policy:
        """Returns the policy. Raises ValueError for an invalid value."""
        return self.cls(**{**self.fixed, **parameters})

    @property
    def module(self) -> str:
        """Returns the module of the class."""
        return self.cls.__module__

    @property
    def summary(self) -> str:
        """Returns what the policy is, in one line."""
        return self.page.split("\n", 1)[0]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Returns the parameters that a user may set beside the name, as they are typed."""
        closed = self.fixed if self.is_preset else ()
        names = (field.name for field in _fields(self.cls))
        return tuple(name.replace("_", "-") for name in names if name not in closed)

    def matches(self, policy: Policy) -> bool:
        """True if a policy is of this class and has the values that the name fixes."""
        return self.is_of(policy) and all(
            getattr(policy, name) == value for name, value in self.fixed.items()
        )

    def is_of(self, policy: Policy) -> bool:
        """True if a policy is of this class, also if its file was run another time."""
        theirs, ours = type(policy), self.cls
        return (theirs.__module__, theirs.__qualname__) == (ours.__module__, ours.__qualname__)


C = TypeVar("C", bound=type[Policy])
_registry: dict[str, Registered] = {}


Load = Callable[[str | None], None]
"""Imports the module that a policy's name names; all modules for None or another name."""
_packages: dict[str, Load] = {}


def add_package(package: str, load: Load) -> None:
    """Makes the policies of a package known, without importing them."""
    _packages[package] = load


def _load(name: str | None) -> None:
    if name is None or name not in _registry:
        for load in _packages.values():
            load(name)


def register(name: str, presets: Mapping[str, Preset] = MappingProxyType({})) -> Callable[[C], C]:
    """Returns a decorator that makes a policy known by name and checks its declarations.

    `presets` are further names, for the same class with some parameters fixed.
    """

    def enter(cls: C) -> C:
        if cls.__module__.rpartition(".")[0] not in _packages:
            _load(None)  # A user's policy must not take a name of ours.
        page = (sys.modules[cls.__module__].__doc__ or "").strip()
        # The plain name stands for the defaults of whatever a preset fixes.
        varied = {key for preset in presets.values() for key in preset.fixed}
        usual = {field.name: field.default for field in _fields(cls) if field.name in varied}
        names = [Registered(name, cls, usual, page)]
        for each, preset in presets.items():
            text = f"{preset.summary}\n\n{page}"
            names.append(Registered(each, cls, preset.fixed, text, is_preset=True))
        for entry in names:
            _check_declarations(entry)
            taken = _registry.get(entry.name)
            if taken is not None and taken.cls.__qualname__ != cls.__qualname__:
                raise TypeError(f"two policies are called {entry.name}")
        _registry.update((entry.name, entry) for entry in names)
        return cls

    return enter


def _check_declarations(entry: Registered) -> None:
    for attribute, known in (("knows", KNOWLEDGE), ("powers", POWERS)):
        words = getattr(entry.cls, attribute)
        # Properties depend on the parameters; a wrapper's on a policy that was checked itself.
        unknown = set() if isinstance(words, property) else set(words) - set(known)
        if unknown:
            raise TypeError(f"policy {entry.name}: unknown declaration {sorted(unknown)}")


def registered() -> dict[str, Registered]:
    """Returns the policies by name, in order of name."""
    _load(None)
    return dict(sorted(_registry.items()))


def heeded(policy: Policy) -> frozenset[str]:
    """Returns the wishes that a policy heeds beside its order.

    `priority` of jobs and queues; `guarantees` with weights and tiers of queues (tenancy);
    `priority_tier` of queues (slurm).

    A policy says so by an attribute `heeds`; one without it heeds none.
    """
    return frozenset(getattr(policy, "heeds", ()))


def kept_of(policy: Policy, memory: object, name_of: Callable[[int], str]) -> Kept:
    """Returns what a policy keeps of its memory when its controller ends; most keep nothing.

    A policy that does has a method `keep` with these arguments, and `recall`, which takes what is
    kept and the row of each name. `name_of` gives the lasting name of a job in the tables.
    """
    keep = getattr(policy, "keep", None)
    return {} if keep is None else cast(Kept, keep(memory, name_of))


def recalled(policy: Policy, kept: Kept, row_of: Mapping[str, int]) -> object:
    """Returns the first memory of a policy, with what it kept of an earlier one.

    Raises TypeError, ValueError or LookupError if that is damaged.
    """
    recall = getattr(policy, "recall", None)
    return policy.initial if recall is None or not kept else recall(kept, row_of)


def ranks_of(policy: Policy, view: View, memory: object) -> Mapping[int, float]:
    """Returns the ranks of waiting jobs by the memory of a policy; none if its order has them.

    A policy that ranks by its memory has a method `ranks` with these arguments, and starts jobs in
    the order of the view's queue where that has one.
    """
    ranks = getattr(policy, "ranks", None)
    return {} if ranks is None else cast(Mapping[int, float], ranks(view, memory))


def _entry_of(policy: Policy) -> Registered | None:
    """Returns the name with most parameters fixed that a policy answers to."""
    entries = [entry for entry in _registry.values() if entry.matches(policy)]
    return max(entries, key=lambda entry: (len(entry.fixed), entry.is_preset), default=None)


def name_of(policy: Policy) -> str:
    """Returns the name of a policy: a preset's if it has the parameters of one."""
    entry = _entry_of(policy)
    if entry is not None:
        return entry.name
    plain = next((e.name for e in _registry.values() if e.is_of(policy)), None)
    return plain or str(getattr(policy, "name", type(policy).__name__))


def spell(policy: Policy) -> str:
    """Returns the text that `parse_policy` turns into this policy, with every parameter.

    A policy that is no dataclass has no parameters.
    """
    entry = _entry_of(policy)
    fixed = {} if entry is None else entry.fixed
    parts: list[str] = []
    for field in _fields(type(policy)):
        if field.name not in fixed:
            value = _spell_value(getattr(policy, field.name))
            parts.append(f"{field.name.replace('_', '-')}={value}")
    return name_of(policy) + (":" + ",".join(parts) if parts else "")


def _spell_value(value: object) -> str:
    if isinstance(value, tuple):
        return "/".join(_spell_value(v) for v in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if hasattr(value, "decide"):
        return spell(cast("Policy", value)).replace(",", ";")
    return str(value)


def parse_policy(text: str) -> Policy:
    """Returns the policy that `name:parameter=value,...` or `path/to/file.py:Class` names.

    Raises InputError.
    """
    head, _, rest = text.partition(":")
    if head.endswith(".py"):
        class_name, _, rest = rest.partition(":")
        entry = Registered(head, class_from_file(head, class_name, "decide", "policy"), {}, "")
    else:
        _load(head)
        if head not in _registry:
            raise InputError(f"policy '{head}'", "no such policy", nearest(head, _registry))
        entry = _registry[head]
    return _build(entry, rest)


def _build(entry: Registered, rest: str) -> Policy:
    where, hints = f"policy '{entry.name}'", get_type_hints(entry.cls)
    known = {name: hints[name.replace("-", "_")] for name in entry.parameters}
    parameters: dict[str, object] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        name = key.strip().replace("_", "-")
        if not equals and name in known:
            raise InputError(where, f"parameter '{key}' has no value", f"{key}=...")
        if name not in known:
            mend = nearest(name, known) if known else "it has no parameters"
            mend += "".join(f"; those of {k} are parted by ;" for k in known if known[k] is Policy)
            raise InputError(where, f"no parameter '{key}'", mend)
        parameters[name.replace("-", "_")] = _value(where, key, value, known[name])
    try:
        return entry(**parameters)
    except ValueError as error:
        raise InputError(where, str(error)) from None


def _fields(cls: type) -> tuple[dataclasses.Field[object], ...]:
    """Returns the parameters of a policy class; one that is no dataclass has none."""
    return dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()


def _value(where: str, key: str, text: str, kind: object) -> object:
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        return tuple(_value(where, key, t, inner) for t in text.split("/") if t)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise InputError(where, f"parameter '{key}' wants true or false, not '{text}'")
        return text.lower() == "true"
    if kind is str:
        return text
    if kind not in (int, float):
        return parse_policy(text.replace(";", ","))
    try:
        value = int(text) if kind is int else float(text)
        if value != value:
            raise ValueError
        return value
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise InputError(where, f"parameter '{key}' wants {wanted}, not '{text}'") from None


def class_from_file(file: str, class_name: str, method: str, kind: str) -> type:
    """Returns the class of a user's file that has a method; `kind` is what it is, in words.

    Without a name, the only one. Raises InputError.
    """
    path = Path(file)
    if not path.is_file():
        raise InputError(str(path), f"no such {kind} file")
    module = _module_of(path)
    here = [
        c
        for c in vars(module).values()
        if isinstance(c, type) and c.__module__ == module.__name__ and hasattr(c, method)
    ]
    if class_name:
        names = [c.__name__ for c in here]
        if class_name not in names:
            value = getattr(module, class_name, None)
            if isinstance(value, type):
                what, mend = f"'{class_name}' is not a {kind}", f"it needs a method {method}"
            else:
                what = f"no class '{class_name}'"
                mend = nearest(class_name, names) if names else f"the file holds no {kind}"
            raise InputError(str(path), what, mend)
        return here[names.index(class_name)]
    if len(here) != 1:
        several = kind.removesuffix("y") + ("ies" if kind.endswith("y") else "s")
        what = f"{len(here)} {several} in the file"
        raise InputError(str(path), what, "name one: file.py:Class")
    return here[0]


def _module_of(path: Path) -> types.ModuleType:
    """Returns the module of a policy file, run afresh."""
    name = f"dovetail_outside_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name while the file runs.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise InputError(f"{path}, line {error.lineno}", f"syntax error: {error.msg}") from None
    except (Exception, SystemExit) as error:
        raise InputError(str(path), f"the file cannot be run: {error!r}") from None
    return module
