"""Keeps an agent running on each node: starts those that do not join, again and again.

It has threads of its own, since a starter may wait for another machine: one that looks, and those
that start.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

from dovetail.core.errors import DovetailError
from dovetail.live.edges.protocols import Clock, Incoming, NodeGone
from dovetail.live.engines.starters.starter import Starter
from dovetail.live.join.gate import Gate

LOG = logging.getLogger(__name__)
LOOK_S = 1.0
LOST_S = 2.0
"""An agent that was connected is started anew after this absence: before its node is down."""
ABSENT_S = 10.0
"""One of an earlier controller is left this time to call: it may run still."""
PAUSES_S = (20.0, 40.0, 80.0, 160.0, 300.0)
"""Pauses between starts of an agent that does not join; the last one repeats."""
GONE_EVERY_S = 10.0


@dataclass(slots=True)
class _Absence:
    """A node whose agent is not connected: when it is started next, and how often it was.

    `failure` is why the last start failed, empty if it did not.
    """

    next_s: float
    starts: int = 0
    is_starting: bool = False
    failure: str = ""


@dataclass(frozen=True, slots=True)
class _Listener:
    """The controller that news goes to: its nodes by number, and its clock."""

    put: Callable[[Incoming], None]
    names: tuple[str, ...]
    clock: Clock


class StarterLoop:
    """Starts agents and reports nodes that are gone, until it is stopped.

    `add_nodes` is called with nodes that the starter lists beside those `listed`;
    `before` are nodes that had joined an earlier controller.
    """

    def __init__(
        self,
        starter: Starter,
        gate: Gate,
        words: Path,
        listed: Sequence[str],
        before: Sequence[str],
        add_nodes: Callable[[Sequence[str]], None],
    ) -> None:
        self._starter, self._gate, self._words = starter, gate, words
        self._listed, self._add_nodes, self._logged = frozenset(listed), add_nodes, ""
        self._before = frozenset(before)
        self._listener: _Listener | None = None
        self._absent: dict[str, _Absence] = {}
        self._seen: set[str] = set()
        self._gone: frozenset[str] = frozenset()
        self._gone_s = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="starter", daemon=True)
        self._thread.start()

    def report_to(
        self, put: Callable[[Incoming], None], names: Sequence[str], clock: Clock
    ) -> None:
        """Reports nodes that are gone from now on; `names` are those of the nodes by number."""
        # At once: a node has a number only among the names of the same controller.
        self._listener = _Listener(put, tuple(names), clock)
        self._gone = frozenset()

    def failures(self) -> Mapping[str, str]:
        """Returns why the last start of each absent node failed, of those that did."""
        return {name: a.failure for name, a in list(self._absent.items()) if a.failure}

    def stop(self) -> None:
        """Starts nothing more; what is being started may still begin to run."""
        self._stopping.set()
        self._thread.join(timeout=2 * LOOK_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._start_absent()
                self._report_gone()
            except DovetailError as error:
                if str(error) != self._logged:
                    self._logged = str(error)
                    LOG.error("%s", error)
            except Exception:
                LOG.exception("starting agents failed")
            self._stopping.wait(LOOK_S)

    def _start_absent(self) -> None:
        joined, now = set(self._gate.joined().values()), monotonic()
        self._seen |= joined
        for name in joined:
            self._absent.pop(name, None)
        names = self._starter.nodes()
        if new := sorted(set(names) - self._listed):
            self._add_nodes(new)
            self._listed |= frozenset(new)
        for name in names:
            if name in joined or self._stopping.is_set():
                continue
            wait_s = LOST_S if name in self._seen else ABSENT_S if name in self._before else 0.0
            absence = self._absent.setdefault(name, _Absence(now + wait_s))
            if now >= absence.next_s and not absence.is_starting and self._has_room():
                absence.is_starting = True
                # No pool: a controller that ends must not wait for a machine that hangs.
                start = partial(self._start, name, absence)
                threading.Thread(target=start, name=f"start {name}", daemon=True).start()

    def _has_room(self) -> bool:
        starting = sum(absence.is_starting for absence in self._absent.values())
        return starting < self._starter.starts_at_once

    def _start(self, name: str, absence: _Absence) -> None:
        """Starts an agent; the pause before the next start begins when this one has ended."""
        try:
            self._starter.start(name, self._words / name)
            absence.failure = ""
        except DovetailError as error:
            absence.failure = str(error)
            LOG.error("the agent of node %s cannot be started: %s", name, error)
        except Exception as error:
            absence.failure = f"{type(error).__name__}: {error}"
            LOG.exception("the agent of node %s cannot be started", name)
        absence.next_s = monotonic() + PAUSES_S[min(absence.starts, len(PAUSES_S) - 1)]
        absence.starts += 1
        absence.is_starting = False

    def _report_gone(self) -> None:
        listener, now = self._listener, monotonic()
        if listener is None or now < self._gone_s:
            return
        self._gone_s = now + GONE_EVERY_S
        asked_s = listener.clock.now()
        gone = frozenset(self._starter.gone())
        for name in sorted(gone.intersection(listener.names)):
            if name not in self._gone:
                LOG.warning("node %s is gone, as its engine reports", name)
            # Each time: a controller that is just starting may not be able to use the first.
            listener.put(NodeGone(listener.names.index(name), asked_s))
        self._gone = gone
