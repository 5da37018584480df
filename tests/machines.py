"""Machines for tests: network namespaces with addresses of their own, joined by a bridge.

They share one kernel, one file system and the host's processes. Each is held by a process, and all
of it is gone when that ends, also when the test is killed: nothing is left in `/run/netns`. (`ip
netns exec` would hide the control groups, without which slurmd does not start.)
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from types import TracebackType

from patience import until

PROGRAMS = ("ip", "tc", "nsenter", "setpriv", "unshare")
SBIN = "/usr/sbin:/sbin"
SUBNET = "10.66.0"
BRIDGE = "bridge"


def which(program: str) -> str | None:
    """Returns the path of a program, also of an administrator's."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SBIN}")


def reason_to_skip() -> str:
    """Returns why no machines can be made here, or nothing."""
    missing = [p for p in PROGRAMS if which(p) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with Machines(("probe",)):
            return ""
    except (OSError, subprocess.CalledProcessError):
        return "network namespaces cannot be made here"


class Machines:
    """Named machines on one network; a context manager that makes them and takes them away."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._holders: dict[str, subprocess.Popen[bytes]] = {}

    def address(self, name: str) -> str:
        """Returns the address of a machine."""
        return f"{SUBNET}.{self.names.index(name) + 1}"

    def enter(self, name: str) -> list[str]:
        """Returns the words before a command that is to run on a machine."""
        namespace = f"/proc/{self._holders[name].pid}/ns"
        return ["nsenter", f"--net={namespace}/net", f"--uts={namespace}/uts"]

    def run(self, name: str, *command: str) -> str:
        """Returns the output of a command on a machine. Raises CalledProcessError."""
        words = [*self.enter(name), *command]
        path = f"{os.environ.get('PATH', '')}:{SBIN}"
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(
            words, check=True, capture_output=True, text=True, env=environment, timeout=60
        )
        return done.stdout

    def cut(self, name: str) -> None:
        """Takes a machine off the network: what it sends is lost, and so is what is sent to it."""
        self.run(BRIDGE, "ip", "link", "set", f"to-{name}", "down")

    def heal(self, name: str) -> None:
        """Puts a machine back on the network."""
        self.run(BRIDGE, "ip", "link", "set", f"to-{name}", "up")

    def slow_down(self, name: str, rate: str) -> None:
        """Limits what a machine sends, as in `20mbit`."""
        words = ("root", "tbf", "rate", rate, "burst", "64kb", "latency", "50ms")
        self.run(name, "tc", "qdisc", "replace", "dev", "eth0", *words)

    def __enter__(self) -> Machines:
        try:
            for name in (BRIDGE, *self.names):
                self._hold(name)
            self.run(BRIDGE, "ip", "link", "add", "br0", "type", "bridge")
            self.run(BRIDGE, "ip", "link", "set", "br0", "up")
            for name in self.names:
                self._connect(name)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _hold(self, name: str) -> None:
        """Starts the process that has the namespaces of a machine."""
        words = ["unshare", "--net", "--uts", "sh", "-c", f"hostname {name}; exec sleep infinity"]
        holder = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *words])
        self._holders[name] = holder

        def named() -> bool:
            assert holder.poll() is None, "network namespaces cannot be made"
            enter = ["nsenter", f"--uts=/proc/{holder.pid}/ns/uts", "hostname"]
            found = subprocess.run(enter, capture_output=True, text=True, check=False)
            return found.stdout.strip() == name

        until(named, lambda: f"machine {name} did not come up")

    def _connect(self, name: str) -> None:
        theirs = str(self._holders[name].pid)
        peer = ("peer", "name", "eth0", "netns", theirs)
        self.run(BRIDGE, "ip", "link", "add", f"to-{name}", "type", "veth", *peer)
        self.run(BRIDGE, "ip", "link", "set", f"to-{name}", "master", "br0", "up")
        self.run(name, "ip", "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
        for link in ("eth0", "lo"):
            self.run(name, "ip", "link", "set", link, "up")

    def _end(self) -> None:
        for holder in self._holders.values():
            holder.kill()
            holder.wait()
        self._holders.clear()
