"""A podman that runs here, with its own storage, and a root file system built on the spot.

The root file system has no file of its own: its `bin` and `lib` are links into `usr`, which jobs
mount from this machine.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from accounts import as_user
from dovetail.live.access.user_entry import UserEntry
from dovetail.wire.spec import Mount
from patience import is_there, until

MOUNTS = tuple(
    Mount(path, path, read_only=True)
    for path in dict.fromkeys(("/usr", os.path.realpath(sys.base_prefix)))
    if path == "/usr" or not path.startswith("/usr/")
)
"""What programs of the root file system need of this machine: its tools, and our Python."""
CONF = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
"""
RUN_WITHIN_S = 120.0

HYBRID = Path("/sys/fs/cgroup/unified/cgroup.controllers")
"""crun refuses a machine with control groups of both versions, if the second has controllers."""
WRAPPER = """#!/bin/sh
exec unshare --mount --propagation slave sh -c \
    'umount /sys/fs/cgroup/unified; exec crun "$@"' crun "$@"
"""


def podman_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a root file system that podman runs, with podman set up by the environment.

    Skips the test where there is no podman, or where it cannot run anything.
    """
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    _configure(folder, monkeypatch)
    rootfs = _rootfs(folder / "rootfs")
    command = ["podman", "run", "--rm", "--cgroups=disabled", "--network=host"]
    command += ["--volume=/usr:/usr:ro", "--rootfs", str(rootfs), "true"]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=RUN_WITHIN_S)
    if tried.returncode:
        pytest.skip(f"podman cannot run containers here: {tried.stderr.strip()[-300:]}")
    return rootfs


@contextmanager
def podman_for(user: UserEntry, folder: Path) -> Iterator[Path]:
    """Gives a root file system of a user's, whose podman runs from a home directory of theirs.

    Skips the test where podman is missing, or cannot run anything as a user.
    """
    if shutil.which("podman") is None or shutil.which("newuidmap") is None:
        pytest.skip("podman or newuidmap is not installed")
    home, rootfs = folder / "home", _rootfs(folder / "rootfs")
    conf = home / ".config" / "containers" / "containers.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text(CONF)
    if HYBRID.exists() and HYBRID.read_text().strip():
        wrapper = home / "crun"
        wrapper.write_text(WRAPPER.replace("umount", "mount -t tmpfs none"))
        wrapper.chmod(0o755)
        with conf.open("a") as file:
            file.write(f'runtime = "crun"\n[engine.runtimes]\ncrun = ["{wrapper}"]\n')
    for path in (home, *home.rglob("*"), rootfs, *rootfs.rglob("*")):
        os.chown(path, user.uid, user.gid, follow_symlinks=False)
    subprocess.run(["usermod", "--home", str(home), user.name], check=True)
    # systemd makes it on machines that boot; podman wants it for the node's shared memory.
    queues = Path("/dev/mqueue")
    is_new = not queues.exists()
    queues.mkdir(exist_ok=True)
    try:
        _try_as(replace(user, home=str(home)), rootfs)
        yield rootfs
    finally:
        # The process in whose namespace all containers of the user are: an account that is used
        # cannot be removed.
        until(lambda: not _killed(user.uid))
        shutil.rmtree(f"/tmp/podman-run-{user.uid}", ignore_errors=True)
        if is_new:
            queues.rmdir()


def _killed(uid: int) -> list[int]:
    """Kills the processes of a user, and returns those that were there."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == uid and is_there(int(entry.name)):
                os.kill(int(entry.name), signal.SIGKILL)
                found.append(int(entry.name))
    return found


def _try_as(user: UserEntry, rootfs: Path) -> None:
    command = ["podman", "run", "--rm", "--cgroups=disabled", "--network=host", "--userns=keep-id"]
    command += ["--volume=/usr:/usr:ro", "--rootfs", str(rootfs), "true"]
    env = {"PATH": os.environ["PATH"], "HOME": user.home}

    def run() -> str:
        done = subprocess.run(command, env=env, capture_output=True, text=True, cwd="/")
        return "" if done.returncode == 0 else done.stderr.strip()[-300:] or "failed"

    if why := as_user(user, run):
        pytest.skip(f"podman cannot run containers of users here: {why}")


def containers() -> list[str]:
    """Returns the names of the containers that podman knows, running or not."""
    command = ["podman", "ps", "--all", "--format={{.Names}}"]
    listed = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=RUN_WITHIN_S
    )
    return listed.stdout.split()


def _configure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, conf = folder / "storage.conf", folder / "containers.conf"
    storage.write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    )
    # Inside a container podman may not raise the limits of processes, which it does by default.
    conf.write_text(f'{CONF}tmp_dir = "{folder}/tmp"\n')
    if HYBRID.exists() and HYBRID.read_text().strip() and os.geteuid() == 0:
        wrapper = folder / "crun"
        wrapper.write_text(WRAPPER)
        wrapper.chmod(0o755)
        with conf.open("a") as file:
            file.write(f'runtime = "crun"\n[engine.runtimes]\ncrun = ["{wrapper}"]\n')
    monkeypatch.setenv("CONTAINERS_CONF", str(conf))
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(storage))


def _rootfs(folder: Path) -> Path:
    for name in ("usr", "proc", "sys", "dev", "tmp", "etc", "run", "root"):
        (folder / name).mkdir(parents=True)
    (folder / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    for name in ("bin", "sbin", "lib", "lib64"):
        (folder / name).symlink_to(f"usr/{name}")
    return folder
