"""One controller from its lock to its end: store, agents, scheduler, world and server together.

Whatever ends the controller, even a kill at any instruction, leaves a store from which the next one
goes on; so a requested end needs no clean-up of its own.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from time import sleep, time

from dovetail.control.loop import run as run_loop
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.policy import name_of, spell
from dovetail.live.access.shared_home import SharedHome
from dovetail.live.access.user_entry import user_entry
from dovetail.live.access.user_list import StoredUsers
from dovetail.live.controller.job_folders import JobFolders
from dovetail.live.controller.node_monitor import awaits_nodes
from dovetail.live.controller.watchdog import Watchdog, WatchdogPolicy
from dovetail.live.controller.world import LiveWorld
from dovetail.live.edges.protocols import MEASURED, Edges, Incoming, StoredState
from dovetail.live.edges.wall_clock import ThreadInbox, WallClock
from dovetail.live.engines.engine import Engine
from dovetail.live.engines.engine_spec import EngineSpec
from dovetail.live.engines.output_bound import shorten
from dovetail.live.jobs.lifecycle import TERMINAL
from dovetail.live.jobs.output_path import output_of
from dovetail.live.measuring.meter import ReportMeter
from dovetail.live.server.messages.cluster import PingReply
from dovetail.live.server.request_handler import RequestHandler, ServerInfo
from dovetail.live.server.server import Handler, Server, UserAdmission, user_name
from dovetail.live.server.user_guard import UserGuard
from dovetail.live.serving.period import starting_meta
from dovetail.live.serving.save_on_term import saving_on_term
from dovetail.live.serving.scheduler import JobLengths, Scheduler, build_scheduler
from dovetail.live.serving.up_request import UpRequest, make_folder
from dovetail.live.serving.warm_up import freeze_what_stays, warm_up
from dovetail.live.shipping.shipping_store import ShippedJob, ShippingStore
from dovetail.live.store.database import Database, EmptyStore
from dovetail.live.store.folder import Folder
from dovetail.live.store.group_commit import GroupCommit
from dovetail.live.store.intake import Intake
from dovetail.live.store.queries import LIVE, StoreReader
from dovetail.live.store.store import Store
from dovetail.live.system.private_file import is_gone
from dovetail.live.terminals.terminal_server import TerminalServer, terminal_server
from dovetail.live.workers.rules import ENDLESS_LEASE_S, Rules
from dovetail.physics.beliefs.measurements import Measurements
from dovetail.study.tenant_notes import unheeded
from dovetail.traces.cluster_file import with_tenants
from dovetail.version import __version__
from dovetail.wire.site import AUTO

LOG = logging.getLogger(__name__)
LEASE = "lease of nodes"
"""The name in the journal of the lease that agents may hold, in seconds."""
WATCH_S = 1.0
SWITCH_S = 0.0005
"""How long a thread computes while another one waits.

NOTE: the threads of clients and of the store wait for the loop some ten times in each submit. With
Python's own 5 ms four clients got 190 to 240 submits a second done on a busy machine, beside 1,000
reports a second; with this 480 to 540.
"""
NAMED_MAX = 3
"""How many ignored fields of a cluster's file an error names."""
MESSAGES_S = 0.1
"""How long a message to an agent and its reply usually take at most."""


def check(request: UpRequest) -> None:
    """Raises InputError for a request that cannot work; starts nothing."""
    folder = make_folder(request)
    engine = request.engine_here
    if engine.is_known:
        _check_policy(request, engine)
    folder.lock().release()
    with suppress(EmptyStore):
        if folder.store.exists():
            with StoreReader(folder.store) as reader:
                reader.check()
                _check_engine(request.engine, engine.identity, reader)
                _check_lease(request, reader)


def _check_policy(request: UpRequest, engine: Engine) -> None:
    """Raises InputError for a policy or scripts that cannot serve this cluster."""
    if engine.paced and request.site.scripts:
        option = f"--{next(iter(request.site.scripts)).replace(' ', '-')}"
        raise InputError(option, "emulated nodes run no scripts", "leave it out")
    if engine.paced and request.site.reclaim_idle_s:
        raise InputError("--reclaim-idle", "synthetic jobs use no GPUs", "leave it out")
    if engine.paced and request.site.container_runtime != AUTO:
        raise InputError("--container-runtime", "synthetic jobs run in none", "leave it out")
    cluster = _with_tenants(request, engine, 0.0)
    scheduler = build_scheduler(request.policy, cluster, request.options, stated_s=lambda job: 0.0)
    if ignored := unheeded(cluster, scheduler.policy):
        name = name_of(scheduler.policy)
        by_qos = all(each.startswith("preempts") for each in ignored)
        other = "slurm:preempt_mode=requeue" if by_qos else f"tenancy:inner={name}"
        raise InputError(
            request.options["cluster"],
            f"policy {name} ignores {', '.join(ignored[:NAMED_MAX])}",
            f"leave it out, or start with --policy {other}",
        )


def serve(request: UpRequest, ready: Callable[[Server], None]) -> None:
    """Runs controllers until one is asked to stop. Raises InputError if the request cannot work.

    `ready` is called when clients can connect. When nodes have joined that the controller does not
    know, or that have other GPUs than before, the next one begins, as after a crash: jobs run on.
    """
    folder = make_folder(request)
    with ExitStack() as stack:
        lock = folder.lock()
        stack.callback(lock.release)
        _end_without(folder.home / "lock")
        engine = request.engine_here
        stack.callback(engine.close)
        _serve_once(request, folder, engine, ready)
        while engine.has_changed():
            LOG.info("the nodes have changed: the next controller begins")
            _serve_once(request, folder, engine, lambda server: None)


def _serve_once(
    request: UpRequest, folder: Folder, engine: Engine, ready: Callable[[Server], None]
) -> None:
    """Runs one controller until it ends."""
    with ExitStack() as stack:
        LOG.info("start: opening the store of jobs")
        _check_new(folder)
        committer = GroupCommit(Database(folder.store))
        stack.callback(committer.close)
        reader = stack.enter_context(StoreReader(folder.store))
        _check_engine(request.engine, engine.identity, reader)
        _check_lease(request, reader)
        engine.prepare(keeps_nodes=_under_way(reader) > 0)
        store = Store(committer, reader)
        recovered = store.recover(folder)
        lengths = JobLengths(recovered, store.find)
        scheduler = _scheduler(request, engine, recovered, lengths)
        meta = starting_meta(reader, scheduler.manifest_text(request.engine), engine.identity)
        store.keep({**meta, **_lease_of(request)})
        LOG.info(
            "start: preparing %s (the first time up to a minute: machine code is compiled)",
            request.policy,
        )
        # Before the agents start: later, jobs would wait for the compiler and a watchdog count it.
        warm_up(request.policy, engine.cluster, request.options)
        freeze_what_stays()
        LOG.info("start: starting the agents of %s", request.engine)
        sys.setswitchinterval(SWITCH_S)
        _control(request, folder, engine, scheduler, lengths, store, recovered, ready)
        # Agents of jobs that run go on without a controller; the next one adopts their workers.
        is_idle = not any(reader.counts().get(state) for state in LIVE if state != "PENDING")
        if is_idle and not engine.has_changed():
            engine.stop_agents(end=True)


def _with_tenants(request: UpRequest, engine: Engine, now_s: float) -> Cluster:
    """Returns the nodes of an engine with the tenants of the cluster's file. Raises InputError."""
    file = request.options.get("cluster", "")
    if not file:
        return engine.cluster
    today_s = time()
    return with_tenants(
        engine.cluster, file, lambda unix_s: now_s + (unix_s - today_s) * engine.speed
    )


def _check_new(folder: Folder) -> None:
    """Raises InputError if the store is an empty file although there were jobs.

    A controller that is killed in its first moments leaves an empty file, and no job.
    """
    jobs = folder.jobs
    if folder.store.exists() and not folder.store.stat().st_size and any(jobs.iterdir()):
        raise InputError(
            str(folder.store),
            f"it is empty, and {jobs} has folders of jobs",
            "put back a copy of the file, or remove both to begin without any jobs",
        )


def _end_without(lock: Path) -> None:
    """Ends this process when its lock is gone or replaced: its folder was removed.

    Otherwise it would keep the nodes from the controller of the next folder of that name.
    """
    inode = lock.stat().st_ino

    def watch() -> None:
        gone = False
        while not gone:
            sleep(WATCH_S)
            # A file system that does not answer is no sign that the file is gone.
            with suppress(OSError):
                gone = is_gone(lock, inode)
        LOG.error("the folder of this cluster is gone")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="folder", daemon=True).start()


def _control(
    request: UpRequest,
    folder: Folder,
    engine: Engine,
    scheduler: Scheduler,
    lengths: JobLengths,
    store: Store,
    recovered: StoredState,
    ready: Callable[[Server], None],
) -> None:
    """Runs the loop between agents and clients."""
    inbox = ThreadInbox(clock := WallClock(recovered.now_s, engine.speed))
    engine.start_agents()
    with ExitStack() as stack:
        stack.callback((post := engine.connect(inbox.put, clock)).close)
        folders = JobFolders(folder, store, ships=engine.ships, uid_of=_uid_of(request))
        world = LiveWorld(
            Edges(clock, inbox, post, folders, store),
            scheduler.state,
            scheduler.policy,
            recovered=recovered,
            launches=folders.launch,
            meter=ReportMeter(scheduler.learning),
            rules=_rules_of(request, engine),
            owner=user_name(os.getuid()),
            share_between_users=request.share_between_users,
            names=engine.names,
        )

        def put(incoming: Incoming) -> None:
            lengths.note(incoming)
            inbox.put(incoming)

        users = StoredUsers(Path(request.users)) if request.users else None
        intake = Intake(
            store.committer,
            clock=clock,
            cluster=scheduler.options.cluster,
            put=put,
            home=folder.home if users is None else request.home,
            policy=scheduler.policy,
            submitted_max=_submitted_max(users),
            chooses_output=not (users is not None and engine.ships),
        )
        pong = _pong(request, recovered.epoch, scheduler, clock.now(), engine.speed)
        info = ServerInfo(pong, folder, engine.paced)
        handler = RequestHandler(info, intake, lambda: world.status, clock.now)
        terminals = terminal_server(folder.store, engine.open_terminal, intake)
        server = _server(request, folder, handler, users, terminals)
        stack.callback(server.stop)
        server.start(request.listen)
        _serve_nodes(stack, engine, request, folder, partial(_is_lost, world, clock))
        stack.enter_context(_serving_engine(engine, server, intake))
        LOG.info("controller %d serves %s with %s", recovered.epoch, request.engine, pong.policy)
        ready(server)
        watchdog = stack.enter_context(Watchdog(Rules().decision_limit_s))
        run_loop(world, WatchdogPolicy(scheduler.policy, watchdog), memory=world.memory)
        LOG.info("controller %d ends as requested", recovered.epoch)


def _serve_nodes(
    stack: ExitStack,
    engine: Engine,
    request: UpRequest,
    folder: Folder,
    is_lost: Callable[[int], bool],
) -> None:
    """Passes on to the engine which nodes are lost, and serves the files that travel."""
    engine.heed_losses(is_lost)
    if engine.ships:
        engine.ship_through(_shipping_store(request, folder, is_lost, engine.names))
        stack.callback(engine.ship_through, None)


def _shipping_store(
    request: UpRequest, folder: Folder, is_lost: Callable[[int], bool], names: Sequence[str]
) -> ShippingStore:
    """Returns what keeps the files that nodes ship in the folders of jobs."""

    def find(number: int) -> ShippedJob | None:
        with StoreReader(folder.store) as reader:
            job = reader.job(number)
        if job is None:
            return None
        output = output_of(job.spec, number, folder.job(number))
        return ShippedJob(job.record.state in TERMINAL, output)

    bound = request.site.output_bytes_max, shorten
    return ShippingStore(
        folder.jobs, find, lambda node: not is_lost(node), lambda node: names[node], bound
    )


def _is_lost(world: LiveWorld, clock: WallClock, node: int) -> bool:
    """Returns whether nothing that was started on a node can live there any more."""
    status, now_s = world.status, clock.now()
    return status is not None and any(n.node == node and n.lost_s <= now_s for n in status.nodes)


@contextmanager
def _serving_engine(engine: Engine, server: Server, intake: Intake) -> Iterator[None]:
    """Serves clients of other machines, and the end of the allocation if there is one."""
    engine.serve_clients(server.serve_remote)
    try:
        with saving_on_term(intake) if engine.ends_with_controller else nullcontext():
            yield
    finally:
        engine.serve_clients(None)


def _rules_of(request: UpRequest, engine: Engine) -> Rules:
    return replace(
        rules_at_speed(engine.speed),
        leases_s=engine.leases_s,
        reclaim_idle_s=request.site.reclaim_idle_s,
    )


def _pong(
    request: UpRequest, epoch: int, scheduler: Scheduler, now_s: float, speed: float
) -> PingReply:
    return PingReply(
        pid=os.getpid(),
        epoch=epoch,
        version=__version__,
        policy=spell(scheduler.policy),
        engine=request.engine,
        forecast=scheduler.options.forecast,
        now_s=now_s,
        speed=speed,
    )


def _uid_of(request: UpRequest) -> Callable[[str], int]:
    """Returns what knows the uid of a user here, by which nodes check theirs; -1 for one user."""

    def uid_of(user: str) -> int:
        entry = user_entry(user) if request.users else None
        return -1 if entry is None else entry.uid

    return uid_of


def _submitted_max(users: StoredUsers | None) -> Callable[[str], int]:
    """Returns how many jobs each user may have in the queue, as a function of their name."""
    return lambda user: 0 if users is None else users.users().most_submitted(user)


def _server(
    request: UpRequest,
    folder: Folder,
    handler: Handler,
    users: StoredUsers | None,
    terminals: TerminalServer,
) -> Server:
    """Returns the server; with users it also listens where everybody may connect."""
    token = folder.token() if request.listen else ""
    if users is None:
        return Server(handler, folder.socket, token=token, terminals=terminals)
    guard = UserGuard(handler, users.users, folder.store)
    door = UserAdmission(
        SharedHome(request.home).socket, lambda user: users.users().why_not_admitted(user)
    )
    return Server(guard, folder.socket, token=token, door=door, terminals=terminals)


def _scheduler(
    request: UpRequest, engine: Engine, recovered: StoredState, lengths: JobLengths
) -> Scheduler:
    """Returns the scheduler, with what earlier controllers of this cluster learned."""
    measured = dict(recovered.meta).get(MEASURED, "")
    try:
        Measurements.load(measured)
    except InputError as error:
        LOG.error("%s; it is measured anew", error)
        measured = ""
    return build_scheduler(
        request.policy,
        _with_tenants(request, engine, recovered.now_s),
        request.options,
        stated_s=lengths,
        measured=measured,
        paced=engine.paced,
    )


def _check_engine(engine: str, identity: str, reader: StoreReader) -> None:
    """Raises InputError if jobs are under way on another engine."""
    before = reader.meta("engine")
    if before is None or before == identity:
        return
    if under_way := _under_way(reader):
        raise InputError(
            f"--engine {engine}",
            f"{under_way} jobs of this cluster belong to its engine {before}",
            f"give --engine {before}, or another --home",
        )


def _lease_of(request: UpRequest) -> dict[str, str]:
    """Returns what the store is to say of the lease of this cluster's nodes, if they have one."""
    return {LEASE: repr(request.join.lease_s)} if EngineSpec.parse(request.engine).joins else {}


def _check_lease(request: UpRequest, reader: StoreReader) -> None:
    """Raises InputError for a shorter lease while agents may hold the longer one.

    The controller would take their nodes for lost while the workers there live.
    """
    before_s = float(reader.meta(LEASE) or 0.0) if _lease_of(request) else 0.0
    if request.join.lease_s < before_s and (_under_way(reader) or awaits_nodes(reader.meta)):
        length = "0" if before_s == ENDLESS_LEASE_S else f"{before_s:g}s"
        raise InputError(
            f"--lease {request.join.lease}",
            "jobs that are under way have a longer lease",
            f"give --lease {length}, or run `dovetail down --drain` first",
        )


def _under_way(reader: StoreReader) -> int:
    return sum(reader.counts().get(state, 0) for state in LIVE)


def rules_at_speed(speed: float) -> Rules:
    """Returns the rules of a world whose seconds pass faster than those of its machines."""
    rules = Rules()
    scaled = {
        f.name: getattr(rules, f.name) * speed
        for f in fields(Rules)
        if isinstance(getattr(rules, f.name), float)
    }
    # Deciding takes the machine's time at any speed. Emulated workers leave at once, so a gang
    # waits for their GPUs only as long as messages travel.
    scaled |= {
        "decision_limit_s": rules.decision_limit_s,
        "yield_s": max(rules.yield_s, MESSAGES_S * speed),
    }
    return replace(rules, **scaled)
