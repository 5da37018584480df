"""A Ray cluster of several raylets on this machine, each with a home directory of its own."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from joined_cluster import JoinedCluster
from patience import until

HEAD = "head"
TRIES = 3
START_S = 120.0
QUICK = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_initial_delay_ms": "2000",
}
"""A raylet that is killed is dead within seconds."""


class RayMachines:
    """Raylets by name, with so many CPUs each; the head has none, and is no node of ours."""

    def __init__(self, root: Path, *, authenticated: bool = True) -> None:
        self.root = root
        self.token = root / "token"
        self.token.write_text(secrets.token_hex(32))
        self.token.chmod(0o600)
        self.authenticated = authenticated
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.start(HEAD, 0)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def environment(self) -> Mapping[str, str]:
        """Returns what makes a process of this user one that knows the token."""
        mode = "token" if self.authenticated else "disabled"
        return {"RAY_AUTH_MODE": mode, "RAY_AUTH_TOKEN_PATH": str(self.token)}

    def start(self, name: str, cpus: int) -> None:
        """Starts a raylet; skips the test if it cannot be started on this machine now."""
        home = self.root / name
        home.mkdir(exist_ok=True)
        own = {"HOME": str(home), "RAY_USAGE_STATS_ENABLED": "0", **QUICK, **self.environment()}
        # A raylet aborts if its helpers do not start within 15 s, as on a busy machine.
        words = ["nice", "-n", "-5"] if os.geteuid() == 0 else []
        words += [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start"]
        words += ["--node-name", name, "--num-cpus", str(cpus), "--num-gpus", "0"]
        words += ["--object-store-memory", "80000000"]
        if name == HEAD:
            words += ["--head", "--port", str(self.port), "--include-dashboard", "false"]
            words += ["--temp-dir", str(self.root / "t")]
        else:
            words += ["--address", self.address]
        said = ""
        for _ in range(TRIES):
            try:
                done = subprocess.run(
                    words,
                    env={**os.environ, **own},
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=START_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                self.end(name)
                said = f"it took more than {START_S:g} s"
                continue
            said = done.stdout + done.stderr
            if done.returncode == 0 and self.raylet(name):
                return
            self.end(name)
        pytest.skip(f"Ray does not start here now: {said[-500:]}")

    def raylet(self, name: str) -> int:
        """Returns the process of a raylet, 0 if there is none."""
        return next(iter(self.processes(name, "raylet")), 0)

    def processes(self, name: str, command: str = "") -> list[int]:
        """Returns the processes of a machine whose short name begins so."""
        mark = os.fsencode(f"HOME={self.root / name}\0")
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or mark not in (entry / "environ").read_bytes():
                    continue
                if (entry / "comm").read_text().startswith(command):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def end(self, name: str) -> None:
        """Kills all processes of a machine."""

        def killed() -> bool:
            processes = self.processes(name)
            for process in processes:
                try:
                    os.kill(process, 9)
                except ProcessLookupError:
                    continue
            return not processes

        until(killed, lambda: f"processes of {name} outlive the test")


class RayCluster(JoinedCluster):
    """A cluster on Ray: `slots` are the CPUs of the nodes."""

    def __init__(self, root: Path, slots: Mapping[str, int]) -> None:
        super().__init__(root, slots)
        self.ray = RayMachines(root)
        self.environment |= self.ray.environment()
        self.engine = f"ray:{self.ray.address}"
        for name, cpus in slots.items():
            self.ray.start(name, cpus)

    def agent(self, name: str) -> int:
        """Returns the process of the agent of a node, 0 if there is none."""
        for process in self.ray.processes(name):
            try:
                words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"agent" in words and b"--daemon" in words:
                return process
        return 0

    def said(self) -> str:
        logs = self.root.glob("n*/.dovetail-agents/*/*/agent.log")
        files = [self.root / "said", self.home / "nodes" / "ray.log", *logs]
        return "\n".join(f"== {file}\n{file.read_text()}" for file in files if file.exists())

    def close(self) -> None:
        if self.controller is not None and self.controller.poll() is None:
            self.kill()
        for name in (*self.slots, HEAD):
            self.ray.end(name)
