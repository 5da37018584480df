"""A real Slurm on machines of their own: slurmctld on `head`, one slurmd on each node.

As `slurm_cluster.py`, but each node is a network namespace with an address: its network can be cut,
and it can lose power. There is no accounting, and jobs run as root.
"""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path

from tests import machines
from tests.machines import Machines
from tests.slurm_cluster import Site, SlurmCluster, slurm_conf, which

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "squeue", "sinfo")
HEAD = "head"
CTLD_PORT, SLURMD_PORT = 6817, 6818
"""Each machine has ports of its own, so these are free."""
SETTINGS = ("AccountingStorageType=accounting_storage/none", "SlurmdTimeout=300")


def reason_to_skip() -> str:
    """Returns why no such Slurm can be started here, or nothing."""
    missing = [p for p in PROGRAMS if which(p) is None]
    return f"not installed: {', '.join(missing)}" if missing else machines.reason_to_skip()


class SlurmMachines(SlurmCluster):
    """A running Slurm on machines; a context manager that starts it and ends all of it."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._stack = ExitStack()
        self.machines = Machines((HEAD, *(node.name for node in site.nodes)))

    def enter(self, host: str) -> list[str]:
        """Returns the words before a command that is to run on a machine."""
        return self.machines.enter(host)

    # What a user does.

    def sbatch(self, script: str, *options: str, output: Path) -> int:
        """Returns the number of a job that runs a script of bash; both its outputs go to a file."""
        where = [f"--output={output}", f"--chdir={output.parent}", "--parsable"]
        text = self.run("sbatch", *where, *options, stdin=f"#!/bin/bash\n{script}\n")
        return int(text.split(";")[0])

    def srun(self, job: int, node: str, *command: str) -> str:
        """Returns the output of a step of a running job on one of its nodes."""
        step = ["srun", f"--jobid={job}", "--overlap", "-w", node, "-N1", "-n1"]
        return self.run(*step, *command)

    def scancel(self, job: int, *options: str) -> None:
        """Cancels a job, or signals it."""
        self.run("scancel", *options, str(job))

    def state(self, job: int) -> str:
        """Returns the state of a job, "" once Slurm has forgotten it."""
        listed = self.run("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T", allowed=(0, 1))
        return listed.strip()

    def wait_for_state(self, job: int, *states: str, seconds: float = 120.0) -> None:
        """Returns when a job is in one of some states. Raises TimeoutError."""
        what = f"job {job} is {' or '.join(states)}"
        self.wait_until(lambda: self.state(job) in states, what, seconds)

    # What befalls a node.

    def power_off(self, node: str) -> None:
        """Ends a node's slurmd and all that it started, at once."""
        (daemon,) = [d for d in self._daemons if self._is_slurmd(d, node)]
        daemon.kill()
        daemon.wait()
        self._daemons.remove(daemon)

    def power_on(self, node: str) -> None:
        """Starts a node again that lost power."""
        self._daemon(node, "slurmd", "-D")

    @staticmethod
    def _is_slurmd(daemon: subprocess.Popen[bytes], node: str) -> bool:
        words = [str(word) for word in daemon.args]  # type: ignore[union-attr]
        return "slurmd" in words and any(f"hostname {node};" in word for word in words)

    # How it starts.

    def _start(self) -> None:
        self._stack.enter_context(self.machines)
        for name in ("state", *(f"spool.{n.name}" for n in self.site.nodes)):
            (self.path / name).mkdir(exist_ok=True)
        at = {name: self.machines.address(name) for name in self.machines.names}
        ports = [CTLD_PORT, 0, *(SLURMD_PORT for _ in self.site.nodes)]
        conf = slurm_conf(self.site, self.path, ports=ports, at=at)
        self.write_configuration(conf + "\n".join([*SETTINGS, ""]))
        self._start_munge()
        self._daemon(HEAD, "slurmctld", "-D", "-i")
        for node in self.site.nodes:
            self._daemon(node.name, "slurmd", "-D")
        self.wait_until(self._all_idle, "every node is idle")

    def _end(self) -> None:
        super()._end()
        self._stack.close()
