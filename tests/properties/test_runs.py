"""Random small worlds under every policy: safety, liveness, and sums that agree three ways."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from builders import Row, Story, play_scene, scene_of, tally_of, trace_of
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.tenants import QueueSpec
from dovetail.record.log import LogWriter, fact_of, read_log
from dovetail.record.metrics import Window, gpu_seconds, job_frame, series_frame, summarize
from dovetail.record.tally import Tally
from dovetail.sim.scene import Scene
from invariants import Life, close, lives

POLICIES = [
    "fifo",
    "fifo:bypass=skip",
    "backfill",
    "sjf",
    "srtf",
    "srtf:bypass=strict",
    "srsf",
    "tiresias:thresholds=6/20",
    "tiresias:thresholds=6/20,inside=list",
    "gittins:delta=6,samples-min=3",
    "max-min",
    "max-min:overflow=least-recent",
    "optimus",
    "srsf-e",
    "srtf-max",
    "tiresias-max:thresholds=6/20",
    "themis:f=0.5,lease=5",
    "antman:bypass=skip",
    "gandiva:slice=3",
]
TIMES = st.sampled_from([0.0, 0.0, 0.5, 1.0, 3.0, 7.25])
PLACINGS = st.builds(
    lambda a, b, c: f"{a},{b},{c}",
    st.sampled_from(["strict", "prefer", "none"]),
    st.sampled_from(["best-fit", "first-fit", "most-free"]),
    st.sampled_from(["keep", "repack"]),
)


@st.composite
def rows(draw: st.DrawFn, width: int = 4, flags: bool = True) -> list[Row]:
    """Draws a trace whose jobs each fit into a node of `width` GPUs, or into two of them."""
    found: list[Row] = []
    t = 0.0
    for _ in range(draw(st.integers(1, 12))):
        t += draw(TIMES)
        gpus = draw(st.integers(1, width))
        elastic = flags and draw(st.booleans())
        found.append(
            Row(
                gpus,
                draw(st.sampled_from([0.5, 1.0, 2.0, 5.0, 9.0, 30.25])),
                submit_s=t,
                elastic=elastic,
                min_gpus=draw(st.integers(1, gpus)) if elastic else gpus,
                max_gpus=draw(st.integers(gpus, width + 2)) if elastic else gpus,
                preemptible=not flags or draw(st.integers(0, 5)) < 5,
                time_limit_s=draw(st.sampled_from([float("inf")] * 4 + [3.0])),
                end=draw(st.sampled_from(["completed"] * 4 + ["failed", "cancelled"])),
                queue=draw(st.sampled_from(["", "q"])) if flags and gpus <= 2 else "",
                cpus=draw(st.sampled_from([0.0, 2.0 * gpus])) if flags else 0.0,
            )
        )
    return found


CLUSTERS = {
    "1x4": Cluster.uniform(1, 4),
    "3x4": Cluster.uniform(3, 4),
    "1x4+2x6": Cluster.parse("1x4+2x6"),
    "2x4 with a quota": Cluster((NodeGroup("all", 2, 4),), queues=(QueueSpec("q", 3),)),
    "2x4 of which q owns one": Cluster(
        (NodeGroup("a", 1, 4), NodeGroup("b", 1, 4)), queues=(QueueSpec("q", groups=("b",)),)
    ),
    "2x4 with 9 CPUs": Cluster((NodeGroup("all", 2, 4, cpus=9.0),)),
}


@dataclass(frozen=True)
class Setting:
    """A drawn scene in few words, so that a failing one can be read."""

    rows: list[Row]
    cluster: str
    options: dict[str, Any]

    def scene(self) -> Scene:
        return scene_of(trace_of(*self.rows), CLUSTERS[self.cluster], **self.options)


@st.composite
def settings_of_a_run(draw: st.DrawFn) -> Setting:
    name = draw(st.sampled_from(sorted(CLUSTERS)))
    capacity = []
    t = 0.0
    for _ in range(draw(st.integers(0, 3))):
        t += draw(TIMES)
        node = draw(st.integers(0, CLUSTERS[name].nodes - 1))
        capacity.append((t, [(node, draw(st.sampled_from(["down", "draining", "up"])))]))
    if capacity:
        capacity.append((t + 1.0, [(n, "up") for n in range(CLUSTERS[name].nodes)]))
    switching = ["none", "restart:2", "per-start:1", "per-resize:0.5"]
    options = {
        "placing": draw(PLACINGS),
        "switching": draw(st.sampled_from(switching)),
        "capacity": capacity,
        "cancelled_by_clock": draw(st.booleans()),
        "coalesce_s": draw(st.sampled_from([0.0, 0.0, 0.0, 2.0])),
    }
    return Setting(draw(rows()), name, options)


QUICK = settings(max_examples=25, phases=(Phase.explicit, Phase.generate, Phase.shrink))


@pytest.mark.parametrize("policy", POLICIES)
@QUICK
@given(setting=settings_of_a_run())
def test_any_small_world_is_served_safely_and_to_the_end(policy: str, setting: Setting) -> None:
    story = play_scene(setting.scene(), policy)
    _quotas_kept(story)
    _reads_back(story)
    _averages_agree(story)


def _quotas_kept(story: Story) -> None:
    jobs = story.scene.trace.jobs
    quota = {q.name: q.quota_gpus for q in story.scene.cluster.queues if q.quota_gpus}
    held: dict[int, int] = {}
    cpus: dict[int, dict[int, float]] = {}
    for batch in story.batches:
        for fact in batch:
            kind = type(fact).__name__
            if kind == "Started":
                placement = fact.placement  # type: ignore[union-attr]
                job: int = fact.job  # type: ignore[union-attr]
                held[job] = placement.gpus
                per_gpu = float(jobs.cpus[job]) / int(jobs.gpus[job])
                cpus[job] = {n: per_gpu * g for n, g in placement.spans}
            elif kind in ("Stopped", "Ended"):
                held.pop(fact.job, None)  # type: ignore[union-attr]
                cpus.pop(fact.job, None)  # type: ignore[union-attr]
        for name, most in quota.items():
            assert sum(g for j, g in held.items() if jobs.queue[j] == name) <= most
        for node in range(story.scene.cluster.nodes):
            has = story.scene.cluster.group_of(node).cpus
            if has:
                assert sum(c.get(node, 0.0) for c in cpus.values()) <= has + 1e-9


def _reads_back(story: Story) -> None:
    scene = story.scene
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        with path.open("w", encoding="utf-8") as file:
            writer = LogWriter(file, scene.trace, scene.truth, {"a": 1})
            for batch in story.batches:
                writer.record(batch)
            writer.close()
        manifest, records = read_log(path)
        index = {name: i for i, name in enumerate(scene.trace.jobs.job_id)}
        facts = [fact_of(record, index) for record in records]
    assert manifest == {"a": 1}
    assert facts == story.facts
    again = tally_of(scene)
    position = 0
    for batch in story.batches:
        again.record(facts[position : position + len(batch)])
        position += len(batch)
    assert _sums(again) == _sums(story.tally)
    assert series_frame(again).equals(series_frame(story.tally))
    assert again.segments == story.tally.segments


def _sums(tally: Tally) -> tuple[object, ...]:
    return (
        tally.finish_s,
        tally.start_s,
        tally.how,
        tally.preemptions,
        tally.resizes,
        tally.moves,
        tally.service_gpu_s,
        tally.running_s,
        tally.done_s,
        tally.integrals,
        tally.integrals_efficiency,
    )


def _averages_agree(story: Story) -> None:
    """Reckons QL, CE, BI and the GPU-seconds from the lives of the jobs alone."""
    scene, tally = story.scene, story.tally
    told = lives(story.facts)
    first = float(scene.trace.jobs.submit_s[0])
    last = max(life.end[0] for life in told.values() if life.end)
    queue = sum(e - s for life in told.values() for s, e, _ in life.waits)
    efficiency = sum(
        rate * scene.truth.structure.scale(j) * max(0.0, e - max(s, f))
        for j, life in told.items()
        for _, s, e, rate, f in life.stretches
    )
    held = sum(p.gpus * (e - s) for x in told.values() for p, s, e, _, _ in x.stretches)
    summary = summarize(scene.trace, tally, job_frame(scene.trace, tally), Window())
    seconds = gpu_seconds(tally)
    assert close(tally.integrals["waiting"], queue, last)
    assert close(tally.integrals_efficiency, efficiency, 100 * last)
    assert close(tally.integrals["held"], held, 100 * last)
    assert close(tally.integrals["blocking"], _blocking(scene, told), 100 * last)
    if last > first:
        assert close(float(summary["avg_queue_length"] or 0), queue / (last - first), last)
    if not scene.capacity and not scene.coalesce_s:
        capacity = scene.cluster.gpus * (last - first)
        assert close(sum(seconds.values()), capacity, 100 * last)
        if capacity:
            assert close(float(summary["cluster_efficiency"] or 0), efficiency / capacity, last)


def _blocking(scene: Scene, told: dict[int, Life]) -> float:
    """Integrates the mean over waiting jobs of (pending time / remaining time on one GPU)."""
    edges = sorted({t for life in told.values() for s, e, _ in life.waits for t in (s, e)})
    total = 0.0
    for a, b in pairwise(edges):
        middle = (a + b) / 2
        indices = []
        for job, life in told.items():
            for s, e, done in life.waits:
                if s <= a and b <= e:
                    left = max(float(scene.trace.duration_s[job]) - done, 1e-9)
                    indices.append((middle - s) / (left * scene.truth.structure.scale(job)))
        if indices:
            total += sum(indices) / len(indices) * (b - a)
    return total


@settings(max_examples=15)
@given(jobs=rows(flags=False), placing=PLACINGS)
def test_a_run_does_not_depend_on_jobs_that_come_after_it(
    jobs: Sequence[Row], placing: str
) -> None:
    """What happened up to a time is the same when later jobs are left out (nobody foresees)."""
    for policy in ("srtf", "backfill", "tiresias:thresholds=6"):
        whole = play_scene(scene_of(trace_of(*jobs), "2x4", placing=placing), policy)
        last_s = jobs[-1].submit_s
        fewer = [r for r in jobs if r.submit_s < last_s]
        if not fewer:
            continue
        part = play_scene(scene_of(trace_of(*fewer), "2x4", placing=placing), policy)
        early = [f for f in whole.facts if f.t < last_s]
        assert early == [f for f in part.facts if f.t < last_s]


def test_a_log_that_was_cut_off_is_not_taken_for_whole(tmp_path: Path) -> None:
    from dovetail.core.errors import InputError

    scene = scene_of(trace_of(Row(1, 1)))
    story = play_scene(scene, "fifo")
    file = StringIO()
    writer = LogWriter(file, scene.trace, scene.truth, {})
    for batch in story.batches:
        writer.record(batch)
    writer.close()
    lines = file.getvalue().splitlines(keepends=True)
    for kept in range(len(lines)):
        path = tmp_path / f"{kept}.jsonl"
        path.write_text("".join(lines[:kept]))
        with pytest.raises(InputError):
            list(read_log(path)[1])
