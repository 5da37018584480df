"""Parts of GPUs, and jobs without GPU: whatever is drafted, the books are those of a recount."""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from builders import Row, Stage, play
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import IllegalPlan
from dovetail.core.occupancy import Occupancy
from dovetail.core.placement import Placement
from dovetail.core.placing import Placing
from dovetail.core.plan import Draft
from dovetail.core.policy import parse_policy
from dovetail.core.tenants import QueueSpec
from dovetail.study.bound import bound, powers_of
from dovetail.study.options import Options
from fingerprint import of_occupancy

JOBS = 14
NODES = 4
CLUSTER = Cluster(
    (
        NodeGroup("a", 2, 2, cpus=12, memory_bytes=30e9, gpu_type="t4"),
        NodeGroup("b", 1, 3, cpus=9, gpu_type="v100"),
        NodeGroup("c", 1, 0, cpus=4),
    ),
    queues=(QueueSpec("q", 2),),
)
PARTS = [0.5, 1.0, 0.334, 0.0, 0.1, 1.0, 0.9, 0.501, 1.0, 0.333, 0.0, 0.101, 1.0, 0.9]
"""Some of them exceed a GPU together by one thousandth."""
ROWS = [
    Row(
        [1, 1, 2, 1, 1, 3, 1][j % 7],
        5,
        gpu_part=PARTS[j],
        cpus=[0, 3, 1][j % 3],
        memory_bytes=[5e9, 0][j % 2],
        queue="q" * (j % 2),
        gpu_type=["", "", "t4"][j % 3] if j % 7 != 3 else "",
    )
    for j in range(JOBS)
]
RULES = ["", "strict", "none", "first-fit", "strict,most-free"]


class PartsMachine(RuleBasedStateMachine):
    """Jobs are found room and placed, removed, undone, committed; nodes drain and come back."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(ROWS, "fifo", CLUSTER)
        self.plan = self.stage.view.plan
        self.running: dict[int, Placement] = {}
        self.draft: Draft = self.plan.draft()
        self.mark: tuple[int, dict[int, Placement], object] = (0, {}, None)

    @initialize(rule_text=st.sampled_from(RULES))
    def begin(self, rule_text: str) -> None:
        self.placing = Placing.parse(rule_text)
        self._begin(False)

    def _begin(self, repack: bool) -> None:
        self.draft = self.plan.repack() if repack else self.plan.draft()
        self.set_mark()

    @rule(job=st.integers(0, JOBS - 1))
    def find_and_place(self, job: int) -> None:
        occupancy = self.draft.occupancy
        if job in self.draft.placed:
            return
        spans = self.placing.find(occupancy, occupancy.shape(job))
        if spans is None:
            assert not _fits_one_node(occupancy, self.draft.placed, job)
            return
        # What is found can be placed, whatever it shares its GPUs with.
        self.draft.place(job, spans)
        after = self.draft.placed[job]
        assert after.gpu_part == ROWS[job].gpu_part
        assert bool(after.gpu_ids) == (0 < after.gpu_part < 1)

    @rule(job=st.integers(0, JOBS - 1), node=st.integers(0, NODES - 1), gpu=st.integers(0, 3))
    def place_anywhere(self, job: int, node: int, gpu: int) -> None:
        part = ROWS[job].gpu_part
        if ROWS[job].gpus > 1:
            return
        before = of_occupancy(self.draft.occupancy)
        ids = ((gpu,),) if part else ()
        where = Placement(((node, 1),), ids, gpu_part=part)
        try:
            self.draft.place(job, where)
        except IllegalPlan:
            assert of_occupancy(self.draft.occupancy) == before, "a refused step leaves no trace"

    @rule(job=st.integers(0, JOBS - 1))
    def remove(self, job: int) -> None:
        if job in self.draft.placed:
            self.draft.remove(job)

    @rule()
    def set_mark(self) -> None:
        tables = of_occupancy(self.draft.occupancy)
        self.mark = (self.draft.savepoint(), dict(self.draft.placed), tables)

    @rule()
    def undo(self) -> None:
        at, placed, tables = self.mark
        self.draft.undo_to(at)
        assert self.draft.placed == placed
        assert of_occupancy(self.draft.occupancy) == tables

    @rule(repack=st.booleans())
    def commit(self, repack: bool) -> None:
        self.plan.commit(self.draft)
        self._begin(repack)

    @rule(repack=st.booleans())
    def give_up(self, repack: bool) -> None:
        self.plan.discard()
        self._begin(repack)

    @rule()
    def restore(self) -> None:
        self.plan.restore()
        self._begin(False)

    @rule(job=st.integers(0, JOBS - 1))
    def end(self, job: int) -> None:
        self.plan.discard()
        if job in self.plan.placed:
            self.plan.remove(job)
        self._begin(False)

    @rule(node=st.integers(0, NODES - 1), state=st.sampled_from(["up", "draining"]))
    def change_nodes(self, node: int, state: str) -> None:
        self.plan.discard()
        cluster = self.draft.occupancy.cluster.with_nodes([(node, state)])
        self.plan.change_nodes(cluster, [node])
        self._begin(False)

    @invariant()
    def the_books_are_those_of_a_recount(self) -> None:
        occupancy = self.draft.occupancy
        taken, counted, held = _recount(self.draft.placed)
        assert occupancy.open_gpus.taken == taken
        assert all(part <= 1000 for part in taken.values())
        for node, capacity in enumerate(occupancy.cluster.capacity):
            assert occupancy.free[node] == capacity - counted[node] >= 0
        assert sum(p for _, p in (occupancy.tenants.booked() if occupancy.tenants else ())) == held
        fresh = Occupancy(occupancy.cluster, self.stage.trace.jobs)
        for job, placement in self.draft.placed.items():
            fresh.put_back(job, placement)
        assert of_occupancy(fresh) == of_occupancy(occupancy)


def _recount(
    placed: dict[int, Placement],
) -> tuple[dict[tuple[int, int], int], Counter[int], float]:
    """Returns the thousandths taken of each GPU, the GPUs in use by node, and those of queue q."""
    taken: Counter[tuple[int, int]] = Counter()
    counted: Counter[int] = Counter()
    held = 0
    for job, placement in placed.items():
        milli = round(1000 * ROWS[job].gpu_part)
        if ROWS[job].queue:
            held += milli * ROWS[job].gpus
        for gpu in placement.named() if milli < 1000 else ():
            taken[gpu] += milli
        if not placement.gpu_ids and milli:
            counted.update(dict(placement.spans))
    named = {gpu for p in placed.values() for gpu in p.named()}
    counted.update(node for node, _ in named)
    return dict(taken), counted, held / 1000


def _fits_one_node(occupancy: Occupancy, placed: dict[int, Placement], job: int) -> bool:
    """Tells by trying whether a job of one worker could be placed anywhere."""
    row = ROWS[job]
    if row.gpus > 1:
        return False
    for node in range(NODES):
        if node in occupancy.closed:
            continue
        for gpu in range(max(1, occupancy.cluster.installed[node])):
            ids = ((gpu,),) if row.gpu_part else ()
            where = Placement(((node, 1),), ids, gpu_part=row.gpu_part)
            try:
                occupancy.hold(job, where)
            except IllegalPlan:
                continue
            occupancy.release(job, where)
            return True
    return False


@given(parts=st.lists(st.integers(1, 999), min_size=2, max_size=4))
def test_parts_meet_on_a_gpu_up_to_its_last_thousandth(parts: list[int]) -> None:
    exact = [*parts[:-1], max(1, 1000 - sum(parts[:-1]))]
    for milli in (parts, exact, [*exact[:-1], exact[-1] + 1]):
        rows = [Row(1, 5, gpu_part=min(part, 999) / 1000) for part in milli]
        draft = Stage(rows, "fifo", "1x1").view.plan.draft()
        taken = 0
        for job, row in enumerate(rows):
            part = round(row.gpu_part * 1000)
            found = Placing().find(draft.occupancy, draft.occupancy.shape(job))
            assert (found is not None) == (taken + part <= 1000)
            where = Placement(((0, 1),), ((0,),), gpu_part=row.gpu_part)
            try:
                draft.place(job, where)
            except IllegalPlan:
                assert found is None
            else:
                taken += part
                assert found is not None


TestParts = PartsMachine.TestCase
TestParts.settings = settings(max_examples=60, stateful_step_count=40)

POLICIES = ["fifo", "fifo:bypass=skip", "sjf", "srtf", "srsf", "backfill", "tiresias", "gittins"]
POLICIES += ["ticked:inner=srtf,period-s=7", "tenancy:inner=fifo", "tenancy:inner=srtf,guard-s=20"]

jobs = st.builds(
    Row,
    gpus=st.integers(1, 3),
    duration_s=st.integers(1, 30).map(float),
    submit_s=st.integers(0, 30).map(float),
    gpu_part=st.sampled_from([0.0, 0.1, 0.334, 0.5, 0.501, 0.667, 0.75, 1.0, 1.0]),
    cpus=st.sampled_from([0.0, 1.0, 3.0]),
    queue=st.sampled_from(["", "q", "r"]),
).map(lambda row: row if row.gpu_part else replace(row, gpus=1))


@given(
    rows=st.lists(jobs, min_size=1, max_size=12),
    policy=st.sampled_from(POLICIES),
    placing=st.sampled_from(["", "none", "first-fit", "repack"]),
)
@settings(max_examples=60)
def test_every_policy_that_takes_parts_plays_them_to_the_end(
    rows: list[Row], policy: str, placing: str
) -> None:
    queues = (QueueSpec("q", guaranteed=(("", 2),)), QueueSpec("r", quota_gpus=3))
    groups = (NodeGroup("a", 2, 2, cpus=6), NodeGroup("c", 1, 0, cpus=3))
    cluster = Cluster(groups, queues=queues)
    ordered = sorted(rows, key=lambda row: row.submit_s)
    story = play(ordered, policy, cluster, placing=placing)
    assert all(how == "completed" for how in story.how)
    least = bound(story.scene.trace, Options(cluster), powers_of(parse_policy(policy)))
    flows_s = [end - row.submit_s for end, row in zip(story.finishes, ordered, strict=True)]
    assert least.jobs == len(rows)
    assert least.mean_jct_s <= sum(flows_s) / len(rows) * (1 + 1e-9)
    first_s = ordered[0].submit_s
    assert least.makespan_s <= (max(story.finishes) - first_s) * (1 + 1e-9)
