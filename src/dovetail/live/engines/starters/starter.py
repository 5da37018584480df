"""What an engine must do so that agents run on its nodes, and what it knows of dead nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Starter(Protocol):
    """Starts agents. Its methods may wait; `start` is called by `starts_at_once` threads, each for
    another node, the others by one.

    `owns_agents` is True if agents end with the cluster: False where somebody else keeps them
    running, who would start them again. `lists_all` is True if a node that it does not list is none
    of ours: False where it may be one that the engine cannot reach now.
    """

    owns_agents: bool
    lists_all: bool
    starts_at_once: int

    @property
    def gate_host(self) -> str:
        """Returns the address by which the nodes reach this machine; "" if it is not known."""
        ...

    def nodes(self) -> Sequence[str]:
        """Returns the names of the nodes that the engine has now. Raises DovetailError."""
        ...

    def start(self, name: str, word: Path) -> None:
        """Starts the agent of a node with the join word in a file, or starts it anew.

        The agent may run already: a second one under the same folder ends at once. Raises
        DovetailError, after which it is tried again.
        """
        ...

    def gone(self) -> Sequence[str]:
        """Returns the nodes of which the engine knows that nothing of ours runs there any more.

        It must be true of a node that is only cut off as well: this ends leases early. It
        must have been true at some time since the call.
        """
        ...

    def close(self, *, end: bool) -> None:
        """Ends what it started, if `end`; the agents have been dismissed."""
        ...
