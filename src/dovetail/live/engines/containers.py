"""Containers of workers: the command lines by which podman and Apptainer run a program.

The runtime is a child of the worker's keeper like any other program: it stays in the control
groups, on the cores and under the mark of its worker, and so does all that it starts. The program
has the network, the shared memory and the user of its node, so that the workers of a job reach each
other and their agent as they do outside; files of the node it sees only as far as they are mounted.
The site sets up its runtime (registries, storage, policies) by that runtime's own configuration.
Where jobs run as their submitters the runtime does too, with the storage of each user.
"""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

from dovetail.core.errors import InputError
from dovetail.live.access.user_entry import UserEntry
from dovetail.live.engines import keeper_container
from dovetail.live.engines.site_scripts import FILE as SITE
from dovetail.live.engines.site_scripts import read_site
from dovetail.live.node.launcher import NEVER_RUNS, NOT_NOW, LaunchError
from dovetail.live.system.private_file import make_private_folder
from dovetail.wire.site import AUTO
from dovetail.wire.spec import Mount
from dovetail.wire.terminal import PIPES, PTY

PODMAN, APPTAINER = "podman", "apptainer"
RUNTIMES = (PODMAN, APPTAINER)
"""In the order in which they are looked for."""
DOOR, DOOR_INSIDE = "door", "/run/dovetail"
"""The folder with a second name of the agent's socket, and where containers see it."""
PASSED_BY_ALL = 0o711
INITS = ("/usr/libexec/podman", "/usr/lib/podman", "/usr/libexec/catatonit")
"""Where podman looks for catatonit, besides PATH."""
READ_BY_RUNTIME = (
    "PATH", "HOME", "TMPDIR", "LD_", "XDG_", "CONTAINER", "_CONTAINERS", "STORAGE_", "REGISTRY_",
    "PODMAN", "BUILDAH", "CONMON", "DBUS_", "LISTEN_", "NOTIFY_", "GO", "SSL_", "HTTP_", "HTTPS_",
    "NO_PROXY", "http_", "https_", "no_proxy", "APPTAINER", "SINGULARITY",
)  # fmt: skip
"""Beginnings of the names of variables that podman itself would obey."""
THREE_TIMES = ("/bin/sh", "-c", 'for _ in 1 2 3; do "$@" && exit; done', "sh")
"""podman fails once if it did not see a container end, and knows that afterwards."""
STREAMS: Mapping[str, tuple[str, ...]] = {
    "": ("--log-driver=passthrough",),
    PIPES: ("--log-driver=none", "--interactive"),
    PTY: ("--log-driver=none", "--interactive", "--tty"),
}
"""What podman does with input and output, by the terminal of a job."""
ARCHIVES = (".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A program as it is to run in a container.

    `folders` are mounted for Dovetail (source and destination), `mounts` for the job, whose word
    goes first. `gpus` are the names of its GPUs, `called` is the name of its container. With a
    `terminal` it has an input, and a pseudo-terminal of its own if that is one.
    """

    image: str
    command: tuple[str, ...]
    workdir: str
    environment: Mapping[str, str]
    mounts: tuple[Mount, ...]
    folders: tuple[tuple[str, str], ...]
    gpus: tuple[str, ...]
    called: str = field(default_factory=lambda: f"dovetail-{secrets.token_hex(6)}")
    terminal: str = ""

    def all_mounts(self) -> list[Mount]:
        """Returns what the container sees of its node, each destination once."""
        by_destination = {self.workdir: Mount(self.workdir, self.workdir)}
        by_destination |= {to: Mount(source, to) for source, to in self.folders}
        by_destination |= {mount.destination: mount for mount in self.mounts}
        return list(by_destination.values())


@dataclass(frozen=True, slots=True)
class ContainerOrder:
    """What a keeper executes: `argv`, with `environment` besides that of the agent.

    `removal` removes what is left of the container once its processes are gone. The file `began`
    gets the number of its first process (empty: the processes are the keeper's own).
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    removal: tuple[str, ...] = ()
    began: str = ""


def podman(
    runtime: str, program: ContainerSpec, began: str, user: UserEntry | None = None
) -> ContainerOrder:
    """Returns the command of podman, whose path is `runtime`; it runs as a `user`, or as we do.

    Without control groups of its own the container stays in those of its worker; only crun can do
    that. Standard output is the worker's file itself (`passthrough`): podman copies nothing but
    what travels between an interactive job and its terminal.
    """
    uid, gid = (os.geteuid(), os.getegid()) if user is None else (user.uid, user.gid)
    passed = {k: v for k, v in program.environment.items() if not k.startswith(READ_BY_RUNTIME)}
    argv = [
        runtime, "run", "--rm", f"--name={program.called}", f"--pidfile={began}",
        "--sig-proxy=false", "--cgroups=disabled", "--network=host", "--ipc=host",
        *STREAMS[program.terminal], "--security-opt=label=disable",
        f"--user={uid}:{gid}",
        f"--workdir={program.workdir}", "--entrypoint=",
    ]  # fmt: skip
    if uid:
        # Files that the program writes belong to the user who runs it, as outside.
        argv += ["--userns=keep-id", "--group-add=keep-groups"]
    if _has_init():
        # The program would be process 1, for which the kernel drops signals without a handler.
        argv += ["--init"]
    # By name where possible: the command line of a process is public, its environment is not.
    argv += [
        f"--env={name}" if name in passed else f"--env={name}={value}"
        for name, value in program.environment.items()
    ]
    argv += [f"--device=nvidia.com/gpu={gpu}" for gpu in program.gpus]
    argv += [f"--mount={_mount(mount)}" for mount in program.all_mounts()]
    argv += [*_podman_image(program.image), *program.command]
    removal = (*THREE_TIMES, runtime, "rm", "--force", "--ignore", "--time=0", program.called)
    return ContainerOrder(tuple(argv), passed, removal, began)


def as_user(order: ContainerOrder, user: UserEntry) -> ContainerOrder:
    """Returns the order of a runtime that runs as a user: its worker has become that already.

    What root's agent and keeper run themselves becomes it first. Raises LaunchError.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise LaunchError("containers of users need setpriv on this node (util-linux)")
    groups = ",".join(map(str, user.groups))
    become = (setpriv, f"--reuid={user.uid}", f"--regid={user.gid}", f"--groups={groups}", "--")
    removal = (*become, *order.removal) if order.removal else ()
    environment = {**order.environment, **home_of(user)}
    return replace(order, removal=removal, environment=environment)


def home_of(user: UserEntry) -> dict[str, str]:
    """Returns the variables by which a runtime finds the configuration and storage of a user.

    Root runs `setpriv` with these alone: others may have the C library load what a user says.
    """
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": path, "HOME": user.home, "USER": user.name, "LOGNAME": user.name}


def apptainer(runtime: str, program: ContainerSpec) -> ContainerOrder:
    """Returns the command of Apptainer, whose path is `runtime`; nothing is left after its end.

    Variables are passed as APPTAINERENV_NAME. GPUs are all visible as devices (`--nv`), so that
    CUDA_VISIBLE_DEVICES alone decides.
    """
    argv = [runtime, "exec", "--cleanenv", "--no-eval", "--writable-tmpfs", "--pwd"]
    argv += [program.workdir, *["--nv"] * bool(program.gpus)]
    for mount in program.all_mounts():
        argv += ["--mount", _mount(mount)]
    argv += [_apptainer_image(program.image), *program.command]
    environment = {f"APPTAINERENV_{name}": value for name, value in program.environment.items()}
    return ContainerOrder(tuple(argv), environment)


def _mount(mount: Mount) -> str:
    """Returns a mount in the form of both runtimes: CSV, so that paths may hold commas."""
    fields = ["type=bind", f"source={mount.source}", f"destination={mount.destination}"]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields + ["ro"] * mount.read_only)
    return text.getvalue()


def _podman_image(image: str) -> list[str]:
    if image.startswith("/"):
        if os.path.isdir(image):
            return ["--rootfs", image]
        if image.endswith(ARCHIVES):
            return [f"docker-archive:{image}"]
        raise LaunchError(f"{image}: podman runs a root file system (a folder) or a .tar of images")
    return [image.removeprefix("docker://").replace("#", "/", 1)]


def _apptainer_image(image: str) -> str:
    if image.startswith("/"):
        return f"docker-archive://{image}" if image.endswith(ARCHIVES) else image
    return image if "://" in image else f"docker://{image.replace('#', '/', 1)}"


def _has_init() -> bool:
    path = os.pathsep.join((*INITS, os.environ.get("PATH", os.defpath)))
    return shutil.which("catatonit", path=path) is not None


def check_choice(choice: str) -> None:
    """Raises InputError if the chosen runtime is not installed on this machine."""
    if choice != AUTO and shutil.which(choice) is None:
        where = f"--container-runtime {choice}"
        raise InputError(where, f"{choice} is not installed here", f"install {choice}")


def open_door(socket: Path) -> Path:
    """Returns a folder with nothing but the socket of the agent, for containers to see.

    The socket itself cannot be mounted: a later agent makes a new one, and the container would keep
    the old. Its own folder holds the secrets of other workers. Raises OSError.
    """
    door = socket.parent / DOOR
    make_private_folder(door)
    link = door / socket.name
    if not (link.exists() and link.samefile(socket)):
        new = door / f"{socket.name}.new"
        new.unlink(missing_ok=True)
        os.link(socket, new)
        new.replace(link)
    return door


def reopen_door(socket: Path) -> None:
    """Shows the socket of a later agent to the containers that live, if there is a door."""
    if (socket.parent / DOOR).is_dir():
        with suppress(OSError):
            open_door(socket)


class ContainerRelease:
    """Removes what runtimes left of containers whose keeper was killed, without waiting."""

    def __init__(self) -> None:
        self._running: dict[Path, tuple[subprocess.Popen[bytes], float]] = {}

    def is_removing(self, folder: Path) -> bool:
        """Begins the removal for the worker of a folder; True until it has ended."""
        if folder not in self._running:
            process = _start_removal(folder)
            if process is None:
                return False
            self._running[folder] = process, monotonic() + keeper_container.REMOVAL_S
        process, until_s = self._running[folder]
        if process.poll() is None and monotonic() < until_s:
            return True
        process.kill()
        process.wait()
        del self._running[folder]
        return False


def _start_removal(folder: Path) -> subprocess.Popen[bytes] | None:
    try:
        order = json.loads((folder / "order.json").read_bytes())
        if not order.get("removal"):
            return None
        return subprocess.Popen(
            order["removal"],
            env=order.get("removal_environment", order["environment"]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError, KeyError, AttributeError):
        return None


def _probe(runtime: str, user: UserEntry | None) -> subprocess.Popen[bytes]:
    """Starts the first command of podman as a user, in which the user's own files are read."""
    return subprocess.Popen(
        [runtime, "info", "--format={{.Store.GraphRoot}}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        close_fds=True,
        cwd="/",
        env=None if user is None else home_of(user),
        user=None if user is None else user.uid,
        group=None if user is None else user.gid,
        extra_groups=None if user is None else user.groups,
    )


class Containers:
    """The container runtime of a node, looked up when a job wants one.

    `folder` is that of the node; the site's choice is in the folder above it.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._ready: dict[int, str] = {}
        self._probes: dict[int, subprocess.Popen[bytes]] = {}

    def must_wait(self, user: UserEntry | None = None) -> str:
        """Returns what a container of a user must wait for, empty for nothing. Raises LaunchError.

        The first command of podman as an ordinary user starts a process that later ones share. It
        must not be a child of a worker, with which it would end.
        """
        runtime, uid = self._runtime(), -1 if user is None else user.uid
        if Path(runtime).name != PODMAN or runtime == self._ready.get(uid):
            return ""
        if uid not in self._probes:
            self._probes[uid] = _probe(runtime, user)
        probe = self._probes[uid]
        code = probe.poll()
        if code is None:
            return "podman is getting ready"
        assert probe.stderr is not None
        with probe.stderr as errors:
            lines = os.read(errors.fileno(), 1 << 16).decode("utf-8", "replace").splitlines()
        del self._probes[uid]
        if code:
            why = lines[-1] if lines else f"exit code {code}"
            raise LaunchError(f"podman cannot run containers here: {why[:500]}", NOT_NOW)
        self._ready[uid] = runtime
        return ""

    def command(
        self, program: ContainerSpec, began: Path, user: UserEntry | None = None
    ) -> ContainerOrder:
        """Returns the command that runs a program as a user. Raises LaunchError.

        `began` is the file for the number of its first process, which the user may write.
        """
        runtime = self._runtime()
        if Path(runtime).name == PODMAN:
            order = podman(runtime, program, str(began), user)
        else:
            order = apptainer(runtime, program)
        return order if user is None else as_user(order, user)

    def door(self, user: UserEntry | None = None) -> tuple[str, str]:
        """Returns the folder with the agent's socket, outside and inside. Raises OSError."""
        door = open_door(self._socket)
        if user is not None:
            # The socket in it asks the kernel who comes.
            door.chmod(PASSED_BY_ALL)
        return str(door), DOOR_INSIDE

    def _runtime(self) -> str:
        """Returns the path of the runtime. Raises LaunchError."""
        choice = read_site(self._socket.parent.parent / SITE).container_runtime
        names = RUNTIMES if choice == AUTO else (choice,)
        found = next((path for path in map(shutil.which, names) if path), None)
        if found is None:
            what = f"{' or '.join(names)} is not installed on this node"
            raise LaunchError(f"no container runtime: {what}", NEVER_RUNS[0])
        return found
