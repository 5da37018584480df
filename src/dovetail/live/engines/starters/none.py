"""`nodes:FILE`: the agents are started by somebody else, such as a systemd unit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dovetail.live.engines.node_file import read_node_file


class NoStarter:
    """Knows the nodes of a file and starts nothing."""

    owns_agents = False
    starts_at_once = 1
    lists_all = True
    gate_host = ""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._nodes = tuple(node.name for node in read_node_file(file, names_alone=True))

    def nodes(self) -> Sequence[str]:
        """Returns the names in the file, as it was when this controller started."""
        return self._nodes

    def start(self, name: str, word: Path) -> None:
        """Does nothing: whoever starts the agent has the word from the file."""

    def gone(self) -> Sequence[str]:
        """Returns none: nobody is asked."""
        return ()

    def close(self, *, end: bool) -> None:
        """Does nothing."""
