"""A podman that runs here, with its own storage, and a root file system built on the spot.

The root file system has no file of its own: its `bin` and `lib` are links into `usr`, which jobs
mount from this machine.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.wire.spec import Mount

MOUNTS = tuple(
    Mount(path, path, read_only=True)
    for path in dict.fromkeys(("/usr", os.path.realpath(sys.base_prefix)))
    if path == "/usr" or not path.startswith("/usr/")
)
"""What programs of the root file system need of this machine: its tools, and our Python."""
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
    conf.write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
        f'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\ntmp_dir = "{folder}/tmp"\n'
    )
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
