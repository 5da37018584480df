"""A trace played by the live scheduler in virtual time: real controller, synthetic jobs.

Everything of a live cluster takes part except sockets, disks and waiting: the controller's world
and its journal, messages that take their time, agents, and synthetic workers. So a day passes in
seconds, and what differs from the simulator is the work of the control plane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from dovetail.control.loop import run as run_loop
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable
from dovetail.core.trace import Trace
from dovetail.core.units import NEVER_S
from dovetail.live.controller.launches import launcher_in
from dovetail.live.controller.world import LiveWorld
from dovetail.live.edges.protocols import Edges
from dovetail.live.edges.virtual_time import (
    Timeline,
    VirtualClock,
    VirtualInbox,
    VirtualPost,
)
from dovetail.live.emulation.nodes import EmulatedNodes
from dovetail.live.jobs.lifecycle import TERMINAL
from dovetail.live.measuring.meter import ReportMeter
from dovetail.live.serving.period import starting_meta
from dovetail.live.serving.scheduler import build_scheduler, live_options, live_physics
from dovetail.live.store.database import Database
from dovetail.live.store.intake import Intake
from dovetail.live.store.queries import Queries
from dovetail.live.store.store import Store
from dovetail.live.workers.rules import Rules
from dovetail.study.option_texts import OptionTexts
from dovetail.study.options import Options
from dovetail.wire.agent import AgentOrder, AgentReport
from dovetail.wire.spec import JobSpec
from dovetail.wire.submission import Submission

MESSAGE_S = 0.0005
"""How long a message travels: between processes of one machine it was 0.3 to 0.6 ms."""
REPORT_S = 10.0
"""Between reports of a synthetic job, and between heartbeats of a node. Emulated nodes of a cluster
send one each second of the machine, which is many seconds of a cluster whose time runs faster."""


def specs_of(trace: Trace) -> list[JobSpec]:
    """Returns the synthetic jobs, of true lengths, that the owners of a trace would submit."""
    specs = []
    for row, duration_s in enumerate(trace.duration_s.tolist()):
        job = trace.jobs.job(row)
        specs.append(
            JobSpec(
                name=job.job_id,
                command=(),
                workdir="/",
                gpus=job.gpus,
                min_gpus=job.min_gpus if job.elastic else job.gpus,
                max_gpus=job.max_gpus if job.elastic else job.gpus,
                shareable=job.shareable,
                preemptible=job.preemptible,
                user=job.user,
                account=job.account,
                qos=job.qos,
                reservation=job.reservation,
                queue=job.queue,
                model=job.model,
                gpu_type=job.gpu_type,
                priority=job.priority,
                batch_size=job.batch_size,
                restart_s=job.restart_s if job.elastic else 0.0,
                duration_s=duration_s,
                paced=True,
            )
        )
    return specs


def _without_strangers(spec: JobSpec, cluster: Cluster) -> JobSpec:
    """Returns a job of a trace without labels that this cluster would refuse, as it has none."""
    return replace(
        spec,
        queue=spec.queue if cluster.queues else "",
        account=spec.account if cluster.accounts else "",
        qos=spec.qos if cluster.qos else "",
        reservation=spec.reservation if cluster.reservations else "",
    )


@dataclass(slots=True)
class VirtualNodes:
    """The emulated nodes, driven by the timeline. A message travels for `message_s`."""

    line: Timeline
    nodes: EmulatedNodes
    put: Callable[[AgentReport], None]
    message_s: float
    armed_s: float = NEVER_S

    def deliver(self, node: int, order: AgentOrder) -> None:
        """Delivers an order and sends the reports that answer it."""
        self._send(self.nodes.handle(node, order, self.line.now))

    def _send(self, reports: list[AgentReport]) -> None:
        for report in reports:
            self.line.after(self.message_s, partial(self.put, report))
        self.arm()

    def arm(self) -> None:
        """Puts the next event of the nodes into the timeline, unless it is there."""
        due_s = self.nodes.next_due()
        if due_s < NEVER_S and due_s != self.armed_s:
            self.armed_s = due_s
            self.line.at(due_s, partial(self._happen, due_s))

    def _happen(self, due_s: float) -> None:
        # An order may have made an earlier event the armed one; this call is then out of date.
        if self.armed_s == due_s:
            self.armed_s = NEVER_S
            self._send(self.nodes.tick(self.line.now))


def play(
    trace: Trace,
    policy: str,
    cluster: Cluster,
    texts: OptionTexts,
    *,
    guess: OptionTexts | None = None,
    report_s: float = REPORT_S,
    message_s: float = MESSAGE_S,
    until_s: float = NEVER_S,
    decision_s: list[float] | None = None,
    store_at: Path | None = None,
    specs: Sequence[JobSpec] = (),
    calls: Sequence[tuple[float, Callable[[Intake], object]]] = (),
) -> Queries:
    """Returns the store of a live cluster that has served all jobs of a trace, or until a time.

    With a `guess` the controller goes by other options than its jobs do, until it has measured.
    `decision_s` collects the wall time of each decision. The store is in memory unless `store_at`
    is a path. Owners submit `specs` (default: what the trace has); at each time in `calls` the call
    is made with the intake.
    """
    specs = [_without_strangers(spec, cluster) for spec in specs or specs_of(trace)]
    scheduler = build_scheduler(
        policy,
        cluster,
        {**texts, **(guess or {})},
        stated_s=lambda job: specs[int(job) - 1].duration_s,
        paced=True,
        guessing=guess is not None,
    )
    database = Database(store_at)
    queries = Queries(database.connection)
    store = Store(database, queries)
    line = Timeline()
    clock, inbox = VirtualClock(line), VirtualInbox(line)
    emulated = _nodes(live_options(cluster, texts), report_s)
    nodes = VirtualNodes(line, emulated, inbox.put, message_s)
    post = VirtualPost(line, nodes.deliver, message_s)
    world = LiveWorld(
        Edges(clock, inbox, post, store, store),
        scheduler.state,
        scheduler.policy,
        recovered=store.recover(),
        launches=launcher_in(Path("/nowhere")),
        meter=ReportMeter(scheduler.learning),
        rules=_rules(report_s),
    )
    store.keep(starting_meta(queries, scheduler.manifest_text("emulated"), "emulated"))
    intake = Intake(store.committer, clock=clock, cluster=cluster, put=inbox.put)
    for n, (spec, submit_s) in enumerate(zip(specs, trace.jobs.submit_s.tolist(), strict=True)):
        line.at(submit_s, partial(intake.submit, [Submission(spec)], key=f"job {n}"))
    for time_s, call in calls:
        line.at(time_s, partial(call, intake))
    nodes.arm()
    _stop_when_done(line, intake, queries, len(specs), until_s)
    run_loop(world, scheduler.policy, memory=world.memory, decision_s=decision_s)
    return queries


def _stop_when_done(
    line: Timeline, intake: Intake, queries: Queries, jobs: int, until_s: float
) -> None:
    """Stops the controller when all jobs are over, or at a time; checks once a minute."""
    counts = queries.counts()
    over = sum(counts.get(state, 0) for state in TERMINAL) == jobs
    if over or line.now >= until_s:
        intake.request("down", argument="leave", key="down")
    else:
        again_s = min(line.now + 60.0, max(until_s, line.now))
        line.at(again_s, partial(_stop_when_done, line, intake, queries, jobs, until_s))


def _rules(report_s: float) -> Rules:
    """Returns the rules of a controller whose nodes report every `report_s`.

    No time passes while a policy decides, however long this machine takes for it.
    """
    rules = Rules()
    slower = max(1.0, report_s)
    return replace(
        rules,
        decision_limit_s=NEVER_S,
        node_patience_s=rules.node_patience_s * slower,
        inventory_every_s=rules.inventory_every_s * slower,
        publish_every_s=rules.publish_every_s * slower,
        persist_every_s=rules.persist_every_s * slower,
    )


def _nodes(options: Options, report_s: float) -> EmulatedNodes:
    """Returns the emulated nodes of a cluster; they run jobs at true speeds, not believed ones."""
    jobs = JobTable.build([], np.empty(0), np.empty(0, np.int64))
    cluster = options.cluster
    return EmulatedNodes(
        cluster.nodes,
        cluster.groups[0].gpus_per_node,
        jobs=jobs,
        physics=live_physics(jobs, options),
        costs=options.switching,
        report_s=report_s,
        alive_s=report_s,
    )
