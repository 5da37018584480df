"""Machines that are reached by ssh: an sshd of the test's own on loopback addresses."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from patience import until

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
DOVETAIL = Path(sys.executable).with_name("dovetail")
CONFIG = """
Port {port}
{addresses}
HostKey {root}/host_key
AuthorizedKeysFile {root}/user_key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PidFile none
LogLevel ERROR
"""
CLIENT = """
Host *
  IdentityFile {root}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {root}/known_hosts
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
"""


class SshMachines:
    """An sshd on some addresses; `client` is a folder whose `ssh` has the keys for it."""

    def __init__(self, root: Path, addresses: Sequence[str]) -> None:
        if SSHD is None or shutil.which("ssh-keygen") is None:
            pytest.skip("no sshd is installed (Debian: openssh-server)")
        self.root, self.port = root, _free_port(addresses[0])
        self.client = root / "bin"
        self.client.mkdir(parents=True)
        for name in ("host_key", "user_key"):
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / name)]
            subprocess.run(key, check=True)
        listens = "\n".join(f"ListenAddress {address}" for address in addresses)
        config = CONFIG.format(port=self.port, addresses=listens, root=root)
        (root / "sshd_config").write_text(config)
        (root / "ssh_config").write_text(CLIENT.format(root=root))
        public = (root / "host_key.pub").read_text()
        known = "".join(f"[{address}]:{self.port} {public}" for address in addresses)
        (root / "known_hosts").write_text(known)
        wrapper = self.client / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {root}/ssh_config "$@"\n')
        wrapper.chmod(0o700)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self._log = (root / "sshd.log").open("wb")
        self._process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(root / "sshd_config")], stderr=self._log
        )
        until(lambda: _answers(addresses[-1], self.port), self.said)

    @property
    def path(self) -> str:
        """The search path with this `ssh` first."""
        return f"{self.client}:{os.environ['PATH']}"

    def said(self) -> str:
        """Returns what sshd wrote."""
        return (self.root / "sshd.log").read_text()

    def close(self) -> None:
        """Ends sshd; its connections go on."""
        self._process.kill()
        self._process.wait()
        self._log.close()


def _free_port(address: str) -> int:
    with socket.create_server((address, 0)) as server:
        return int(server.getsockname()[1])


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), 1.0).close()
    except OSError:
        return False
    return True
