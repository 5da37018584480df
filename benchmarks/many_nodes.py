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
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic, sleep, thread_time
from unittest.mock import patch

from benchmarks.control_plane import GPUS, TASKS, crowd, percentile, resident_mib
from benchmarks.many_agents import AgentUsage, name, play_agents
from benchmarks.measure import until
from dovetail.control.loop import run as run_loop
from dovetail.core.cluster import DOWN
from dovetail.core.policy import Policy
from dovetail.live.client.client import Client
from dovetail.live.controller.world import LiveWorld
from dovetail.live.edges.protocols import Incoming
from dovetail.live.edges.wall_clock import ThreadInbox
from dovetail.live.engines.joined_engine import JoinedEngine, JoinSettings
from dovetail.live.serving.serve import serve
from dovetail.live.serving.up_request import UpRequest
from dovetail.live.serving.virtual_live import specs_of
from dovetail.study.option_texts import split_policies
from dovetail.wire.agent import AgentReport
from dovetail.wire.spec import JobSpec
from dovetail.wire.submission import Submission

SPAWN = multiprocessing.get_context("spawn")
LONG_S = 50_000.0
SUBMITS = 200


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
