"""Any sequence of steps on a draft, beside a model that is a plain dictionary."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from builders import Row, Stage
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import IllegalPlan
from dovetail.core.occupancy import Occupancy
from dovetail.core.placement import Placement
from dovetail.core.plan import Change, Draft
from dovetail.core.tenants import QueueSpec
from fingerprint import of_occupancy

JOBS = 8
NODES = 3
CLUSTER = Cluster(
    (NodeGroup("a", 2, 3, cpus=12, memory_bytes=30e9), NodeGroup("b", 1, 4, cpus=9)),
    queues=(QueueSpec("q", 4),),
    states=((1, "draining"),),
)
ROWS = [
    Row(1 + j % 3, 5, cpus=[0, 3, 1][j % 3], memory_bytes=[5e9, 0][j % 2], queue="q" * (j % 2))
    for j in range(JOBS)
]


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    """Draws spans over distinct nodes, named or counted, legal or not."""
    nodes = draw(st.lists(st.integers(0, NODES - 1), min_size=1, max_size=3))
    if draw(st.booleans()):
        ids = [
            tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True)))
            for _ in nodes
        ]
        if len({(n, g) for n, gpus in zip(nodes, ids, strict=True) for g in gpus}) == sum(
            map(len, ids)
        ):
            spans = tuple((n, len(i)) for n, i in zip(nodes, ids, strict=True))
            return Placement(spans, tuple(ids))
    return Placement(tuple((n, draw(st.integers(1, 3))) for n in nodes))


class DraftMachine(RuleBasedStateMachine):
    """The draft and a dictionary do the same steps and must agree after each."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(ROWS, "fifo", CLUSTER)
        self.plan = self.stage.view.plan
        self.running: dict[int, Placement] = {}
        self.draft: Draft = self.plan.draft()
        self.model: dict[int, Placement] = {}
        self.marks: list[tuple[int, dict[int, Placement], object]] = []

    @initialize(repack=st.booleans())
    def begin(self, repack: bool) -> None:
        self._begin(repack)

    def _begin(self, repack: bool) -> None:
        self.draft = self.plan.repack() if repack else self.plan.draft()
        self.model = {} if repack else dict(self.running)
        self.marks = [(self.draft.savepoint(), dict(self.model), self._tables())]

    def _tables(self) -> object:
        return of_occupancy(self.draft.occupancy)

    @rule(job=st.integers(0, JOBS - 1), placement=placements())
    def place(self, job: int, placement: Placement) -> None:
        before = self._tables()
        expected = _fits(self.draft.occupancy.cluster, self.model, job, placement)
        try:
            self.draft.place(job, placement)
        except IllegalPlan:
            assert self._tables() == before, "a refused step leaves no trace"
            assert not expected
        else:
            assert expected
            self.model[job] = placement

    @rule(job=st.integers(0, JOBS - 1))
    def remove(self, job: int) -> None:
        if job in self.model:
            self.draft.remove(job)
            del self.model[job]

    @rule()
    def mark(self) -> None:
        self.marks.append((self.draft.savepoint(), dict(self.model), self._tables()))

    @precondition(lambda self: len(self.marks) > 1)
    @rule(back=st.integers(1, 3))
    def undo(self, back: int) -> None:
        back = min(back, len(self.marks) - 1)
        mark, model, tables = self.marks[-back]
        self.marks = self.marks[: len(self.marks) - back + 1]
        self.draft.undo_to(mark)
        self.model = dict(model)
        assert self._tables() == tables, "undoing restores everything"

    @rule(repack=st.booleans())
    def give_up(self, repack: bool) -> None:
        self.plan.discard()
        assert dict(self.plan.placed) == self.running
        self._begin(repack)

    @rule(repack=st.booleans())
    def commit(self, repack: bool) -> None:
        changes = self.draft.changes()
        jobs = sorted({*self.running, *self.model})
        assert changes == [
            Change(j, self.running.get(j), self.model.get(j))
            for j in jobs
            if self.running.get(j) != self.model.get(j)
        ]
        self.plan.commit(self.draft)
        self.running = dict(self.model)
        self._begin(repack)

    @rule(node=st.integers(0, NODES - 1), state=st.sampled_from(["up", "draining"]))
    def change_cluster(self, node: int, state: str) -> None:
        cluster = self.draft.occupancy.cluster.with_nodes([(node, state)])
        self.plan.change_nodes(cluster, [node])
        self._begin(False)

    @invariant()
    def tables_equal_those_built_from_nothing(self) -> None:
        assert self.draft.placed == self.model
        fresh = Occupancy(self.draft.occupancy.cluster, self.stage.trace.jobs)
        for job, placement in self.model.items():
            fresh.hold(job, placement)
        assert of_occupancy(fresh) == self._tables()

    @invariant()
    def free_counts_are_right(self) -> None:
        occupancy = self.draft.occupancy
        held = _held(self.model)
        capacity = occupancy.cluster.capacity
        free = [c - h for c, h in zip(capacity, held, strict=True)]
        assert occupancy.free == free
        open_nodes = [n for n in range(NODES) if occupancy.cluster.is_open(n)]
        assert occupancy.free_gpus == sum(free[n] for n in open_nodes)
        for level, bits in enumerate(occupancy.levels):
            assert bits == sum(1 << n for n in open_nodes if free[n] == level)
            assert bool(bits) == bool(occupancy.level_mask >> level & 1)


def _held(model: dict[int, Placement]) -> list[int]:
    held = [0] * NODES
    named = {gpu for p in model.values() if p.gpu_ids for gpu in p.named()}
    for node, _ in named:
        held[node] += 1
    for p in model.values():
        if not p.gpu_ids:
            for node, gpus in p.spans:
                held[node] += gpus
    return held


def _fits(cluster: Cluster, model: dict[int, Placement], job: int, placement: Placement) -> bool:
    """Tells whether the tables should take a step: GPUs, and quota, CPUs and memory."""
    after = {**model, job: placement}
    if any(h > c for h, c in zip(_held(after), cluster.capacity, strict=True)):
        return False
    if placement.gpu_ids and any(g >= cluster.installed[n] for n, g in placement.named()):
        return False
    queue = ROWS[job].queue
    if queue and sum(p.gpus for j, p in after.items() if ROWS[j].queue == queue) > 4:
        return False
    for node, _ in placement.spans:
        group = cluster.group_of(node)
        cpus = memory = 0.0
        for j, p in after.items():
            share = sum(g for n, g in p.spans if n == node) / ROWS[j].gpus
            cpus += ROWS[j].cpus * share
            memory += ROWS[j].memory_bytes * share
        if cpus > (group.cpus or 1e9) + 1e-9 or memory > (group.memory_bytes or 1e18) + 1:
            return False
    return True


TestDraft = DraftMachine.TestCase
TestDraft.settings = settings(max_examples=60, stateful_step_count=30)
