"""Timeouts of the live world, and how often it repeats orders. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

ENDLESS_LEASE_S = 1e9
"""The lease of nodes whose workers run without a controller for as long as they like: 31 years.

Not none at all: without one a node that is down counts as dead.
"""


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
    its own is retried after the next of `backoff_s`. GPUs that a job has not used for
    `reclaim_idle_s` are taken back (0: never).

    `leases_s` are the leases of the nodes by number, 0 for none. What a lease promises:

        the agent    hears no answer to a heartbeat of the last `lease_s`: it asks its workers to
                     end, and kills those that are there `lease_grace_s` later
        the kernel   has removed what was killed within `lease_margin_s`, agents that wake late
                     included
        each clock   runs too fast or too slow by at most `clock_drift`
        the controller  waits for `lost_after_s` since it last heard the node

        lost_after_s / (1 + clock_drift)
            >= (lease_s + lease_grace_s) / (1 - clock_drift) + lease_margin_s

    On the left the least time that may have passed for the controller, on the right the most that
    the last worker of the node may need. An answer to a heartbeat is never given before that was
    heard, so the agent's lease begins first.
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
    leases_s: tuple[float, ...] = ()
    lease_grace_s: float = 30.0
    lease_margin_s: float = 30.0
    clock_drift: float = 0.01
    reclaim_idle_s: float = 0.0

    def __post_init__(self) -> None:
        short = [lease_s for lease_s in self.leases_s if 0 < lease_s < self.lease_s_min]
        if short:
            raise ValueError(f"a lease of {short[0]:g} s is shorter than {self.lease_s_min:g} s")

    @property
    def lease_s_min(self) -> float:
        """Returns the shortest lease: an agent that lives has it renewed several times."""
        return max(self.node_patience_s, 2 * self.inventory_every_s)

    def lease_s(self, node: int) -> float:
        """Returns the lease of a node; 0 if its workers need none."""
        return self.leases_s[node] if node < len(self.leases_s) else 0.0

    def lost_after_s(self, node: int) -> float:
        """Returns how long after a node was last heard none of its workers lives any more."""
        lease_s, drift = self.lease_s(node), self.clock_drift
        if not lease_s:
            return 0.0
        gone_s = (lease_s + self.lease_grace_s) / (1 - drift) + self.lease_margin_s
        return gone_s * (1 + drift)

    def backoff(self, tries: int) -> float:
        """Returns how long to wait after so many failures."""
        return self.backoff_s[min(tries, len(self.backoff_s)) - 1] if tries > 0 else 0.0
