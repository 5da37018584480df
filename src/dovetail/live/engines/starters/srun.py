"""`slurm`: the nodes of the Slurm allocation that the controller runs in, an agent on each.

Each agent is the one task of a step (`srun --overlap`) and lives as long as the allocation. Its
join word comes through the standard input of the step, so nodes share no file; its folder is on
the node's own disk. Nodes have the names that Slurm gives them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from dovetail.core.errors import DovetailError, InputError
from dovetail.core.host_list import host_names
from dovetail.files.whole_file import PRIVATE, write_whole
from dovetail.live.join.word import check_name

COMMAND_S = 20.0
"""How long a command of Slurm may take: slurmctld may be away for a while."""
STARTING_S = 60.0
"""A step that began so lately is not started again: its agent may be importing."""
BACK_WITHIN_S = 10.0
CLOSE_S = 10.0
OFF = "POWERED_DOWN"
"""The state of a node that has no power. DOWN is not: a node that is only cut off is DOWN."""
REBOOTED = "Node unexpectedly rebooted"
"""The reason with which slurmctld sets a node down that says that it was started anew."""
UNHEARD = frozenset(("DOWN", "UNKNOWN", "NOT_RESPONDING", "NO_RESPOND", "COMPLETING"))
"""States of a node on which something may live although its allocation is over."""
ENDED = frozenset(
    (
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL",
        "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT",
    )
)  # fmt: skip
"""States of an allocation of which nothing runs any more: COMPLETING is none of them."""
UNKNOWN = "Invalid job id"
"""What squeue says of an allocation that ended so long ago that Slurm has forgotten it."""
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")
_FIELD = re.compile(r"(?:^| )(NodeName|State|NodeAddr|Reason)=(.*?)(?= [A-Za-z]+=|$)")


@dataclass(frozen=True, slots=True)
class Allocation:
    """The allocation that this process runs in: its number and its nodes."""

    job: str
    nodes: tuple[str, ...]

    @staticmethod
    def of(environ: Mapping[str, str]) -> Allocation:
        """Returns the allocation that Slurm's variables describe. Raises InputError."""
        job = environ.get("SLURM_JOB_ID", "")
        listed = environ.get("SLURM_JOB_NODELIST", "")
        if not (job and listed):
            raise InputError(
                "--engine slurm",
                "this is no Slurm allocation: SLURM_JOB_ID and SLURM_JOB_NODELIST are not set",
                "start it from a batch script (sbatch), or in the shell of salloc",
            )
        if not job.isdecimal():
            raise InputError("--engine slurm", f"SLURM_JOB_ID is '{job[:40]}', which is no number")
        if shutil.which("srun", path=environ.get("PATH")) is None:
            raise InputError("--engine slurm", "srun is not on the PATH", "load Slurm's module")
        names = host_names(listed)
        return Allocation(job, tuple(check_name(name, "SLURM_JOB_NODELIST") for name in names))


@dataclass(frozen=True, slots=True)
class StoredAllocations:
    """The allocations that a cluster has had and that may not have ended, and all their nodes."""

    jobs: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()

    @staticmethod
    def read(path: Path) -> StoredAllocations:
        """Returns what a file has, nothing if there is none."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            row = json.loads(path.read_text(encoding="utf-8"))
            return StoredAllocations(tuple(map(str, row["jobs"])), tuple(map(str, row["nodes"])))
        return StoredAllocations()

    def write(self, path: Path) -> None:
        """Writes the file."""
        write_whole(path, json.dumps({"jobs": self.jobs, "nodes": self.nodes}), mode=PRIVATE)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What `scontrol show node` says of a node."""

    name: str
    address: str
    states: frozenset[str]
    reason: str

    @property
    def is_gone(self) -> bool:
        """True if nothing that ran there can live: it has no power, or was started anew."""
        is_rebooted = "DOWN" in self.states and self.reason.startswith(REBOOTED)
        return OFF in self.states or is_rebooted

    @property
    def is_heard(self) -> bool:
        """True if slurmd answers there: it has ended all that was of allocations that are over."""
        return not self.states & UNHEARD


def node_records(text: str) -> list[NodeRecord]:
    """Returns the nodes in the output of `scontrol show node --oneliner`."""
    found = []
    for line in text.splitlines():
        # The first of each name: a reason, which is the last one, may have any words.
        fields = {name.lower(): text for name, text in reversed(_FIELD.findall(line))}
        if "nodename" in fields:
            parts = fields.get("state", "").split("+")
            states = {part.rstrip("*~#!%$@^-") for part in parts}
            states |= {"NOT_RESPONDING" for part in parts if "*" in part}
            found.append(
                NodeRecord(
                    fields["nodename"],
                    fields.get("nodeaddr", ""),
                    frozenset(states),
                    fields.get("reason", ""),
                )
            )
    return found


class SrunStarter:
    """Starts an agent on each node of the allocation by a step, and again when the step ends.

    `slots` are CPU slots of each node in place of its GPUs, 0 for none. Raises InputError outside
    of an allocation, and while the last allocation of the same cluster still runs.
    """

    owns_agents = True
    starts_at_once = 1
    lists_all = True

    def __init__(self, home: Path, slots: int = 0, environ: Mapping[str, str] = os.environ) -> None:
        self._allocation = Allocation.of(environ)
        self._home, self._slots = home, slots
        self._environment = {
            name: value
            for name, value in environ.items()
            if name in KEPT or not name.startswith(("SLURM_", "SRUN_", "SBATCH_", "SALLOC_"))
        }
        self._steps: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        self._ended: list[subprocess.Popen[bytes]] = []
        self._file = home / "nodes" / "allocation.json"
        stored = StoredAllocations.read(self._file)
        self._former_jobs = [job for job in stored.jobs if job != self._allocation.job]
        self._all_nodes = tuple(dict.fromkeys((*stored.nodes, *self._allocation.nodes)))
        # A controller before this one has started agents here. They call again within seconds.
        self._is_taken_over = self._allocation.job in stored.jobs
        self._began_s = monotonic()
        self._is_written = False
        self._check_former()

    @property
    def gate_host(self) -> str:
        """Returns the address of this machine by which the nodes reach it; "" if not known."""
        ours = self._allocation.nodes
        own = [_address_towards(n.address) for n in self._show_nodes() if n.name in ours]
        # A machine may know its own name by an address of loopback.
        return next((a for a in own if a and not a.startswith("127.")), "")

    def nodes(self) -> Sequence[str]:
        """Returns the names of the nodes of the allocation."""
        return self._allocation.nodes

    def start(self, name: str, word: Path) -> None:
        """Starts a step with the agent of a node. Raises DovetailError."""
        self._note_allocation()
        if self._is_taken_over and monotonic() - self._began_s < BACK_WITHIN_S:
            return
        known = self._steps.get(name)
        if known is not None:
            step, since_s = known
            if step.poll() is None and monotonic() - since_s < STARTING_S:
                return
            # A step that hangs on a node that cannot be reached ends by itself, at some time.
            self._ended.append(step)
        self._ended = [step for step in self._ended if step.poll() is None]
        try:
            with word.open("rb") as given, self._log(name).open("ab") as out:
                step = subprocess.Popen(
                    self.command(name),
                    env=self._environment,
                    stdin=given,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
        except OSError as error:
            raise DovetailError(f"srun: {error.strerror or error}") from None
        self._steps[name] = step, monotonic()

    def _log(self, name: str) -> Path:
        return self._home / "nodes" / f"{name}.log"

    def command(self, name: str) -> list[str]:
        """Returns the command that runs the agent of a node as a step of its own."""
        step = ["srun", f"--jobid={self._allocation.job}", "--overlap", f"--nodelist={name}"]
        step += ["--nodes=1", "--ntasks=1", "--kill-on-bad-exit=0", "--wait=0", "--no-kill"]
        # A task may be bound to one core and its memory: its workers need all that is there.
        step += ["--cpu-bind=none", "--mem=0", f"--job-name=dovetail-{name}"]
        agent = [sys.executable, "-m", "dovetail", "agent", "--join", "-", "--transient"]
        agent += ["--folder", str(self.folder(name))]
        return [*step, *agent, *(["--slots", str(self._slots)] if self._slots else [])]

    def folder(self, name: str) -> Path:
        """Returns the folder of an agent, on the node's own disk."""
        # One for each allocation: leftovers of an earlier one are of other processes.
        return Path(f"/tmp/dovetail-{os.getuid()}-{self._allocation.job}-{name}")

    def gone(self) -> Sequence[str]:
        """Returns the nodes without power, those that were started anew, and those of earlier
        allocations that are over, if Slurm hears them.
        """
        self._former_jobs = [j for j in self._former_jobs if self._state(j) not in ENDED]
        are_over = not self._former_jobs
        ours = self._allocation.nodes
        return [
            node.name
            for node in self._show_nodes()
            if node.is_gone or (are_over and node.name not in ours and node.is_heard)
        ]

    def close(self, *, end: bool) -> None:
        """Waits for the steps to end, if the agents have been dismissed."""
        if not end:
            return
        give_up_s = monotonic() + CLOSE_S
        for step, _ in self._steps.values():
            with suppress(subprocess.TimeoutExpired):
                step.wait(max(0.0, give_up_s - monotonic()))

    def _check_former(self) -> None:
        """Raises InputError if this cluster runs in another allocation, DovetailError if unknown.

        One that is COMPLETING holds nodes on which something may live still.
        """
        for job in self._former_jobs:
            state = self._state(job)
            if not state:
                raise DovetailError(f"squeue does not say whether job {job}, the last one, runs")
            if state != "COMPLETING" and state not in ENDED:
                raise InputError(
                    str(self._home),
                    f"this cluster runs in job {job} of Slurm, which is {state}",
                    f"scancel {job}, wait for its end, or choose another --home",
                )

    def _state(self, job: str) -> str:
        """Returns the state of an allocation, "" if Slurm does not answer."""
        done = self._ask("squeue", "-h", "-t", "all", "-j", job, "-o", "%T")
        if done is None:
            return ""
        if done.returncode:
            return "COMPLETED" if UNKNOWN in done.stderr else ""
        return done.stdout.strip() or "COMPLETED"

    def _note_allocation(self) -> None:
        """Writes which allocation has the cluster now: its controller has the lock by now."""
        if not self._is_written:
            jobs = (*self._former_jobs, self._allocation.job)
            StoredAllocations(jobs, self._all_nodes).write(self._file)
            self._is_written = True

    def _show_nodes(self) -> list[NodeRecord]:
        listed = ",".join(self._all_nodes)
        done = self._ask("scontrol", "show", "node", "--oneliner", listed)
        return [] if done is None else node_records(done.stdout)

    def _ask(self, *command: str) -> subprocess.CompletedProcess[str] | None:
        """Returns what a command of Slurm said, None if it did not end in time."""
        try:
            return subprocess.run(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMMAND_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None


def _address_towards(host: str) -> str:
    """Returns the address of this machine on the way to a host, "" if there is none."""
    # No packet is sent: the kernel says from which address one would leave.
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return str(probe.getsockname()[0])
    return ""
