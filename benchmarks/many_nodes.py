"""The controller of many nodes: CPU and memory under load, lost nodes, recovery.

    python -m benchmarks.many_nodes [--nodes 10,100,1000] [--waiting 10000] [--policies fifo,srtf]
        [--crowd one|mixed] [--load-s 10]

A real controller (store, inbox, loop, server, gate) and N nodes of 8 emulated GPUs in another
process, each with a real agent, joined over TLS by a connection of its own: a line a second with
what its workers have reported. First the cluster rests; then every GPU is held and `--waiting` jobs
wait (`one`: a GPU each, the most progress that nodes can report; `mixed`: those of
benchmarks.decisions); users submit; a tenth of the nodes dies at once, as machines without power
do; and the controller is killed. All but what is said to be seen in seconds is CPU time of the
controller's process, so that other programs do not count.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import selectors
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic, sleep, thread_time
from unittest.mock import patch

import numpy as np

from benchmarks.control_plane import GPUS, TASKS, crowd, percentile, resident_mib
from dovetail.control.loop import run as run_loop
from dovetail.core.cluster import DOWN, Cluster
from dovetail.core.errors import InputError
from dovetail.core.job import JobTable
from dovetail.core.policy import Policy
from dovetail.live.client.client import Client
from dovetail.live.controller.world import LiveWorld
from dovetail.live.edges.protocols import Incoming
from dovetail.live.edges.wall_clock import ThreadInbox
from dovetail.live.emulation.nodes import EmulatedNodes
from dovetail.live.engines.agent_server import AgentServer
from dovetail.live.engines.joined_engine import JoinedEngine, JoinSettings
from dovetail.live.join.dial import Joiner, NodeRefused
from dovetail.live.node.agent import Agent
from dovetail.live.node.transport import EventLoop
from dovetail.live.serving.scheduler import live_options, live_physics
from dovetail.live.serving.serve import UpRequest, serve
from dovetail.live.serving.virtual_live import specs_of
from dovetail.study.option_texts import split_policies
from dovetail.wire.agent import AgentOrder, AgentReport
from dovetail.wire.join import NodeDevices
from dovetail.wire.spec import JobSpec
from dovetail.wire.submission import Submission

SPAWN = multiprocessing.get_context("spawn")
PATIENCE_S = 1800.0
LONG_S = 50_000.0
SUBMITS = 200
REDIAL_S = 1.0
"""How often an agent without a controller calls it."""


@dataclass(frozen=True, slots=True)
class AgentUsage:
    """What the process of all agents has used, and how far its nodes are behind its clock."""

    cpu_s: float
    behind_s: float


class ManyNodes(EmulatedNodes):
    """Emulated nodes that can die, each behind the server of a real agent, on one thread."""

    def play(self, join: Path, orders: Connection) -> None:
        """Joins all nodes over TLS, and plays them until this process is killed."""
        self._loop, self._began_s, self._beaten_s = EventLoop(), monotonic(), 0.0
        self._loop.watch(
            orders.fileno(), selectors.EVENT_READ, lambda events: self._obey(orders.recv(), orders)
        )
        count = len(self._nodes)
        self._links = [
            DialedLink(join / name(n), self.gpu_names(n), self._loop) for n in range(count)
        ]
        self._servers = [
            AgentServer(self._loop, link, OneOf(self, n), (n,), self.clock, gathers=True)
            for n, link in enumerate(self._links)
        ]
        orders.send("ready")
        while True:
            self._loop.wait(min(self.next_due() - self.clock(), 0.5 / count))
            self.route(self.tick(self.clock()))
            self.beat()

    def clock(self) -> float:
        """Returns the time of the nodes."""
        return monotonic() - self._began_s

    def gpu_names(self, node: int) -> tuple[str, ...]:
        """Returns what the agent of a node calls its GPUs."""
        return tuple(f"paced-{gpu}" for gpu in range(self._gpus[node]))

    def route(self, reports: Sequence[AgentReport], own: int = -1) -> list[AgentReport]:
        """Lets each agent send what is its own; returns what is that of one node."""
        for report in reports:
            if report.node != own:
                self._servers[report.node].publish([report])
        return [report for report in reports if report.node == own]

    def agent_of(self, node: int) -> Agent | None:
        """Returns the agent of a node that has not died."""
        return self._nodes[node].agent

    def beat(self) -> None:
        """Lets every node that is due send its line of this second, one after the other."""
        count, now = len(self._nodes), self.clock()
        first, last = int(self._beaten_s * count), int(now * count)
        self._beaten_s = now
        for n in range(max(first, last - count), last):
            node = n % count
            if self._nodes[node].agent is not None:
                self._servers[node].publish(self._servers[node]._nodes.heartbeats(now))
                self._servers[node]._source.turn()

    def _obey(self, order: object, orders: Connection) -> None:
        if isinstance(order, range):
            for node in order:
                # As when a machine loses its power: the connection stays, and nothing is said.
                self._nodes[node].agent = None
        else:
            orders.send(AgentUsage(time.process_time(), self.clock() - self._now))


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of many nodes, for the server of its agent."""

    all: ManyNodes
    number: int

    def handle(self, node: int, order: AgentOrder, now: float) -> list[AgentReport]:
        """Passes an order to the agent. Others must be heard however many orders there are."""
        self.all.beat()
        return self.all.route(self.all.handle(node, order, now), own=node)

    def heartbeats(self, now: float) -> list[AgentReport]:
        """Returns the sign of life of the node."""
        agent = self.all.agent_of(self.number)
        return [] if agent is None else [agent.heartbeat(now)]


class DialedLink:
    """Calls the controller of a join word whenever there is no connection."""

    def __init__(self, word: Path, gpus: tuple[str, ...], loop: EventLoop) -> None:
        devices = NodeDevices(gpus, "emulated", 80e9, 64.0, 1e12)
        self._joiner = Joiner(word, word.name, devices)
        self._call_s = 0.0

    def open(self, server: AgentServer) -> None:
        """Calls from now on."""
        self._server = server
        self.turn()

    def turn(self) -> bool:
        """Calls if there is no connection; the controller may be away for a while."""
        if not self._server.is_connected and monotonic() >= self._call_s:
            self._call_s = monotonic() + REDIAL_S
            with suppress(OSError, NodeRefused, InputError):
                self._server.add(self._joiner.join().link)
        return True


def name(node: int) -> str:
    """Returns the name of a node."""
    return f"n{node:04d}"


def play_agents(home: Path, nodes: int, orders: Connection) -> None:
    """Plays the agents of all nodes; orders are nodes that die, or the wish to know the usage."""
    # A session of its own gets a share of the CPU of its own, as other machines have theirs.
    os.setsid()
    table = JobTable.build([], np.empty(0), np.empty(0, np.int64))
    options = live_options(Cluster.uniform(nodes, GPUS), {})
    played = ManyNodes(nodes, GPUS, jobs=table, physics=live_physics(table, options), steps_max=20)
    words = home / "join"
    until(lambda: (words / name(nodes - 1)).exists(), "the join words are there")
    played.play(words, orders)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a controller has used: CPU seconds in all and by thread, memory, and its decisions.

    `decide_s` are the CPU seconds of the policy in each decision, `whole_s` those with all that
    follows: the plan is checked and applied, gangs act, the entry is written and orders are sent.
    """

    cpu_s: float
    thread_s: dict[str, float]
    held_mib: float
    decide_s: list[float]
    whole_s: list[float]
    is_settled: bool
    reports: int
    progress: int


class Meter:
    """Measures a controller from inside its process."""

    def __init__(self) -> None:
        self.world: LiveWorld | None = None
        self.decide_s: list[float] = []
        self.whole_s: list[float] = []
        self._decided_s = -1.0
        self._reports = self._progress = 0

    def run(self, world: LiveWorld, policy: Policy, *, memory: object) -> object:
        """Runs the loop of the controller, and times its decisions."""
        self.world, ask = world, world.advance

        def advance(until: float) -> bool:
            is_asked = ask(until)
            self._decided_s = thread_time()
            return is_asked

        with patch.object(world, "advance", advance):
            return run_loop(world, policy, memory=memory, decision_s=self.decide_s)

    def wait(self, inbox: ThreadInbox, until: float) -> Sequence[Incoming]:
        """Waits in place of an inbox: what followed from the last decision is over."""
        if self._decided_s >= 0:
            self.whole_s.append(thread_time() - self._decided_s)
            self._decided_s = -1.0
        incoming = WAIT(inbox, until)
        reports = [each for each in incoming if isinstance(each, AgentReport)]
        self._reports += len(reports)
        self._progress += sum(len(report.progress) for report in reports)
        return incoming

    def usage(self) -> Usage:
        """Returns what was used up to now."""
        threads = {t.name: t.ident for t in threading.enumerate() if t.ident}
        clocks = {name: time.pthread_getcpuclockid(ident) for name, ident in threads.items()}
        used = {name: time.clock_gettime(clock) for name, clock in clocks.items()}
        held, settled = resident_mib(os.getpid()), False
        if self.world is not None:
            settled = self.world._gangs.settled
        return Usage(
            time.process_time(),
            used,
            held,
            list(self.decide_s),
            list(self.whole_s),
            settled,
            self._reports,
            self._progress,
        )


WAIT = ThreadInbox.wait


def nodes_file(home: Path) -> Path:
    """Returns the file that names the nodes of a cluster."""
    return home.parent / "nodes.toml"


def control(home: Path, policy: str, pipe: Connection) -> None:
    """Runs a controller that says what it has used whenever it is asked."""
    meter = Meter()

    def answer() -> None:
        while True:
            pipe.recv()
            pipe.send(meter.usage())

    threading.Thread(target=answer, name="meter", daemon=True).start()
    gate = JoinSettings(gate="127.0.0.1")
    request = UpRequest(home, policy, f"nodes:{nodes_file(home)}", {}, join=gate)
    with (
        # Synthetic jobs run on these nodes, as on those of an emulated cluster.
        patch.object(JoinedEngine, "paced", True),
        patch("dovetail.control.loop.perf_counter", thread_time),
        patch("dovetail.live.serving.serve.run_loop", meter.run),
        patch.object(ThreadInbox, "wait", lambda inbox, until: meter.wait(inbox, until)),
    ):
        serve(request, lambda server: None)


class Controller:
    """A controller in a process of its own."""

    def __init__(self, home: Path, policy: str) -> None:
        self._pipe, there = SPAWN.Pipe()
        self.began_s = monotonic()
        self._process = SPAWN.Process(target=control, args=(home, policy, there))
        self._process.start()
        until(lambda: self.usage().is_settled, "the controller is up")

    def usage(self) -> Usage:
        """Returns what it has used."""
        self._pipe.send(None)
        usage = self._pipe.recv()
        assert isinstance(usage, Usage)
        return usage

    def kill(self) -> None:
        """Kills it."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.join()


def until(holds: Callable[[], bool], what: str, every_s: float = 0.2) -> None:
    """Waits until something holds. Raises TimeoutError."""
    deadline = monotonic() + PATIENCE_S
    while not holds():
        if monotonic() > deadline:
            raise TimeoutError(what)
        sleep(every_s)


@contextmanager
def agents(home: Path, nodes: int) -> Iterator[Connection]:
    """Yields where to say which nodes die."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=play_agents, args=(home, nodes, there), daemon=True)
    process.start()
    try:
        yield here
    finally:
        process.kill()
        process.join()


def submissions(kind: str, waiting: int, nodes: int) -> list[list[Submission]]:
    """Returns the jobs that hold all GPUs, and those that wait, in some requests."""
    if kind == "one":
        total = waiting + nodes * GPUS
        sizes = [min(TASKS, total - first) for first in range(0, total, TASKS)]
        return [[Submission(small_job(), tuple(range(size)))] for size in sizes]
    specs = specs_of(crowd(waiting, nodes * GPUS))[: waiting + nodes * GPUS // 2]
    return [[Submission(s) for s in specs[n : n + TASKS]] for n in range(0, len(specs), TASKS)]


def small_job() -> JobSpec:
    """Returns a job of one GPU that outlives the benchmark."""
    return JobSpec("train", (), "/", duration_s=LONG_S, paced=True, model="resnet50")


def cpu_line(what: str, before: Usage, after: Usage, wall_s: float) -> str:
    """Returns the CPU time of a stretch in milliseconds per second, in all and by thread."""
    parts = {
        name: 1e3 * (used - before.thread_s.get(name, 0.0)) / wall_s
        for name, used in after.thread_s.items()
    }
    by_thread = ", ".join(f"{name} {ms:.0f}" for name, ms in parts.items() if ms >= 0.5)
    return f"{what}: {1e3 * (after.cpu_s - before.cpu_s) / wall_s:.0f} ms/s ({by_thread})"


def stretch(controller: Controller, orders: Connection, what: str, seconds: float) -> None:
    """Prints the CPU time that a controller takes for some seconds, and whether agents kept up."""
    before, agents_before, began = controller.usage(), usage_of(orders), monotonic()
    sleep(seconds)
    after, agents_after, wall_s = controller.usage(), usage_of(orders), monotonic() - began
    agents_ms = 1e3 * (agents_after.cpu_s - agents_before.cpu_s) / wall_s
    print(
        f"  {cpu_line(what, before, after, wall_s)}; {after.reports - before.reports} lines from"
        f" nodes with {after.progress - before.progress} of progress in {wall_s:.1f} s; agents"
        f" {agents_ms:.0f} ms/s, {agents_after.behind_s:.1f} s behind",
        flush=True,
    )


def usage_of(orders: Connection) -> AgentUsage:
    """Returns what the process of the agents has used."""
    orders.send(None)
    usage = orders.recv()
    assert isinstance(usage, AgentUsage)
    return usage


def decisions_line(usage: Usage, first: int) -> str:
    """Returns how long the decisions after the first ones took."""
    cells = []
    for what, all_s in (("policy", usage.decide_s), ("whole", usage.whole_s)):
        took_s = all_s[first:]
        if took_s:
            p50, p99 = (percentile(took_s, part) for part in (0.5, 0.99))
            cells.append(f"{what} p50 {p50:.1f}, p99 {p99:.1f}, most {1e3 * max(took_s):.1f} ms")
    return f"{len(usage.decide_s) - first} decisions: {'; '.join(cells)}"


def run(policy: str, nodes: int, given: argparse.Namespace) -> None:
    """Plays the life of a cluster of so many nodes."""
    print(f"\n{policy}, {nodes} nodes (load {os.getloadavg()[0]:.1f})", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="dvm-", dir=given.folder))
    home = folder / "home"
    names = [f'[[node]]\nname = "{name(n)}"\n' for n in range(nodes)]
    nodes_file(home).write_text("".join(names), encoding="utf-8")
    try:
        with agents(home, nodes) as orders:
            measure(home, policy, nodes, given, orders)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(
    home: Path, policy: str, nodes: int, given: argparse.Namespace, orders: Connection
) -> None:
    """Prints the figures of one cluster, and kills its controller."""
    controller, client = Controller(home, policy), Client(home)
    orders.recv()
    print(f"  up: {controller.usage().cpu_s:.1f} CPU s, {controller.usage().held_mib:.0f} MiB")
    stretch(controller, orders, "at rest", given.load_s)
    before = controller.usage()
    for jobs in submissions(given.crowd, given.waiting, nodes):
        client.submit(*jobs)
    quiet(controller, client)
    usage = controller.usage()
    counts = dict(client.jobs(limit=1).counts)
    print(f"  filled: {usage.cpu_s - before.cpu_s:.1f} CPU s, {usage.held_mib:.0f} MiB, {counts}")
    print("  " + decisions_line(usage, 0))
    stretch(controller, orders, "under load", given.load_s)
    users(controller, client)
    if nodes >= 10:
        lose(controller, client, orders, nodes)
    recover(controller, home, policy, orders)


def quiet(controller: Controller, client: Client) -> None:
    """Waits until nothing starts any more."""

    def is_quiet() -> bool:
        counts = dict(client.jobs(limit=1).counts)
        before = len(controller.usage().decide_s)
        sleep(1.0)
        return not counts.get("CONFIGURING") and len(controller.usage().decide_s) == before

    until(is_quiet, "all jobs are started")


def users(controller: Controller, client: Client) -> None:
    """Prints how long submits and cancels take, and the decisions that follow."""
    first, took_s, before = len(controller.usage().decide_s), list[float](), controller.usage()
    rows = client.jobs(limit=SUBMITS // 2, states=("RUNNING",)).jobs
    running = [row.called for row in rows]
    for n in range(SUBMITS):
        began = time.perf_counter()
        client.submit(small_job())
        took_s.append(time.perf_counter() - began)
        if n % 2 and n // 2 < len(running):
            client.cancel(running[n // 2])
        sleep(0.02)
    sleep(2.0)
    usage = controller.usage()
    p50, p99 = (percentile(took_s, part) for part in (0.5, 0.99))
    print(f"  submits: p50 {p50:.1f}, p99 {p99:.1f} ms of wall time")
    print("  " + decisions_line(usage, first))
    spent_s = usage.cpu_s - before.cpu_s
    print(f"  {SUBMITS} submits, {len(running)} cancels: {spent_s:.1f} CPU s", flush=True)


def lose(controller: Controller, client: Client, orders: Connection, nodes: int) -> None:
    """Prints when the loss of a tenth of the nodes is seen, and what it costs."""
    dead, before, began = range(nodes // 10), controller.usage(), monotonic()
    orders.send(dead)

    def is_seen() -> bool:
        return all(row.state == DOWN for row in client.nodes().nodes if row.node in dead)

    until(is_seen, "dead nodes are seen", every_s=0.5)
    seen_s = monotonic() - began
    quiet(controller, client)
    usage = controller.usage()
    counts = dict(client.jobs(limit=1).counts)
    print(
        f"  {len(dead)} nodes lost: seen after {seen_s:.1f} s, {usage.cpu_s - before.cpu_s:.1f} CPU"
        f" s until all is placed anew, {counts}"
    )
    print("  " + decisions_line(usage, len(before.decide_s)), flush=True)


def recover(controller: Controller, home: Path, policy: str, orders: Connection) -> None:
    """Prints what it costs to take over from a controller that was killed."""
    before = controller.usage()
    controller.kill()
    again = Controller(home, policy)
    usage, wall_s = again.usage(), monotonic() - again.began_s
    print(
        f"  killed at {before.held_mib:.0f} MiB; recovered in {usage.cpu_s:.1f} CPU s ({wall_s:.1f}"
        f" s), {usage.held_mib:.0f} MiB",
        flush=True,
    )
    sleep(5.0)
    stretch(again, orders, "under load again", 5.0)
    again.kill()


def main() -> None:
    """Measures each policy with each number of nodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="10,30,100,300,1000")
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--policies", default="fifo")
    parser.add_argument("--crowd", choices=("one", "mixed"), default="one")
    parser.add_argument("--load-s", type=float, default=10.0)
    parser.add_argument("--folder", default="/tmp")
    given = parser.parse_args()
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    for policy in split_policies(given.policies):
        for nodes in map(int, given.nodes.split(",")):
            run(policy, nodes, given)


if __name__ == "__main__":
    main()
