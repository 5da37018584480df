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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, get_args, get_origin, get_type_hints

from dovetail.core.errors import InputError, nearest
from dovetail.core.messages import Reason
from dovetail.core.order import Order
from dovetail.core.plan import Draft
from dovetail.core.view import View

KNOWLEDGE = ("length", "attained service", "scaling", "interference", "stages", "memory")
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
    `because` says why jobs wait; it is recorded when it changes. `order` ranks the waiting jobs
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
        """Returns what it must know; a class attribute but for a policy that wraps another."""
        ...

    @property
    def powers(self) -> frozenset[str]:
        """Returns what it may do to jobs; a class attribute but for a policy that wraps another."""
        ...

    @property
    def order(self) -> Order:
        """Returns how the policy ranks jobs."""
        ...

    @property
    def initial(self) -> object:
        """Returns the memory before the first decision."""
        ...

    def decide(self, view: View, memory: object) -> Decision:
        """Returns the plan the policy wants at this instant."""
        ...


C = TypeVar("C", bound=type[Any])
_registry: dict[str, type[Any]] = {}


def register(name: str) -> Callable[[C], C]:
    """Returns a decorator that makes a policy known by name and checks its declarations."""

    def enter(cls: C) -> C:
        for words, known in ((cls.knows, KNOWLEDGE), (cls.powers, POWERS)):
            # A wrapper's are properties, made of those of a policy that was checked itself.
            unknown = set() if isinstance(words, property) else set(words) - set(known)
            if unknown:
                raise TypeError(f"policy {name}: unknown declaration {sorted(unknown)}")
        taken = _registry.get(name)
        if taken is not None and taken.__qualname__ != cls.__qualname__:
            raise TypeError(f"two policies are called {name}")
        cls.name = name
        _registry[name] = cls
        return cls

    return enter


def registered() -> dict[str, type[Any]]:
    """Returns every policy class by name, in order of name."""
    return dict(sorted(_registry.items()))


def name_of(policy: Policy) -> str:
    """Returns the registered name of a policy."""
    return str(getattr(policy, "name", type(policy).__name__))


def spell(policy: Policy) -> str:
    """Returns the text that `parse_policy` turns into this policy, with every parameter.

    A policy that is no dataclass has no parameters.
    """
    parts: list[str] = []
    if dataclasses.is_dataclass(policy):
        for field in dataclasses.fields(policy):
            value = _spell_value(getattr(policy, field.name))
            parts.append(f"{field.name.replace('_', '-')}={value}")
    return name_of(policy) + (":" + ",".join(parts) if parts else "")


def _spell_value(value: Any) -> str:
    if isinstance(value, tuple):
        return "/".join(_spell_value(v) for v in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if hasattr(value, "decide"):
        return spell(value).replace(",", ";")
    return str(value)


def parse_policy(text: str) -> Policy:
    """Returns the policy that `name:parameter=value,...` or `path/to/file.py:Class` names.

    Raises InputError.
    """
    head, _, rest = text.partition(":")
    if head.endswith(".py"):
        class_name, _, rest = rest.partition(":")
        cls = class_from_file(head, class_name, "decide", "policy")
    elif head in _registry:
        cls = _registry[head]
    else:
        raise InputError(f"policy '{head}'", "no such policy", nearest(head, _registry))
    return _build(cls, head, rest)


def _build(cls: type, head: str, rest: str) -> Policy:
    hints = get_type_hints(cls)
    known = {f.name.replace("_", "-"): hints[f.name] for f in dataclasses.fields(cls)}
    given: dict[str, object] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        name = key.strip().replace("_", "-")
        if not equals and name in known:
            raise InputError(f"policy '{head}'", f"parameter '{key}' has no value", f"{key}=...")
        if name not in known:
            mend = nearest(name, known) if known else "it has no parameters"
            mend += "".join(f"; those of {k} are parted by ;" for k in known if known[k] is Policy)
            raise InputError(f"policy '{head}'", f"no parameter '{key}'", mend)
        given[name.replace("-", "_")] = _value(f"policy '{head}'", key, value, known[name])
    try:
        policy: Policy = cls(**given)
    except ValueError as error:
        raise InputError(f"policy '{head}'", str(error)) from None
    return policy


def _value(where: str, key: str, text: str, kind: Any) -> object:
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
        value = kind(text)
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
            found = getattr(module, class_name, None)
            if isinstance(found, type):
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
