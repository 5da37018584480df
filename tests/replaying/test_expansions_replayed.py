"""What a policy is shown of expansions is the same in a run and in the replay of its log."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import dovetail.live.serving.scheduler as live_scheduler
from dovetail.conformance import Watched
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable
from dovetail.core.messages import Refused
from dovetail.core.policy import Decision, parse_policy
from dovetail.core.switching import Expansion, Switching
from dovetail.core.trace import Trace
from dovetail.core.view import View
from dovetail.live.serving.virtual_live import play
from dovetail.replaying import decisions
from dovetail.replaying.decisions import read_recording, replay
from dovetail.replaying.live_log import write_log
from dovetail.study.options import Options
from dovetail.study.run import simulate

CLUSTER = Cluster.uniform(2, 4)
PREPARED = "restart:30,prepared:10"
Seen = list[tuple[float, Mapping[int, Expansion]]]


class Noting(Watched):
    """Max-Min with a note of every expansion that it is shown."""

    def __init__(self) -> None:
        super().__init__(parse_policy("max-min"))
        self.seen: Seen = []

    def decide(self, view: View, memory: object) -> Decision:
        if view.expanding:
            self.seen.append((view.now, dict(view.expanding)))
        return super().decide(view, memory)


def churn() -> Trace:
    """Elastic jobs that come and go while others expand."""
    draw = np.random.default_rng(5)
    n = 24
    jobs = JobTable.build(
        [str(i + 1) for i in range(n)],
        np.cumsum(draw.integers(1, 14, n)).astype(np.float64),
        np.ones(n, np.int64),
        max_gpus=np.full(n, 8, np.int64),
        elastic=np.ones(n, bool),
    )
    return Trace.of(jobs, draw.integers(20, 90, n).astype(np.float64), "churn")


def seen_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Returns what the replay of a log shows; its decisions are those of the log."""
    again = Noting()
    monkeypatch.setattr(decisions, "parse_policy", lambda _: again)
    assert replay(path).differences == ()
    return again.seen


@pytest.mark.parametrize("switching", [PREPARED, PREPARED + ",one-by-one"])
def test_of_a_simulation(switching: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, path = Noting(), tmp_path / "events.jsonl"
    options = Options(CLUSTER, switching=Switching.parse(switching), forecast="known")
    simulate(churn(), policy, options, log_to=path)
    assert len(policy.seen) > 4
    assert seen_again(path, monkeypatch) == policy.seen


@pytest.mark.parametrize("switching", [PREPARED, "restart:5"])
def test_of_a_live_cluster(switching: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, path = Noting(), tmp_path / "events.jsonl"
    monkeypatch.setattr(live_scheduler, "parse_policy", lambda _: policy)
    write_log(play(churn(), "max-min", CLUSTER, {"switching": switching}), path)
    facts = read_recording(path).facts
    assert not [fact for fact in facts if isinstance(fact, Refused)]
    assert len(policy.seen) > 4
    assert seen_again(path, monkeypatch) == policy.seen
