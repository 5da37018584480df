"""What runs on a draining node may finish there, whatever the policy, and nothing else starts."""

import pytest
from test_policy_contract import BUSY, some_rows

import dovetail.policies  # registers the policies
from builders import Story, play
from dovetail.core.cluster import DOWN, DRAINING, UP
from dovetail.core.messages import PREEMPTED, Ended, NodeChanged, Refused, Started, Stopped

assert dovetail.policies
JOBS, NODES = 36, 3
ALL = tuple(range(NODES))
CHURN = (
    (12.0, ((0, DRAINING),)),
    (40.0, ((0, UP), (1, DRAINING))),
    (58.0, ((1, DOWN), (2, DRAINING))),
    (75.0, ((1, UP), (2, UP))),
    (90.0, tuple((node, DRAINING) for node in ALL)),
    (130.0, tuple((node, UP) for node in ALL)),
)


@pytest.mark.parametrize("running", ["keep", "repack"])
@pytest.mark.parametrize("name", BUSY)
def test_what_runs_on_a_draining_node_may_finish(name: str, running: str) -> None:
    rows = some_rows(JOBS, seed=21)
    story = play(rows, name, f"{NODES}x4", placing=running, capacity=CHURN, switching="restart:2")
    assert sorted(f.job for f in story.facts if isinstance(f, Ended)) == list(range(JOBS))
    assert disturbed(story) == []


def disturbed(story: Story) -> list[str]:
    """Returns what a policy did to jobs on draining nodes."""
    draining: set[int] = set()
    on: dict[int, dict[int, int]] = {}
    found = []
    for fact in story.facts:
        match fact:
            case NodeChanged(_, node, state):
                (draining.add if state == DRAINING else draining.discard)(node)
            case Started(t, job, how, placement):
                held = on.get(job, {})
                if draining.intersection(held) and placement.by_node() != held:
                    found.append(f"at {t}: job {job} is changed ({how})")
                if any(g > held.get(n, 0) for n, g in placement.by_node().items() if n in draining):
                    found.append(f"at {t}: job {job} starts on a draining node")
                on[job] = placement.by_node()
            case Stopped(t, job, why):
                if draining.intersection(on.pop(job)) and why == PREEMPTED:
                    found.append(f"at {t}: job {job} is stopped")
            case Ended(_, job):
                on.pop(job, None)
            case Refused(t, why):
                found.append(f"at {t}: {why}")
    return found
