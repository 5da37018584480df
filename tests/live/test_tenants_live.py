"""Tenants in a live cluster: the same policy and limits as simulated, in virtual time."""

from dataclasses import replace

from builders import Row, play, trace_of
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.tenants import QueueSpec, ReservationSpec
from dovetail.live.serving.virtual_live import play as play_live

CLUSTER = Cluster(
    (NodeGroup("all", 2, 4),),
    queues=(
        QueueSpec("prod", guaranteed=(("", 4),), tier="guaranteed"),
        QueueSpec("dev", quota_gpus=8),
        QueueSpec("spot", tier="spot"),
    ),
)
POLICY = "tenancy:inner=fifo:bypass=skip"


def live_starts(rows: list[Row], cluster: Cluster) -> list[float]:
    texts = {"switching": "none", "forecast": "declared"}
    queries = play_live(trace_of(*rows), POLICY, cluster, texts)  # type: ignore[arg-type]
    return [job.record.first_start_s for job in queries.rows()[::-1]]


def test_guarantees_come_back_as_simulated() -> None:
    rows = [
        Row(4, 300, queue="dev"),
        Row(4, 300, queue="spot"),
        Row(4, 50, submit_s=50, queue="prod"),
        Row(2, 50, submit_s=60, queue="dev"),
    ]
    story = play(rows, POLICY, CLUSTER)
    simulated = [story.starts(job)[0][0] for job in range(4)]
    lived = live_starts(rows, CLUSTER)
    assert simulated[2] == 50
    assert all(abs(a - b) < 5 for a, b in zip(simulated, lived, strict=True)), lived


def test_nodes_open_again_when_a_reservation_ends() -> None:
    kept = ReservationSpec("m", 40, 200, (0, 1))
    cluster = replace(CLUSTER, reservations=(kept,))
    rows = [Row(4, 20, queue="dev"), Row(4, 60, submit_s=5, queue="dev")]
    lived = live_starts(rows, cluster)
    assert lived[0] < 5
    assert 200 <= lived[1] < 205
