"""Which GPUs are held: free counts per node, an index of nodes by free GPUs, named GPUs.

Nodes of equal free count form a bit set (a Python integer with bit `node`), so that "the
fullest node that still fits" is a few integer operations and undoing is cheap. Jobs that do
not share hold counts; GPU ids matter only on placements that name them. On one node the counted
GPUs and the union of the named ones never exceed what is installed.

On a cluster with islands every placement on GPUs names them.

A GPU that a job holds in part is named and leaves the free count; parts of other jobs join it while
they sum up to one GPU at most. A job without GPU takes CPUs and memory of its node only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from dovetail.core.cluster import Cluster
from dovetail.core.errors import IllegalPlan
from dovetail.core.gpu_parts import OpenGpus, thousandths
from dovetail.core.islands import Islands, is_island
from dovetail.core.job import JobTable, Shape
from dovetail.core.node_sets import ALL_NODES, NodeSets, demands
from dovetail.core.placement import Placement, Spans, dealt, merged
from dovetail.core.shapes import shapes_of
from dovetail.core.tenant_limits import TenantLimits
from dovetail.core.units import RELATIVE_TOLERANCE


class Occupancy:
    """The mutable tables behind a plan. Knows capacity, not policy or physics."""

    def __init__(self, cluster: Cluster, jobs: JobTable, *, shared: bool = True) -> None:
        """Takes whether the policy may let jobs share GPUs; where all have names, this is kept."""
        self.cluster = cluster
        self.shared = shared
        self.jobs = jobs
        self.free: list[int] = list(cluster.capacity)
        self.plain_placements: dict[Spans, Placement] = {}
        self.named: dict[tuple[int, int], tuple[int, ...]] = {}
        self.placement_of: dict[int, Placement] = {}
        self.takes_parts = jobs.has_parts
        self.node_sets = NodeSets(cluster)
        self.islands = Islands.of(cluster)
        self.limits_host = self._wants_host(slice(None))
        self.chooses = any("|" in wanted for wanted in jobs.gpu_type.names) or any(
            demands(level) for level in jobs.topology.names
        )
        self.running: Mapping[int, Placement] = {}
        self.tenants = TenantLimits.of(cluster, jobs)
        self._set_up()

    def _set_up(self) -> None:
        cluster = self.cluster
        installed = cluster.installed
        self.levels = [0] * (max(installed) + 1)
        self.level_mask = 0
        self.free_gpus = 0
        self.closed = set(cluster.state_of)
        self.bare_nodes = 0
        for node, count in enumerate(self.free):
            if not installed[node]:
                self.bare_nodes |= 1 << node
            if node not in self.closed:
                self.levels[count] |= 1 << node
                self.free_gpus += count
        for count, nodes in enumerate(self.levels):
            if nodes:
                self.level_mask |= 1 << count
        self.open_gpus = OpenGpus(cluster.closed_gpus)
        self.host_free: list[list[float]] = []
        if self.limits_host:
            self._limit_host()
        chooses = self.chooses or self.takes_parts or bool(self.node_sets.groups_of)
        self.books_more = self.limits_host or chooses or self.tenants is not None

    def _wants_host(self, rows: slice) -> bool:
        """True if some of the jobs request CPUs or memory that nodes limit."""
        groups, jobs = self.cluster.groups, self.jobs
        cpus = any(g.cpus > 0 for g in groups) and (jobs.cpus[rows] > 0).any()
        memory = any(g.memory_bytes > 0 for g in groups) and (jobs.memory_bytes[rows] > 0).any()
        return bool(cpus or memory)

    def _limit_host(self) -> None:
        cluster = self.cluster
        groups = [cluster.group_of(n) for n in range(cluster.nodes)]
        self.host_free = [[g.cpus or float("inf"), g.memory_bytes or float("inf")] for g in groups]

    def admit(self, rows: range) -> None:
        """Adds the jobs appended to the table.

        CPUs and memory of the nodes count from the first job on that requests them: no job that
        runs already can hold any that a node limits.
        """
        if not self.limits_host and self._wants_host(slice(rows.start, rows.stop)):
            self.limits_host = self.books_more = True
            self._limit_host()
        if not self.chooses and any(self._chooses(job) for job in rows):
            self.chooses = self.books_more = True
        if self.jobs.has_parts:
            self.takes_parts = self.books_more = True

    def _chooses(self, job: int) -> bool:
        jobs = self.jobs
        return "|" in jobs.gpu_type[job] or demands(jobs.topology[job])

    def shape(self, job: int, avoided: tuple[int, ...] = ()) -> Shape:
        """Returns the shape of a job, with only what limits jobs on this cluster."""
        jobs, tenants = self.jobs, self.tenants
        shape = Shape(
            int(jobs.gpus[job]),
            jobs.gpu_type[job],
            float(jobs.cpus[job]) if self.limits_host else 0.0,
            float(jobs.memory_bytes[job]) if self.limits_host else 0.0,
            groups=self.node_sets.groups_of.get(jobs.queue[job], ()),
            topology=jobs.topology[job],
            gpu_part=float(jobs.gpu_part[job]),
            avoided=avoided,
        )
        return shape if tenants is None else tenants.shaped(shape, job)

    def change_nodes(self, cluster: Cluster, nodes: Iterable[int]) -> None:
        """Adopts a cluster in which some nodes changed state; jobs there keep their GPUs."""
        for node in nodes:
            old = self.free[node]
            held = self.cluster.capacity_of(node) - old
            if node not in self.closed:
                self._leave_level(node, old)
            self.free[node] = free = cluster.capacity_of(node) - held
            if cluster.is_open(node):
                self.closed.discard(node)
                self.free_gpus += free
                self.levels[free] |= 1 << node
                self.level_mask |= 1 << free
            else:
                self.closed.add(node)
        if self.islands is not None:
            self.islands.adopt(cluster)
        self.cluster = cluster
        self.open_gpus.closed = cluster.closed_gpus

    def _leave_level(self, node: int, free: int) -> None:
        self.free_gpus -= free
        self.levels[free] ^= 1 << node
        if not self.levels[free]:
            self.level_mask ^= 1 << free

    def emptied(self) -> Occupancy:
        """Returns the same cluster with nothing on it."""
        empty = Occupancy.__new__(Occupancy)
        empty.cluster, empty.jobs, empty.shared = self.cluster, self.jobs, self.shared
        empty.free = list(self.cluster.capacity)
        empty.plain_placements = self.plain_placements
        empty.named = {}
        empty.placement_of = {}
        empty.node_sets = self.node_sets
        empty.islands = None if self.islands is None else self.islands.emptied()
        empty.limits_host = self.limits_host
        empty.chooses = self.chooses
        empty.takes_parts = self.takes_parts
        empty.running = self.running
        empty.tenants = None if self.tenants is None else self.tenants.emptied()
        empty._set_up()
        return empty

    def put_back(self, job: int, placement: Placement) -> None:
        """Books the GPUs of a placement that a job had before, whatever its tenant may have now."""
        tenants, self.tenants = self.tenants, None
        shared, self.shared = self.shared, True
        try:
            self.hold(job, placement)
        finally:
            self.tenants, self.shared = tenants, shared
        if tenants is not None:
            tenants.book(job, placement, 1)

    def hold(self, job: int, placement: Placement) -> None:
        """Books the GPUs of a placement. Raises IllegalPlan, and books nothing, if not free."""
        if placement.gpu_ids:
            self._hold_named(job, placement)
        elif not placement.gpu_part:
            self._check_hosted(job, placement)
        elif self.islands is not None:
            raise IllegalPlan(f"job {self.jobs.job_id[job]}: its GPUs have no names")
        else:
            free, need = self.free, placement.spans
            if placement.nodes != len(need):
                need = merged(need)
            for node, count in need:
                if not 0 <= node < len(free) or free[node] < count:
                    raise IllegalPlan(self._shortage(job, node, count))
            if self.books_more:
                self._check_books(job, placement)
            for node, count in need:
                self._shift(node, -count)
        if self.books_more:
            self._book(job, placement, 1)

    def release(self, job: int, placement: Placement) -> None:
        """Frees the GPUs of a placement."""
        if placement.gpu_ids:
            del self.placement_of[job]
            if placement.gpu_part < 1.0:
                self._book_parts(placement, -1)
            for node, gpu in placement.named():
                left = tuple(j for j in self.named[node, gpu] if j != job)
                if left:
                    self.named[node, gpu] = left
                else:
                    del self.named[node, gpu]
                    self._shift(node, 1)
                    if self.islands is not None:
                        self.islands.shift(node, gpu, 1)
        elif placement.gpu_part:
            for node, count in placement.spans:
                self._shift(node, count)
        if self.books_more:
            self._book(job, placement, -1)

    def sharers(self, node: int, gpu: int) -> tuple[int, ...]:
        """Returns the jobs on one named GPU."""
        return self.named.get((node, gpu), ())

    def sharing_jobs(self) -> set[int]:
        """Returns the jobs on named GPUs that are not the only ones there."""
        return {job for jobs in self.named.values() if len(jobs) > 1 for job in jobs}

    def company(self, placement: Placement) -> set[int]:
        """Returns the jobs on the GPUs of a placement, with its own; none on parts of GPUs.

        Parts do not slow each other: lengths are those on the part that a job asks for.
        """
        if placement.gpu_part < 1.0:
            return set()
        return {job for gpu in placement.named() for job in self.named.get(gpu, ())}

    def idle_ids(self, node: int, count: int) -> tuple[int, ...]:
        """Returns the lowest GPU ids of a node that no named placement holds.

        On a node with islands they are of as few islands as can be.
        """
        ids = list(self._idle(node))
        if self.islands is not None:
            return self.islands.chosen(node, count, ids, (), near=True)
        return tuple(ids[:count])

    def _idle(self, node: int) -> Iterator[int]:
        """Yields the GPUs of a node that no named placement holds, and that are in service."""
        named, closed = self.named, self.cluster.closed_gpus
        for gpu in range(self.cluster.installed[node]):
            if (node, gpu) not in named and (node, gpu) not in closed:
                yield gpu

    def on_islands(self, job: int, placement: Placement, before: Placement | None) -> Placement:
        """Returns a placement with its GPUs named, where the cluster has islands.

        It keeps the GPUs of `before` that are free, unless the job asks for an island.
        """
        if self.islands is None or placement.gpu_ids or not placement.gpu_part:
            return placement
        return replace(placement, gpu_ids=self.names_on(job, placement.spans, before))

    def names_on(
        self, job: int, spans: Spans, before: Placement | None
    ) -> tuple[tuple[int, ...], ...]:
        """Returns names for the GPUs of a job: those of `before` that are free, then idle ones.

        With islands they are of as few as can be; a job that asks for an island lies in one first.
        """
        own = set() if before is None else set(before.named())
        near = is_island(self.jobs.topology[job])
        left = {}
        for node, count in merged(spans):
            if not 0 <= node < len(self.free) or self.free[node] < count:
                raise IllegalPlan(self._shortage(job, node, count))
            there = [gpu for at, gpu in own if at == node]
            idle = self._idle(node) if not self.cluster.closed_gpus else self._idle_to(node, there)
            if self.islands is None:
                left[node] = sorted(sorted(idle, key=lambda gpu: (gpu not in there, gpu))[:count])
            else:
                left[node] = list(self.islands.chosen(node, count, idle, there, near=near))
        return dealt(spans, left)

    def _idle_to(self, node: int, own: list[int]) -> Iterator[int]:
        """Yields the GPUs of a node that a job may hold which has its `own` there already."""
        yield from sorted({*self._idle(node), *(g for g in own if (node, g) not in self.named)})

    def seats(
        self, spans: Spans, part: float, before: Placement | None = None
    ) -> tuple[tuple[int, ...], ...]:
        """Returns the GPUs on which a job holds parts: those of `before` if they can take it.

        Else, on each node, the fullest GPUs with room, then free ones.
        """
        milli = thousandths(part)
        if before is not None and (before.spans, before.gpu_part) == (spans, part):
            fresh = [gpu for gpu in before.named() if gpu not in self.named]
            room = all(self._takes(gpu, milli) for gpu in before.named())
            if room and all(self.free[n] >= sum(1 for m, _ in fresh if m == n) for n, _ in fresh):
                return before.gpu_ids
        left = {node: list(self._seats_on(node, milli)) for node, _ in spans}
        if self.islands is not None:
            for node, count in merged(spans):
                left[node] = self._in_one_island(node, count, left[node]) or left[node]
        return dealt(spans, left)

    def _seats_on(self, node: int, part: int) -> Iterator[int]:
        """Yields the GPUs of a node that can take a part, in order of preference."""
        taken, installed = self.open_gpus.taken, range(self.cluster.installed[node])
        held = [(-taken.get((node, gpu), 0), gpu) for gpu in installed]
        for fill, gpu in sorted(held):
            if fill and self.open_gpus.has_room((node, gpu), part):
                yield gpu
        yield from self._idle(node)

    def island_nodes(self, gpus: int, part: float) -> int:
        """Returns the nodes, as a bit set, of which one island takes so many workers."""
        if self.islands is None:
            return ALL_NODES
        nodes, milli = self.islands.nodes_with(gpus), thousandths(part)
        if part < 1.0:
            for node in dict.fromkeys(node for node, _ in self.open_gpus.with_room(milli)):
                seats = list(self._seats_on(node, milli))
                if self._in_one_island(node, gpus, seats):
                    nodes |= 1 << node
        return nodes

    def _in_one_island(self, node: int, count: int, seats: list[int]) -> list[int]:
        """Returns the seats of the first island that has so many, none if there is none."""
        assert self.islands is not None
        size = self.islands.sizes[node]
        for first in dict.fromkeys(gpu // size for gpu in seats):
            inside = [gpu for gpu in seats if gpu // size == first]
            if len(inside) >= count:
                return inside
        return []

    def _takes(self, gpu: tuple[int, int], part: int) -> bool:
        """True if a GPU is nobody's, or is held in parts and has room for one more."""
        if gpu not in self.named:
            return True
        return gpu in self.open_gpus.taken and self.open_gpus.has_room(gpu, part)

    def _check_parts(self, job: int, placement: Placement) -> None:
        """Raises IllegalPlan if a whole job and a part would meet, or parts exceed a GPU."""
        taken, milli = self.open_gpus.taken, thousandths(placement.gpu_part)
        for node, gpu in placement.named():
            whole = placement.gpu_part == 1.0
            if (node, gpu) in taken if whole else not self._takes((node, gpu), milli):
                name, what = self.jobs.job_id[job], "all" if whole else f"{placement.gpu_part:g}"
                why = f"wants {what} of GPU {gpu} of node {node}, which is held"
                raise IllegalPlan(f"job {name}: {why}")

    def _check_alone(self, job: int, placement: Placement) -> None:
        """Raises IllegalPlan if whole jobs would meet under a policy that shares no GPUs."""
        held = [gpu for gpu in placement.named() if gpu in self.named]
        if held and placement.gpu_part == 1.0:
            node, gpu = held[0]
            name = self.jobs.job_id[job]
            raise IllegalPlan(f"job {name}: wants GPU {gpu} of node {node}, which is held")

    def _book_parts(self, placement: Placement, sign: int) -> None:
        part = sign * thousandths(placement.gpu_part)
        for gpu in placement.named():
            self.open_gpus.book(gpu, part)

    def _check_hosted(self, job: int, placement: Placement) -> None:
        """Raises IllegalPlan if a job without GPU may not have its node."""
        for node, _ in placement.spans:
            if not 0 <= node < len(self.free):
                raise IllegalPlan(self._shortage(job, node, 0))
        if self.books_more:
            self._check_books(job, placement)

    def _hold_named(self, job: int, placement: Placement) -> None:
        need = self._newly_named(job, placement)
        for node, count in need.items():
            if self.free[node] < count:
                raise IllegalPlan(self._shortage(job, node, count))
        if self.takes_parts:
            self._check_parts(job, placement)
        if self.islands is not None and not self.shared:
            self._check_alone(job, placement)
        if self.books_more:
            self._check_books(job, placement)
        self.placement_of[job] = placement
        if placement.gpu_part < 1.0:
            self._book_parts(placement, 1)
        for node, gpu in placement.named():
            held = self.named.get((node, gpu), ())
            # Sorted, so that a step undone leaves what was there before.
            self.named[node, gpu] = (*held, job) if not held else tuple(sorted((*held, job)))
            if not held:
                self._shift(node, -1)
                if self.islands is not None:
                    self.islands.shift(node, gpu, -1)

    def _newly_named(self, job: int, placement: Placement) -> dict[int, int]:
        """Counts, by node, the GPUs of a placement that nobody has. Raises IllegalPlan."""
        need: dict[int, int] = {}
        closed = self.cluster.closed_gpus
        for node, gpu in placement.named():
            if not (0 <= node < len(self.free) and 0 <= gpu < self.cluster.installed[node]):
                raise IllegalPlan(f"job {self.jobs.job_id[job]}: no GPU {gpu} on node {node}")
            if closed and (node, gpu) in closed and not self._has_already(job, (node, gpu)):
                name = self.jobs.job_id[job]
                raise IllegalPlan(f"job {name}: GPU {gpu} of node {node} is out of service")
            if (node, gpu) not in self.named:
                need[node] = need.get(node, 0) + 1
        return need

    def _has_already(self, job: int, gpu: tuple[int, int]) -> bool:
        """True if a job runs on a GPU: it may finish there."""
        before = self.running.get(job)
        return before is not None and gpu in before.named()

    def _shift(self, node: int, by: int) -> None:
        old = self.free[node]
        new = self.free[node] = old + by
        if node in self.closed:
            return
        self.free_gpus += by
        bit = 1 << node
        levels = self.levels
        rest = levels[old] ^ bit
        levels[old] = rest
        if not rest:
            self.level_mask ^= 1 << old
        levels[new] |= bit
        self.level_mask |= 1 << new

    def _check_books(self, job: int, placement: Placement) -> None:
        """Raises IllegalPlan if a tenant's limit, or the CPUs or memory of a node, forbid it.

        And if the job may not use its nodes, or not together.
        """
        jobs = self.jobs
        if self.chooses or jobs.queue[job] in self.node_sets.groups_of:
            self._check_nodes(job, placement)
        if self.tenants is not None:
            self.tenants.check(job, placement, self.running.get(job))
        if not self.limits_host:
            return
        requested = int(jobs.gpus[job])
        for node, count in merged(placement.spans):
            share = count / requested
            cpus, memory = self.host_free[node]
            wanted = (float(jobs.cpus[job]) * share, float(jobs.memory_bytes[job]) * share)
            # Sums of shares round; that is no reason to refuse.
            least = 1 - RELATIVE_TOLERANCE
            if wanted[0] * least > cpus or wanted[1] * least > memory:
                raise IllegalPlan(f"job {jobs.job_id[job]}: node {node} lacks CPUs or memory")

    def _check_nodes(self, job: int, placement: Placement) -> None:
        shape, nodes = self.shape(job), placement.by_node()
        if self.may_use(shape, placement):
            return
        of = f" of queue {self.jobs.queue[job]}" if shape.groups else ""
        name, more = self.jobs.job_id[job], " together" if len(nodes) > 1 else ""
        raise IllegalPlan(f"job {name}{of} may not use nodes {sorted(nodes)}{more}")

    def may_use(self, shape: Shape, placement: Placement) -> bool:
        """Returns whether a job of a shape may have the nodes and GPUs of a placement together."""
        if not self.node_sets.holds(shape, placement.by_node()):
            return False
        demanded = demands(shape.topology) and is_island(shape.topology)
        return not demanded or self.islands is None or self.islands.together(placement)

    def _book(self, job: int, placement: Placement, sign: int) -> None:
        jobs = self.jobs
        if self.tenants is not None:
            self.tenants.book(job, placement, sign)
        if self.limits_host:
            cpus, memory = float(jobs.cpus[job]), float(jobs.memory_bytes[job])
            requested = int(jobs.gpus[job])
            for node, count in placement.spans:
                share = sign * count / requested
                self.host_free[node][0] -= cpus * share
                self.host_free[node][1] -= memory * share

    def _shortage(self, job: int, node: int, count: int) -> str:
        name = self.jobs.job_id[job]
        if not 0 <= node < len(self.free):
            return f"job {name}: node {node} does not exist"
        return f"job {name}: wants {count} GPUs on node {node}, {self.free[node]} are free"


def shapes_on(occupancy: Occupancy) -> tuple[list[int], tuple[Shape, ...]]:
    """Returns the shape of each job, with only what limits jobs on this cluster."""
    jobs, tenants = occupancy.jobs, occupancy.tenants
    reserved = tenants is not None and tenants.has_reservations
    return shapes_of(
        jobs,
        by_host=occupancy.limits_host,
        by=() if tenants is None else tenants.labels,
        bounds_s=tenants.bounds_s(jobs, slice(None)) if tenants and reserved else None,
        groups_of=occupancy.node_sets.groups_of,
    )
