"""Slurm's controller with many nodes on this machine: CPU, memory, and when dead nodes are seen.

    python -m benchmarks.slurm_nodes [--nodes 10,100] [--timeout-s 10] [--load-s 20]

For comparison with benchmarks.many_nodes. A slurmctld and a real slurmd for each node, as Debian's
build allows by `slurmd -N`, with a munged of their own; as root, after
`apt-get install --no-install-recommends slurmctld slurmd slurm-client munge`.

The nodes rest; then a tenth of them is killed, and `sinfo` is asked until it calls them down.
`--timeout-s` is SlurmdTimeout, by default 300 in Slurm itself.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.control_plane import resident_mib
from benchmarks.measure import until

NEEDS = ("munged", "slurmctld", "slurmd", "sinfo")
CONFIGURATION = """
ClusterName=benchmark
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout={timeout}
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running slurmctld and its slurmds."""

    folder: Path
    slurmctld: subprocess.Popen[bytes]
    slurmds: list[subprocess.Popen[bytes]]

    @property
    def cpu_s(self) -> float:
        """Returns the CPU seconds of the controller."""
        stat = Path(f"/proc/{self.slurmctld.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def states(self) -> dict[str, str]:
        """Returns the state of each node."""
        said = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%N %T"],
            env=os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")},
            capture_output=True,
            text=True,
            check=False,
        )
        return dict(line.split()[:2] for line in said.stdout.splitlines())


def free_ports(count: int) -> list[int]:
    """Returns different ports that nobody listens on."""
    with ExitStack() as stack:
        probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
        for probe in probes:
            stack.enter_context(probe)
        return [int(probe.getsockname()[1]) for probe in probes]


def start(folder: Path, nodes: int, timeout_s: int, stack: ExitStack) -> Cluster:
    """Starts a cluster, which ends with the stack."""
    host = socket.gethostname().partition(".")[0]
    own, *ports = free_ports(1 + nodes)
    text = CONFIGURATION.format(host=host, port=own, folder=folder, timeout=timeout_s)
    rows = [
        f"NodeName=n{n} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=1000"
        for n, port in enumerate(ports)
    ]
    rows.append(f"PartitionName=all Nodes=n[0-{nodes - 1}] Default=YES State=UP")
    (folder / "slurm.conf").write_text("\n".join((text, *rows, "")))
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    def run(*command: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command, env=os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}, **quiet
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        return process

    files = [f"--{what}-file={folder}/munge.{what}" for what in ("pid", "log", "seed")]
    run("munged", "-F", "-f", f"--key-file={key}", f"--socket={folder}/munge.sock", *files)
    until(lambda: (folder / "munge.sock").exists(), "munged listens")
    slurmctld = run("slurmctld", "-D")
    slurmds = [run("slurmd", "-D", "-N", f"n{n}") for n in range(nodes)]
    return Cluster(folder, slurmctld, slurmds)


def measure(folder: Path, nodes: int, given: argparse.Namespace) -> None:
    """Prints a row for one number of nodes."""
    with ExitStack() as stack:
        cluster = start(folder, nodes, given.timeout_s, stack)
        until(lambda: list(cluster.states().values()).count("idle") == nodes, "all are idle")
        before_s, began_s = cluster.cpu_s, time.monotonic()
        time.sleep(given.load_s)
        busy_ms = 1e3 * (cluster.cpu_s - before_s) / (time.monotonic() - began_s)
        held_mib = resident_mib(cluster.slurmctld.pid)
        dead = {f"n{n}" for n in range(max(1, nodes // 10))}
        for slurmd in cluster.slurmds[: len(dead)]:
            slurmd.kill()
        seen_s = until(
            lambda: all(s.startswith("down") for n, s in cluster.states().items() if n in dead),
            "dead nodes are seen",
        )
        load = os.getloadavg()[0]
        print(
            f"| {nodes} | {busy_ms:.1f} | {held_mib:.0f} | {seen_s:.1f} | {load:.1f} |", flush=True
        )


def main() -> None:
    """Measures each number of nodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="10,100")
    parser.add_argument("--timeout-s", type=int, default=10)
    parser.add_argument("--load-s", type=float, default=20.0)
    given = parser.parse_args()
    missing = [name for name in NEEDS if shutil.which(name) is None]
    if missing or os.getuid():
        print(f"left out: it needs root, and {', '.join(missing) or 'all of Slurm is here'}")
        return
    print("| nodes | at rest, CPU ms/s | MiB | dead nodes seen, s | load |")
    print("| --- | --- | --- | --- | --- |")
    for nodes in map(int, given.nodes.split(",")):
        folder = Path(tempfile.mkdtemp(prefix="dvs-"))
        try:
            measure(folder, nodes, given)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
