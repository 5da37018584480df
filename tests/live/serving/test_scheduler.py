"""What a live cluster decides with: refused at once if it cannot work, growing with its jobs."""

import json

import pytest

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.job import JobRequest
from dovetail.core.policy import registered
from dovetail.live.serving.scheduler import Scheduler, build_scheduler, live_options
from dovetail.study.option_texts import OptionTexts

FOUR = Cluster.uniform(1, 4)


def scheduler(
    policy: str = "fifo", given: OptionTexts | None = None, said: dict[str, float] | None = None
) -> Scheduler:
    return build_scheduler(
        policy, FOUR, given or {}, stated_s=lambda job: (said or {}).get(job, 0.0)
    )


def job(number: int, **fields: object) -> JobRequest:
    given = {"gpus": 1, "min_gpus": 1, "max_gpus": 1, **fields}
    return JobRequest(job_id=str(number), submit_s=float(number), **given)  # type: ignore[arg-type]


def test_a_policy_that_needs_lengths_is_refused_without_them() -> None:
    with pytest.raises(InputError, match="policy 'srtf': it needs to know: length"):
        scheduler("srtf", {"forecast": "unknown"})
    assert scheduler("tiresias", {"forecast": "unknown"}).policy is not None


@pytest.mark.parametrize(
    ("policy", "given", "what"),
    [
        ("ffo", {}, "no such policy"),
        ("fifo", {"forecast": "known"}, "forecast"),
        ("fifo", {"placement": "tight"}, "placement"),
        ("fifo", {"without": "fly"}, "unknown power"),
        ("srtf", {"without": "preempt"}, "powers withheld"),
        ("fifo", {"profiles": ("nowhere.toml",)}, "cannot be read"),
        ("fifo", {"adopt": "elastic:1"}, "replayed traces only"),
    ],
)
def test_words_that_cannot_be_meant_are_refused(policy: str, given: OptionTexts, what: str) -> None:
    with pytest.raises(InputError, match=what):
        scheduler(policy, given)


@pytest.mark.parametrize("physics", ["placed", "counted", "linear"])
def test_jobs_that_come_later_are_known_to_every_table(physics: str) -> None:
    made = scheduler("sjf", {"physics": physics}, said={"2": 60.0})
    state = made.state
    state.now = 3.0
    rows = state.admit([job(1, model="resnet50", batch_size=32), job(2, gpus=2, max_gpus=2)])
    for row in rows:
        state.arrive(row)
    assert state.view.physics.kind_of.shape == (2,)
    assert state.length[1] == 60.0
    assert next(state.jobs.job_id[j] for j in state.waiting) == "2"


def test_the_manifest_says_all_that_decides_a_run_and_can_be_read_back() -> None:
    made = scheduler("gimbal:inner=lucid", {"forecast": "limit", "seed": 3})
    said = json.loads(made.manifest_text("local:4"))
    assert said["live"] and said["engine"] == "local:4"
    assert said["policy"].startswith("gimbal:")
    assert (said["forecast"], said["seed"], said["cluster"]["gpus"]) == ("limit", 3, 4)


def test_every_policy_of_ours_can_be_brought_up_with_declared_lengths() -> None:
    ours = [n for n, c in registered().items() if c.module.startswith("dovetail.policies.")]
    assert len(ours) > 30
    for name in ours:
        assert scheduler(name).policy is not None


def test_the_cluster_is_that_of_the_engine() -> None:
    assert live_options(Cluster.uniform(4, 4), {}).cluster.gpus == 16
