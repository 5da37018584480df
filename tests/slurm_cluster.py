"""A real Slurm for tests: slurmctld, slurmdbd and one slurmd a node, in a folder of their own.

Every daemon listens on a free port of 127.0.0.1 and runs in a PID namespace of its own, so ending
it ends all that it started; a test that is killed takes the daemons with it. Nothing of a Slurm
that the machine has is touched: own munge key, own database, own configuration. GPUs are
pretended: their device files are terminals that nobody uses. Jobs run as system accounts that
every Debian has, because Slurm wants users that exist.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

PROGRAMS = ("munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd")
CLIENTS = ("sbatch", "scontrol", "sacct", "squeue", "sinfo", "sacctmgr", "sdiag")
NAMESPACES = ("setpriv", "unshare")
USERS = ("games", "man", "lp", "mail", "news", "uucp", "proxy", "www-data", "backup", "list")
"""Accounts of Debian's base-passwd, with nothing of their own to break."""
PATIENCE_S = 60.0
LOOPBACK = "127.0.0.1"
SBIN = "/usr/sbin:/sbin"


@dataclass(frozen=True)
class Node:
    """One pretended machine."""

    name: str
    gpus: int
    gpu_type: str = ""

    @property
    def gres(self) -> str:
        """Returns its GPUs as Slurm writes them."""
        kind = f":{self.gpu_type}" if self.gpu_type else ""
        return f"gpu{kind}:{self.gpus}"


@dataclass(frozen=True)
class Site:
    """What an administrator decides: nodes, partitions, lines of slurm.conf, and tenants.

    `tenants` are the arguments of `sacctmgr -i` calls, in order; so are `limits`, which name GPUs
    and so come when slurmctld has made them known.
    """

    nodes: tuple[Node, ...]
    partitions: tuple[str, ...]
    settings: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()


@dataclass
class _Folder:
    path: Path
    ports: list[int] = field(default_factory=list)

    def write(self, name: str, text: str) -> None:
        file = self.path / name
        file.write_text(text)
        file.chmod(0o600 if name == "slurmdbd.conf" else 0o644)


def reason_to_skip() -> str:
    """Returns why no Slurm can be started here, or nothing."""
    missing = [p for p in (*PROGRAMS, *CLIENTS, *NAMESPACES) if which(p) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if os.geteuid() != 0:
        return "slurmd runs jobs as their users, which needs root"
    probe = subprocess.run(
        ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "true"],
        capture_output=True,
        check=False,
    )
    return "" if probe.returncode == 0 else "namespaces cannot be made here"


def which(program: str) -> str | None:
    """Returns the path of a program, also of an administrator's."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SBIN}")


def free_ports(count: int) -> list[int]:
    """Returns ports of 127.0.0.1 that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def slurm_conf(
    site: Site, path: Path, *, ports: Sequence[int], at: Mapping[str, str] | None = None
) -> str:
    """Returns slurm.conf; `ports` are those of slurmctld, slurmdbd and one slurmd a node.

    `at` has the addresses of machines. With port 0 for slurmdbd there is no accounting.
    """
    where = at or {}
    head = f"""\
ClusterName=pretended
SlurmctldHost=head({where.get("head", LOOPBACK)})
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={path}/munge.sock
StateSaveLocation={path}/state
SlurmdSpoolDir={path}/spool.%n
SlurmctldPidFile={path}/slurmctld.pid
SlurmdPidFile={path}/spool.%n/slurmd.pid
SlurmctldLogFile={path}/slurmctld.log
SlurmdLogFile={path}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
PriorityType=priority/multifactor
DefMemPerCPU=100
GresTypes=gpu
ReturnToService=2
KillWait=5
MinJobAge=3600
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/none
"""
    if ports[1]:
        head += _accounting(site, path, ports[1])
    nodes = [
        f"NodeName={n.name} NodeAddr={where.get(n.name, LOOPBACK)} Port={port} "
        f"CPUs=16 RealMemory=64000 Gres={n.gres}"
        for n, port in zip(site.nodes, ports[2:], strict=True)
    ]
    parts = [f"PartitionName={text}" for text in site.partitions]
    return head + "\n".join([*site.settings, *nodes, *parts, ""])


def _accounting(site: Site, path: Path, port: int) -> str:
    types = "".join(f",gres/gpu:{t}" for t in _types(site))
    return f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={LOOPBACK}
AccountingStoragePort={port}
AccountingStoragePass={path}/munge.sock
AccountingStorageTRES=gres/gpu{types}
AccountingStorageEnforce=associations,limits,qos
"""


def _types(site: Site) -> list[str]:
    return sorted({n.gpu_type for n in site.nodes if n.gpu_type})


def _gres_conf(site: Site) -> str:
    lines = []
    for node in site.nodes:
        kind = f" Type={node.gpu_type}" if node.gpu_type else ""
        last = 9 + node.gpus
        lines.append(f"NodeName={node.name} Name=gpu{kind} File=/dev/tty[10-{last}]")
    return "\n".join([*lines, ""])


def _slurmdbd_conf(path: Path, *, port: int, database_port: int) -> str:
    return f"""\
AuthType=auth/munge
AuthInfo=socket={path}/munge.sock
DbdHost=head
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageLoc=slurm_acct
StorageUser=slurm
StoragePass=pretended
LogFile={path}/slurmdbd.log
PidFile={path}/slurmdbd.pid
"""


class SlurmCluster:
    """A running Slurm; a context manager that starts it and ends all of it."""

    def __init__(self, site: Site) -> None:
        self.site = site
        # Not pytest's folder: that is closed to the users whose jobs read their scripts here.
        self.path = Path(tempfile.mkdtemp(prefix="slurm-cluster-"))
        self.path.chmod(0o755)
        self._daemons: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        """Returns the environment in which Slurm's commands find this Slurm and no other."""
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH"))}
        path = f"{plain.get('PATH', '')}:{SBIN}"
        return {**plain, "PATH": path, "SLURM_CONF": str(self.path / "slurm.conf"), "TZ": "UTC"}

    def enter(self, host: str) -> list[str]:
        """Returns the words before a command that is to run on a pretended host."""
        return []

    def run(self, *command: str, stdin: str = "", allowed: Sequence[int] = (0,)) -> str:
        """Returns the output of a command. Raises RuntimeError unless its code is allowed."""
        done = subprocess.run(
            [*self.enter("head"), *command],
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=PATIENCE_S,
            check=False,
        )
        if done.returncode not in allowed:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout}")
        return done.stdout

    def submit(self, options: Sequence[str], script: str, user: str = "") -> int:
        """Returns the number of a job that runs a script as a user."""
        who = [f"--uid={user}"] if user else []
        quiet = ["--parsable", "--output=/dev/null", "--error=/dev/null", "--chdir=/tmp"]
        text = self.run("sbatch", *who, *quiet, *options, stdin=f"#!/bin/sh\n{script}\n")
        return int(text.split(";")[0])

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
        """Returns when something holds. Raises TimeoutError with what did not come about."""
        end = time.monotonic() + seconds
        while not holds():
            ended = [str(d.args) for d in self._daemons if d.poll() is not None]
            if ended or time.monotonic() > end:
                raise TimeoutError(f"{what}; ended: {ended or 'nothing'}; {self._last_words()}")
            time.sleep(0.2)

    def __enter__(self) -> SlurmCluster:
        try:
            self._start()
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

    def _start(self) -> None:
        path, site = self.path, self.site
        for name in ("state", *(f"spool.{n.name}" for n in site.nodes)):
            (path / name).mkdir(exist_ok=True)
        database_port, *ports = free_ports(3 + len(site.nodes))
        self.write_configuration(slurm_conf(site, path, ports=ports))
        _Folder(path).write(
            "slurmdbd.conf", _slurmdbd_conf(path, port=ports[1], database_port=database_port)
        )
        self._start_munge()
        self._start_database(database_port)
        self._daemon("head", "slurmdbd", "-D")
        self._await_port(ports[1], "slurmdbd listens")
        self.run("sacctmgr", "-i", "add", "cluster", "pretended")
        for line in site.tenants:
            self.run("sacctmgr", "-i", *line.split())
        self._daemon("head", "slurmctld", "-D", "-i")
        self._await_port(ports[0], "slurmctld listens")
        for line in site.limits:
            self.run("sacctmgr", "-i", *line.split())
        for node in site.nodes:
            self._daemon(node.name, "slurmd", "-D")
        self.wait_until(self._all_idle, "every node is idle")

    def write_configuration(self, conf: str) -> None:
        """Writes slurm.conf and what it needs beside it."""
        folder = _Folder(self.path)
        folder.write("slurm.conf", conf)
        folder.write("gres.conf", _gres_conf(self.site))
        folder.write("cgroup.conf", "CgroupPlugin=cgroup/v1\n")

    def _start_munge(self) -> None:
        path = self.path
        (path / "munge.key").write_bytes(secrets.token_bytes(128))
        (path / "munge.key").chmod(0o600)
        names = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log"}
        options = [f"--{option}={path}/munge.{name}" for option, name in names.items()]
        seed = f"--seed-file={path}/munge.seed"
        self._daemon("head", "munged", "--foreground", "--force", *options, seed)
        self.wait_until(lambda: (path / "munge.sock").exists(), "munged listens")

    def _start_database(self, port: int) -> None:
        data = self.path / "database"
        own = ["--no-defaults", f"--datadir={data}", "--user=root"]
        self.run(
            "mariadb-install-db", *own, "--skip-test-db", "--auth-root-authentication-method=normal"
        )
        start = self.path / "start.sql"
        start.write_text(
            "CREATE USER IF NOT EXISTS slurm@'127.0.0.1' IDENTIFIED BY 'pretended';"
            "\nGRANT ALL ON *.* TO slurm@'127.0.0.1';\n"
        )
        files = [f"--socket={self.path}/database.sock", f"--pid-file={self.path}/database.pid"]
        here = [f"--port={port}", "--bind-address=127.0.0.1", "--skip-name-resolve"]
        small = ["--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900"]
        self._daemon("head", "mariadbd", *own, *files, *here, *small, f"--init-file={start}")
        self._await_port(port, "the database listens")

    def _daemon(self, host: str, *command: str) -> None:
        """Starts a daemon on a pretended host; it ends with this process."""
        own = [*self.enter(host), "unshare", "--uts", "--pid", "--fork"]
        own += ["--kill-child", "--mount-proc"]
        named = ["sh", "-c", f'hostname {host}; exec "$@"', "-", *command]
        log = self.path / f"{command[0]}.{host}.out"
        with log.open("ab") as out:
            daemon = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *own, *named],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self.environment,
                start_new_session=True,
            )
        self._daemons.append(daemon)

    def _await_port(self, port: int, what: str) -> None:
        def listens() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        self.wait_until(listens, what)

    def _all_idle(self) -> bool:
        states = self.run("sinfo", "-h", "-N", "-o", "%N %t", allowed=(0, 1))
        idle = {line.split()[0] for line in states.splitlines() if line.endswith(" idle")}
        return idle == {n.name for n in self.site.nodes}

    def _last_words(self) -> Mapping[str, str]:
        logs = sorted(self.path.glob("*.log"))
        return {log.name: log.read_text(errors="replace")[-300:] for log in logs}

    def _end(self) -> None:
        # The last daemon started is the first to end: slurmd before its controller.
        for daemon in reversed(self._daemons):
            daemon.kill()
            daemon.wait()
        self._daemons.clear()
        shutil.rmtree(self.path, ignore_errors=True)
