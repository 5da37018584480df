"""Max-min fairness where node groups and types keep jobs from their shares."""

from builders import Row, play
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.tenants import QueueSpec

GROUPS = (NodeGroup("big", 1, 8), NodeGroup("small", 1, 2))
OWNED = Cluster(GROUPS, queues=(QueueSpec("a", groups=("small",)), QueueSpec("b", groups=("big",))))


def test_a_job_does_not_wait_for_a_share_that_another_cannot_use() -> None:
    """Of ten GPUs the elastic job may count on nine, and can use the two of its group."""
    rows = [
        Row(2, 100, queue="a", elastic=True, min_gpus=1, max_gpus=9),
        Row(8, 10, submit_s=1, queue="b"),
    ]
    for policy in ("max-min", "tenancy:inner=max-min"):
        assert play(rows, policy, OWNED).starts(1)[0][0] == 1, policy


def test_a_job_that_was_started_beside_stays_where_it_is() -> None:
    rows = [
        Row(2, 100, queue="a", elastic=True, min_gpus=1, max_gpus=9),
        Row(8, 50, submit_s=1, queue="b"),
        Row(1, 10, submit_s=20, queue="a"),
    ]
    story = play(rows, "max-min", OWNED)
    assert len(story.starts(1)) == 1
    assert not story.stops(1)
