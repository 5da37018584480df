"""Ray's nodes on this machine: calls of actors, dead and hung raylets, memory of an idle node.

    python -m benchmarks.ray_nodes [--nodes 3] [--rounds 300] [--bytes 400] [--only calls,deaths]
        [--health tuned|default]

For comparison with benchmarks.transport (a line and its echo), benchmarks.many_nodes (dead nodes)
and the memory of an agent. A head and a raylet for each node, with token authentication, after
`pip install 'dovetail[ray]'`; raylets do not start on a busy machine.

A driver calls an actor on each node with so many bytes, which it echoes, and waits for all, round
by round; CPU time is that of the driver's process. Then a raylet is killed (SIGKILL) and another
stopped (SIGSTOP), and `ray.nodes()` is asked until it calls each dead. With `--health tuned` there
is a health check each second, of which three may fail; the default is Ray's own.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks.control_plane import percentile, resident_mib

HEAD = "head"
TUNED = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_initial_delay_ms": "2000",
}
START_S, DEATH_S = 120.0, 60.0
"""How long a raylet may take to start, and how long the death of one is awaited."""


@dataclass(frozen=True, slots=True)
class RayCluster:
    """A head and raylets, each of which has a home directory of its own."""

    root: Path
    port: int
    settings: dict[str, str]

    def start(self, name: str) -> None:
        """Starts the head, or the raylet of a node. Raises RuntimeError."""
        home = self.root / name
        home.mkdir()
        own = {"HOME": str(home), "RAY_USAGE_STATS_ENABLED": "0", **self.settings}
        words = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start"]
        words += ["--node-name", name, "--num-gpus=0", "--disable-usage-stats"]
        if name == HEAD:
            words += ["--head", f"--port={self.port}", "--num-cpus=0", "--include-dashboard=false"]
        else:
            words += [f"--address=127.0.0.1:{self.port}", "--num-cpus=1"]
        done = subprocess.run(
            words,
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError((done.stdout + done.stderr)[-500:])

    def processes(self, name: str, command: str = "") -> list[int]:
        """Returns the processes of a node whose short name begins so."""
        mark, found = os.fsencode(f"HOME={self.root / name}\0"), []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if not entry.name.isdigit() or mark not in (entry / "environ").read_bytes():
                    continue
                if (entry / "comm").read_text().startswith(command):
                    found.append(int(entry.name))
        return found

    def memory_mib(self, name: str) -> tuple[int, float]:
        """Returns how many processes a node has, and what they hold."""
        processes = self.processes(name)
        return len(processes), sum(resident_mib(process) for process in processes)

    def end(self, name: str) -> None:
        """Kills all processes of a node."""
        while processes := self.processes(name):
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.1)


@contextmanager
def ray_cluster(nodes: int, settings: dict[str, str]) -> Iterator[RayCluster]:
    """Yields a running cluster that this process has a driver of."""
    names = [HEAD, *(f"n{n}" for n in range(nodes))]
    with tempfile.TemporaryDirectory(prefix="dvr-") as folder:
        token = Path(folder) / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        os.environ.update(secret)
        # It reads at once, and once, whether there is authentication.
        import ray

        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = int(probe.getsockname()[1])
        cluster = RayCluster(Path(folder), port, {**settings, **secret})
        try:
            for name in names:
                cluster.start(name)
            ray.init(address=f"127.0.0.1:{port}", log_to_driver=False, logging_level="ERROR")
            yield cluster
        finally:
            ray.shutdown()
            for name in reversed(names):
                cluster.end(name)


def alive() -> dict[str, str]:
    """Returns the identifier of each node that Ray calls alive, by its name."""
    import ray

    return {row["NodeName"]: row["NodeID"] for row in ray.nodes() if row["Alive"]}


def calls(nodes: list[str], rounds: int, line_bytes: int) -> None:
    """Prints what calls of actors cost the driver, and how long a round takes."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    class Echo:
        def echo(self, line: bytes) -> bytes:
            return line

    ids, actors = alive(), []
    for name in nodes:
        there = NodeAffinitySchedulingStrategy(ids[name], soft=False)
        actors.append(ray.remote(Echo).options(num_cpus=0, scheduling_strategy=there).remote())
    line = b"x" * line_bytes
    for count in sorted({1, len(actors)}):
        some = actors[:count]
        ray.get([actor.echo.remote(line) for actor in some])
        took_s, cpu_s = [], time.process_time()
        for _ in range(rounds):
            began = time.perf_counter()
            ray.get([actor.echo.remote(line) for actor in some])
            took_s.append(time.perf_counter() - began)
        cpu_us = 1e6 * (time.process_time() - cpu_s) / (rounds * count)
        p50, p99 = (percentile(took_s, part) for part in (0.5, 0.99))
        print(f"| {count} | Ray actor calls | {cpu_us:.0f} | {p50:.2f} | {p99:.2f} |", flush=True)


def deaths(cluster: RayCluster, names: list[str]) -> None:
    """Prints when a raylet that hangs and one that is killed are seen as dead."""
    print("| what befalls a raylet | dead after, s |\n| --- | --- |")
    for name, what, number in (
        (names[-1], "killed", signal.SIGKILL),
        (names[-2], "stopped", signal.SIGSTOP),
    ):
        (raylet,) = cluster.processes(name, "raylet")
        os.kill(raylet, number)
        began = time.monotonic()
        while name in alive() and time.monotonic() < began + DEATH_S:
            time.sleep(0.1)
        seen_s = time.monotonic() - began
        seen = f"{seen_s:.1f}" if seen_s < DEATH_S else f"not within {DEATH_S:.0f}"
        print(f"| {what} | {seen} |", flush=True)


def main() -> None:
    """Measures what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--bytes", type=int, default=400)
    parser.add_argument("--only", default="calls,deaths")
    parser.add_argument("--health", choices=("tuned", "default"), default="tuned")
    given = parser.parse_args()
    if find_spec("ray") is None:
        print("left out: the package ray is not installed")
        return
    names = [f"n{n}" for n in range(given.nodes)]
    with ray_cluster(given.nodes, TUNED if given.health == "tuned" else {}) as cluster:
        print(f"{given.nodes} nodes, load {os.getloadavg()[0]:.1f}")
        for name in (HEAD, names[0]):
            count, held = cluster.memory_mib(name)
            print(f"{name}: {held:.0f} MiB in {count} processes")
        if "calls" in given.only:
            print("| actors | way | driver CPU, us a call | p50, ms | p99, ms |")
            print("| --- | --- | --- | --- | --- |")
            calls(names, given.rounds, given.bytes)
        if "deaths" in given.only:
            deaths(cluster, names)


if __name__ == "__main__":
    main()
