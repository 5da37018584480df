"""A cluster whose network, machines and controller fail at random, and the jobs that bear witness.

Each job writes a line for whatever it does, in one file: the order of the lines is the order of
the events, whoever wrote them. `two_copies` reads there whether two copies of the job lived.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from time import monotonic, sleep

from cut_lines import DOWN, UP, CutLine
from dovetail.live.join.word import JoinWord
from dovetail.wire.spec import JobSpec
from joined_cluster import JoinedCluster, pids_in

LEASE_S = 15.0
TROUBLES = 2
"""So many things are wrong at a time, at most: some work is done meanwhile."""
CONTROLLER = "controller"
PLAIN = """
import os, sys, time
place, whole = sys.argv[1], int(sys.argv[2])
log = os.open(place + ".log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
done = int(open(place + ".done").read()) if os.path.exists(place + ".done") else 0
while done < whole:
    os.write(log, b"%d\\n" % os.getpid())
    time.sleep(0.1)
    done += 1
    with open(f"{place}.{os.getpid()}", "w") as file:
        file.write(str(done))
    os.replace(file.name, place + ".done")
"""
ELASTIC = """
import os, sys, time
import torch
from torch import nn
from dovetail.train import Job

place, steps, pause_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
torch.manual_seed(0)
torch.set_num_threads(1)
data = (torch.randn(96, 4), torch.randint(0, 2, (96,)))
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
job = Job(model, optimizer, data=data, batch_size=12, steps=steps, checkpoint_s=2.0)
log = os.open(place + ".log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for x, y in job.batches():
    job.backward(nn.functional.cross_entropy(model(x), y))
    job.step()
    weights = sum(p.abs().sum().item() for p in model.parameters())
    row = job._membership.generation, os.getpid(), job.steps_done, weights
    os.write(log, b"%d %d %d %.9f\\n" % row)
    time.sleep(pause_s)
"""


@dataclass(frozen=True)
class Trouble:
    """What goes wrong in one round: `ends` puts it right, at the latest at `until_s`."""

    what: str
    node: str
    until_s: float
    ends: Callable[[], None]


class PartedCluster(JoinedCluster):
    """Nodes behind lines that can be cut, and a controller whose leases are over soon."""

    def __init__(self, root: Path, slots: Mapping[str, int]) -> None:
        super().__init__(root, slots)
        self.dovetail = [sys.executable, str(Path(__file__).with_name("short_leases.py"))]
        self.lines = {name: CutLine(lambda name=name: self._gate(name)) for name in slots}  # type: ignore[misc]
        (root / "plain.py").write_text(PLAIN)
        (root / "elastic.py").write_text(ELASTIC)

    def _gate(self, name: str) -> tuple[str, int]:
        word = JoinWord.read(self.home / "join" / name)
        return word.host, word.port

    def word_of(self, name: str) -> Path:
        """Returns a word that leads to the line of a node."""
        word, path = JoinWord.read(super().word_of(name)), self.root / f"{name}.word"
        replace(word, host="127.0.0.1", port=self.lines[name].port).write(path)
        return path

    def begin(self) -> None:
        """Starts a controller."""
        self.start("--policy", "afs-p:unit-s=20", "--lease", f"{LEASE_S:g}s")

    def submit(self, name: str, kind: str, size: int, most: int = 1) -> int:
        """Submits a job of 1 to `most` workers; `size` are its steps."""
        command = self.command(name, kind, size, 0.05)
        trains = kind == "elastic"
        return self.client.submit(
            JobSpec(
                name,
                command,
                str(self.root),
                trains=trains,
                gpus=most,
                min_gpus=1 if trains else most,
                max_gpus=most,
                duration_s=60.0,
                retries=1000,
                grace_s=2.0,
            )
        )[0]

    def command(self, name: str, kind: str, size: int, pause_s: float) -> tuple[str, ...]:
        """Returns the command of a job."""
        words = (self.root / f"{kind}.py", self.root / name, size, pause_s)
        return (sys.executable, *map(str, words))

    def log(self, name: str) -> list[list[str]]:
        """Returns the whole lines that the workers of a job wrote, in words."""
        path = self.root / f"{name}.log"
        text = path.read_text() if path.exists() else ""
        return [line.split() for line in text.split("\n")[:-1]]

    def two_copies(self, name: str) -> str:
        """Returns where the lines of a job show two copies of it; "" if they do not.

        A plain program writes no more once another start of it has written. Of one that trains a
        worker may still write down the step that it has just made; a second one it cannot make.
        """
        newest, last, late = -1, "", set[str]()
        started: list[str] = []
        for number, words in enumerate(self.log(name), 1):
            if len(words) == 1:
                if words[0] != last and words[0] in started:
                    return f"{name}.log:{number}: process {words[0]} works beside {last}"
                last = words[0]
                started.append(last)
                continue
            generation, process = int(words[0]), words[1]
            if generation >= newest:
                newest = generation
                late.discard(process)
            elif process in late:
                return f"{name}.log:{number}: {process} trains beside generation {newest}"
            else:
                late.add(process)
        return ""

    def close(self) -> None:
        """Ends all that runs."""
        for line in self.lines.values():
            line.close()
        super().close()


class Storm:
    """Troubles drawn from a seed, one a round; each node, and the controller, has one at a time."""

    def __init__(self, cluster: PartedCluster, seed: int) -> None:
        self.cluster = cluster
        self.told: list[str] = []
        self._rng = Random(f"storm {seed}")
        self._troubles: list[Trouble] = []
        self._scripts = [[str(cluster.root / f"{kind}.py")] for kind in ("plain", "elastic")]

    def round(self) -> None:
        """Lets one more thing go wrong, once something is well, and puts right what is over."""
        rng, cluster = self._rng, self.cluster
        while len(self._troubles) >= TROUBLES:
            sleep(0.05)
            self.put_right(monotonic())
        ill = {trouble.node for trouble in self._troubles}
        node = rng.choice([name for name in (*cluster.slots, CONTROLLER) if name not in ill])
        lasts_s = rng.choice((0.1, 0.3, 1.0, 1.0, 3.0, 3.0, 6.0, LEASE_S + 15.0))
        kinds = self._of_controller if node == CONTROLLER else self._of_node
        what, ends = kinds(node, rng.random())
        self.told.append(f"{node}: {what} for {lasts_s:g} s")
        self._troubles.append(Trouble(what, node, monotonic() + lasts_s, ends))
        sleep(rng.uniform(0.2, 2.0))
        self.put_right(monotonic())

    def put_right(self, now: float = float("inf")) -> None:
        """Puts right what is over by some time."""
        for trouble in [t for t in self._troubles if t.until_s <= now]:
            self._troubles.remove(trouble)
            trouble.ends()

    def _of_controller(self, node: str, draw: float) -> tuple[str, Callable[[], None]]:
        cluster = self.cluster
        assert cluster.controller is not None and cluster.controller.poll() is None, cluster.said()
        if draw < 0.7:
            cluster.kill()
            return "killed", cluster.begin
        cluster.controller.send_signal(signal.SIGSTOP)
        return "stopped", lambda: cluster.controller.send_signal(signal.SIGCONT)  # type: ignore[union-attr]

    def _of_node(self, node: str, draw: float) -> tuple[str, Callable[[], None]]:
        cluster, line = self.cluster, self.cluster.lines[node]
        kinds: list[tuple[str, Callable[[], None], Callable[[], None]]] = [
            ("cut off", lambda: line.cut(UP, DOWN), line.mend),
            ("not heard", lambda: line.cut(UP), line.mend),
            ("hears nothing", lambda: line.cut(DOWN), line.mend),
            ("connection reset", line.reset, lambda: None),
            (
                "agent killed",
                lambda: cluster.signal(node, signal.SIGKILL),
                lambda: cluster.join(node),
            ),
            (
                "agent stopped",
                lambda: cluster.signal(node, signal.SIGSTOP),
                lambda: cluster.signal(node, signal.SIGCONT),
            ),
            (
                "machine stopped",
                lambda: cluster.signal_machine(node, signal.SIGSTOP),
                lambda: self._wake(node),
            ),
            ("worker killed", lambda: self._kill_worker(node), lambda: None),
        ]
        what, begin, end = kinds[int(draw * len(kinds))]
        begin()
        return what, end

    def _wake(self, node: str) -> None:
        """Lets a machine go on: its keepers first, which end what the lease does not cover."""
        processes = pids_in(self.cluster.root / node)
        keepers = [p for p in processes if "keeper" in _command(p)]
        for those in (keepers, processes):
            for process in those:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)
            if those is keepers and keepers:
                # Each looks once a second.
                sleep(2.0)

    def _kill_worker(self, node: str) -> None:
        there = pids_in(self.cluster.root / node)
        workers = [p for p in there if _command(p).split("\0")[1:2] in self._scripts]
        if workers:
            with suppress(ProcessLookupError):
                os.kill(workers[int(self._rng.random() * len(workers))], signal.SIGKILL)


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace")
    except OSError:
        return ""
