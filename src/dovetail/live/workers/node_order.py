"""An order for the agent of a node, as gangs give it."""

from __future__ import annotations

from dovetail.wire.agent import EndWorker, Forget, InventoryRequest, NotifyWorkers, StartWorker

NodeOrder = tuple[int, StartWorker | EndWorker | NotifyWorkers | Forget | InventoryRequest]
"""The number of the node, and the order."""
