"""Jobs of different users never share a GPU unless the cluster's owner allows it."""

import pytest

from dovetail.core.cluster import Cluster
from dovetail.live.controller.world import LiveWorld
from dovetail.live.edges.protocols import Edges, JournalEntry, StoredState
from dovetail.live.edges.virtual_time import Timeline, VirtualClock, VirtualInbox
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.serving.scheduler import build_scheduler
from dovetail.wire.agent import AgentOrder, StartWorker
from dovetail.wire.spec import JobSpec
from plain_meter import PlainMeter


class Nothing:
    """Keeps nothing, sends nothing, knows nothing."""

    def send(self, node: int, order: AgentOrder) -> None: ...

    def write(self, entry: JournalEntry) -> None: ...

    def find(self, job: int) -> StoredJob | None:
        return None


def shareable(*users: str, allowed: bool) -> list[bool]:
    """Returns which of the shareable jobs of these users a policy may let share."""
    scheduler = build_scheduler("sjf-bsbf", Cluster.uniform(1, 1), {}, stated_s=lambda job: 60.0)
    line = Timeline()
    clock, inbox, nothing = VirtualClock(line), VirtualInbox(line), Nothing()
    jobs = tuple(
        StoredJob.submitted(n, JobSpec("j", ("true",), "/", shareable=True, user=user), 0.0)
        for n, user in enumerate(users, start=1)
    )
    world = LiveWorld(
        Edges(clock, inbox, nothing, nothing, nothing),
        scheduler.state,
        scheduler.policy,
        recovered=StoredState(1, accepted=jobs),
        launches=lambda number, spec: StartWorker(number, -1, -1, -1, (), "", "", ""),
        meter=PlainMeter(),
        owner="ann",
        share_between_users=allowed,
    )
    assert world.advance(float("inf"))
    found: list[bool] = world.observe().jobs.shareable.tolist()
    return found


@pytest.mark.parametrize(("allowed", "expected"), [(False, [True, False]), (True, [True, True])])
def test_a_policy_is_not_even_told_that_anothers_job_could_share(
    allowed: bool, expected: list[bool]
) -> None:
    assert shareable("ann", "bob", allowed=allowed) == expected
