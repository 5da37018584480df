"""A controller and agents that join it over TLS, all real processes on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from dovetail.core.errors import DovetailError
from dovetail.live.client.client import Client
from dovetail.wire.spec import JobSpec
from patience import PATIENCE_S, is_there, until

SCRIPT = """
import os, sys, time
import torch
from torch import nn
from dovetail.train import Job

place, steps, pace_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
torch.manual_seed(0)
data = (torch.randn(96, 4), torch.randint(0, 2, (96,)))
model = nn.Linear(4, 2)
job = Job(model, torch.optim.SGD(model.parameters(), 0.1), data=data, batch_size=12, epochs=9999)
for x, y in job.batches():
    loss = nn.functional.cross_entropy(model(x), y)
    job.backward(loss)
    job.step()
    with open(f"{place}.curve", "a") as file:
        file.write(f"{job.steps_done} {job.loss!r}\\n")
    with open(f"{place}.steps", "a") as file:
        file.write(f"{job.steps_done} {12 // len(x)} {os.getpid()} 0\\n")
    if job.steps_done >= steps or os.path.exists(f"{place}.go"):
        break
    time.sleep(pace_s * len(x))  # so that more workers are faster
if job.first:
    with open(f"{place}.loss", "w") as file:
        file.write(f"{job.steps_done} {sum(p.sum().item() for p in model.parameters())}")
"""


class JoinedCluster:
    """A cluster of nodes that are processes of this machine; `slots` are those of each name, and
    `hosts` addresses, where they have one.
    """

    def __init__(
        self, root: Path, slots: Mapping[str, int], hosts: Mapping[str, str] | None = None
    ) -> None:
        self.hosts = dict(hosts or {})
        self.environment = dict(os.environ)
        self.root, self.home, self.slots = root, root / "home", dict(slots)
        self.file = root / "nodes.toml"
        self.file.write_text("".join(f'[[node]]\nname = "{name}"\n' for name in slots))
        self.engine = f"nodes:{self.file}"
        self.dovetail = [sys.executable, "-m", "dovetail"]
        self.client = Client(self.home, patience_s=PATIENCE_S)
        self.controller: subprocess.Popen[bytes] | None = None
        self.agents: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *words: str) -> None:
        """Starts a controller; returns while it waits for nodes."""
        command = [*self.dovetail, "up", "--foreground", "--home", str(self.home)]
        engine = ["--engine", self.engine, "--gate", "127.0.0.1"]
        with (self.root / "said").open("ab") as said:
            self.controller = subprocess.Popen(
                [*command, *engine, *words], stdout=said, stderr=said, env=self.environment
            )

    def word_of(self, name: str) -> Path:
        """Returns the file of a node's join word."""
        return self.home / "join" / name

    def join(
        self, name: str, word: Path | None = None, *prefix: str, options: Sequence[str] = ()
    ) -> None:
        """Starts the agent of a node, once its join word is there."""
        given = self.home / "join" / name
        self.until((word or given).exists, f"there is a word for {name}")
        command = [*prefix, *self.dovetail, "agent", "--join", str(word or self.word_of(name))]
        words = ["--folder", str(self.root / name), "--slots", str(self.slots[name]), *options]
        words += ["--host", self.hosts[name]] if name in self.hosts else []
        with (self.root / f"{name}.log").open("ab") as log:
            self.agents[name] = subprocess.Popen(
                [*command, *words], stdout=log, stderr=log, env=self.environment
            )

    def answers(self) -> bool:
        """Returns whether the controller that was started last answers."""
        assert self.controller is not None and self.controller.poll() is None, self.said()
        with suppress(DovetailError):
            return self.client.ping().pid == self.controller.pid
        return False

    def until(self, true: Callable[[], object], what: str) -> None:
        """Waits until something is true."""
        until(true, lambda: f"never: {what}\n{self.said()}")

    def said(self) -> str:
        """Returns what controllers and agents wrote."""
        files = [self.root / "said", *(self.root / f"{name}.log" for name in self.slots)]
        return "\n".join(f"== {f.name}\n{f.read_text()}" for f in files if f.exists())

    def states(self) -> dict[str, str]:
        """Returns the state of each node."""
        return {row.name: row.state for row in self.client.nodes().nodes}

    def train(self, name: str, gpus: str, steps: int = 1 << 30) -> int:
        """Submits an elastic job that trains until it may end."""
        least, _, most = gpus.partition("..")
        (self.root / "train.py").write_text(SCRIPT)
        command = (
            sys.executable,
            str(self.root / "train.py"),
            str(self.root / name),
            str(steps),
            "0.02",
        )
        spec = JobSpec(
            name,
            command,
            str(self.root),
            trains=True,
            gpus=int(least),
            min_gpus=int(least),
            max_gpus=int(most or least),
            duration_s=3600.0,
        )
        return self.client.submit(spec)[0]

    def steps(self, name: str) -> list[tuple[int, int, int, int]]:
        """Returns (steps done, workers, process, rank) of each line that the workers wrote."""
        path = self.root / f"{name}.steps"
        lines = path.read_text().splitlines() if path.exists() else []
        rows = [tuple(map(int, line.split())) for line in lines]
        return [row for row in rows if len(row) == 4]  # type: ignore[misc]

    def curve(self, name: str) -> dict[int, float]:
        """Returns the loss of each step, whichever workers did it; all agree on it."""
        losses: dict[int, float] = {}
        for line in (self.root / f"{name}.curve").read_text().splitlines():
            step, loss = line.split()
            assert losses.setdefault(int(step), float(loss)) == pytest.approx(float(loss), rel=1e-5)
        return losses

    def undisturbed(self, steps: int) -> dict[int, float]:
        """Returns the loss of each step of the same script alone."""
        place = self.root / "alone"
        script = [sys.executable, str(self.root / "train.py"), str(place), str(steps), "0"]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("DOVETAIL_")}
        subprocess.run(script, env=clean, check=True, cwd=self.root)
        return self.curve("alone")

    def trains_on(self, name: str, workers: int, what: str) -> set[int]:
        """Waits for new steps with so many workers; returns their processes."""
        before = len(self.steps(name))

        found: set[int] = set()

        def all_train() -> bool:
            # The newest only: a process that was stopped may still write of its last step.
            rows = [row for row in self.steps(name)[before:] if row[1] == workers]
            found.clear()
            found.update(row[2] for row in rows[-2 * workers :])
            return len(found) == workers

        self.until(all_train, what)
        return found

    def go_on(self, name: str) -> None:
        """Lets a job end."""
        (self.root / f"{name}.go").touch()

    def kill(self) -> None:
        """Kills the controller."""
        assert self.controller is not None
        self.controller.kill()
        self.controller.wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Sends a signal to the agent of a node."""
        self.agents[name].send_signal(number)
        if number == signal.SIGKILL:
            self.agents[name].wait()

    def signal_machine(self, name: str, number: signal.Signals) -> None:
        """Sends a signal to all processes of a node: stopped, it is a machine that hangs."""
        for process in pids_in(self.root / name):
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def close(self) -> None:
        """Ends all that runs."""
        keepers = pids_in(self.root)
        if self.controller is not None and self.controller.poll() is None:
            self.kill()
        for agent in self.agents.values():
            agent.kill()
            agent.wait()
        for process in keepers:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        until(lambda: not any(map(is_there, keepers)), lambda: "workers outlive the test")


def pids_in(folder: Path) -> list[int]:
    """Returns the processes of a node's folder: the agent, keepers, and all below them.

    A worker itself need not name the folder anywhere: it is known by its keeper.
    """
    named, parents = [], dict[int, list[int]]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                environment = (entry / "environ").read_bytes()
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
                if os.fsencode(folder) in command + environment:
                    named.append(int(entry.name))
    found = dict.fromkeys(named)
    while named:
        named = [c for process in named for c in parents.get(process, ()) if c not in found]
        found.update(dict.fromkeys(named))
    return list(found)
