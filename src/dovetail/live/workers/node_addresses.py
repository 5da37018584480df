"""The addresses and names of nodes, as gangs tell them to programs."""

from __future__ import annotations

from collections.abc import Mapping


class NodeAddresses:
    """The address of each node, as its agent reports it, and its name if it has one."""

    def __init__(self, names: Mapping[int, str] | None = None) -> None:
        self._names = dict(names or {})
        self._addresses: dict[int, str] = {}
        self._of_earlier: set[int] = set()

    def learn(self, node: int, address: str) -> None:
        """Notes the address that an agent reports; "" if it is of an earlier version."""
        if address:
            self._addresses[node] = address
            self._of_earlier.discard(node)
        else:
            self._of_earlier.add(node)

    def finds_ports(self, node: int) -> bool:
        """Returns whether the agent of a node can be asked for a free port: earlier ones cannot."""
        return node not in self._of_earlier

    def address(self, node: int) -> str:
        """Returns the address of a node, as other nodes reach it; "" if it is not known."""
        return self._addresses.get(node, "")

    def given_name(self, node: int) -> str:
        """Returns the name of a node; "" if it has a number alone."""
        return self._names.get(node, "")

    def name(self, node: int) -> str:
        """Returns by what programs find a node: its name, else its address."""
        return self._names.get(node) or self._addresses.get(node) or f"node{node}"
