"""How a policy ranks jobs, declared so that the world can keep the waiting ones sorted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dovetail.core.view import View


@dataclass(frozen=True, slots=True)
class Order:
    """How a policy ranks jobs: smallest key first, ties by (submission, id).

    `keys` gives the keys of several jobs at once. A waiting job's key must not change while it
    waits; a running job's may. `by_length` asks the queue for `first_behind`.
    """

    keys: Callable[[View, Sequence[int]], list[float]]
    by_length: bool = False
