"""Timeouts of the live world, and how often it repeats orders. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """The timeouts and periods of a live world.

    A node is down after `node_patience_s` of silence. An order is repeated every `resend_s` until
    its effect is reported, and inventories are requested every `inventory_every_s`. A generation
    that is not ready `ready_s` after its order, or whose collectives fail, is suspected; a worker
    that is silent for `hung_s` from then on is killed. A job without reports for `stall_s` is
    started anew. Before its first message a program may load for `start_s`; the first worker of a
    job with a range of GPUs counts as running after `silent_s` without one. A gang waits `yield_s`
    for GPUs that are in use before it changes over without them. A job that failed by no fault of
    its own is retried after the next of `backoff_s`.
    """

    node_patience_s: float = 10.0
    resend_s: float = 2.0
    inventory_every_s: float = 5.0
    hung_s: float = 10.0
    lost_s: float = 1.0
    ready_s: float = 300.0
    start_s: float = 1800.0
    silent_s: float = 60.0
    stall_s: float = 300.0
    yield_s: float = 2.0
    backoff_s: tuple[float, ...] = (1.0, 5.0, 30.0, 120.0)
    decision_limit_s: float = 5.0
    refused_wait_s: float = 5.0
    store_retry_s: float = 1.0
    publish_every_s: float = 0.2
    persist_every_s: float = 5.0
    hosts: tuple[str, ...] = ()

    def backoff(self, tries: int) -> float:
        """Returns how long to wait after so many failures."""
        return self.backoff_s[min(tries, len(self.backoff_s)) - 1] if tries > 0 else 0.0

    def host(self, node: int) -> str:
        """Returns the address of a node; by default that of this machine."""
        return self.hosts[node] if node < len(self.hosts) else "127.0.0.1"
