"""The nodes of this machine: real agents, and workers that are processes on GPUs or CPU slots."""

from __future__ import annotations

import errno
import os
import selectors
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dovetail.core.errors import DovetailError
from dovetail.core.units import NEVER_S
from dovetail.live.access.user_entry import UserEntry
from dovetail.live.engines.agent_terminals import AgentTerminals
from dovetail.live.engines.cgroup import ControlGroups
from dovetail.live.engines.containers import Containers, ContainerSpec, home_of, reopen_door
from dovetail.live.engines.devices import Devices, store_names, stored_names
from dovetail.live.engines.gpu_release import GpuRelease
from dovetail.live.engines.health_monitor import HealthMonitor
from dovetail.live.engines.interfaces import interface_variables
from dovetail.live.engines.keeper import KeeperOrder
from dovetail.live.engines.local_engine import worker_socket
from dovetail.live.engines.nvml import VISIBLE
from dovetail.live.engines.output_bound import OutputBound
from dovetail.live.engines.processes import ProcessLauncher, ProcessSettings
from dovetail.live.engines.site_scripts import FILE as SITE
from dovetail.live.engines.site_scripts import JobScripts, read_site
from dovetail.live.engines.stored_lease import StoredFence, StoredLease
from dovetail.live.engines.task_environment import NAMES, task_environment
from dovetail.live.engines.worker_hub import WorkerHub
from dovetail.live.jobs.lineage import lineage_folder
from dovetail.live.join.shared_folder import SharedFolder
from dovetail.live.node.agent import Agent
from dovetail.live.node.rendezvous_addresses import LOOPBACK, RendezvousAddresses
from dovetail.live.node.transport import EventLoop, LinkTerminal
from dovetail.live.shipping.shipper import Shipper
from dovetail.live.system.private_file import make_private_folder
from dovetail.wire.agent import AgentOrder, AgentReport, StartWorker
from dovetail.wire.connection import LineConnection, Stream
from dovetail.wire.worker import FOLDER, HOST, MEMORY, SOCKET, TOKEN, WORKER, FromWorker

MPS_PIPE = "CUDA_MPS_PIPE_DIRECTORY"
MPS_PIPE_USUAL = "/tmp/nvidia-mps"
SHARE_LIMIT = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
NOT_PASSED_ON = (
    "DOVETAIL_", VISIBLE, SHARE_LIMIT, "TORCHELASTIC_",
    "SLURM", "SBATCH_", "SALLOC_", "SRUN_", "PMI_", "PMI2_", "PMIX_", "OMPI_", "PRTE_", "RAY_",
    "NOTIFY_SOCKET", "WATCHDOG_", "INVOCATION_ID", "JOURNAL_STREAM", "STATE_DIRECTORY",
)  # fmt: skip
"""Prefixes of variables of the agent that workers must not inherit.

Those of whatever started the agent are among them: a program that finds `SLURM_PROCID` or
`PMIX_RANK` takes itself for a task of that allocation.
"""


class LocalProcessSettings(ProcessSettings):
    """The environment of workers, and what bounds them, on the devices of one node.

    `uids` says as whom each worker runs; None: all as the user of this process.
    """

    uids: Mapping[tuple[int, int], int] | None = None

    def __init__(
        self,
        devices: Devices,
        socket: Path,
        groups: ControlGroups,
        environ: Mapping[str, str] = os.environ,
        release: GpuRelease | None = None,
        lease: StoredLease | None = None,
        host: str = LOOPBACK,
        scripts: JobScripts | None = None,
    ) -> None:
        self.shipper: Shipper | None = None
        self.shared: Path | None = None
        self._lease, self.host, self._scripts = lease, host, scripts
        self._devices, self._socket, self._groups = devices, socket, groups
        self._release, self._containers = release, Containers(socket)
        self._inherited = {
            name: value
            for name, value in environ.items()
            if not name.startswith(NOT_PASSED_ON) and name not in NAMES
        }

    def must_wait(self, order: StartWorker) -> str:
        """Returns what a worker waits for: the site's scripts, memory that is not free yet, or the
        runtime of its container. Raises LaunchError where there is none.
        """
        waits = self._scripts.must_wait(order) if self._scripts is not None else ""
        if not waits and order.ships and self.shipper is not None:
            waits = self.shipper.must_wait(order)
        if waits:
            return waits
        busy = self._release.held(order.all_gpus) if self._release is not None else ()
        if not busy:
            if not order.container_image:
                return ""
            return self._containers.must_wait(self._container_user(order))
        gpus = f"GPU{'s' if len(busy) > 1 else ''} {', '.join(map(str, busy))}"
        return f"the driver has not yet freed the memory of an earlier worker on {gpus}"

    def prepare(self, order: StartWorker, token: str, folder: Path) -> KeeperOrder:
        """Returns what the keeper of a worker needs; variables of the job go before inherited.

        None are inherited into a container. Raises LaunchError, OSError.
        """
        prepared = super().prepare(order, token, folder)
        if self._scripts is not None:
            self._scripts.started(order.job, order.worker)
        if self._lease is not None:
            prepared["lease"] = str(self._lease.path)
            prepared["lease_over_s"] = self._lease.until_s + self._lease.grace_s
        environment = prepared["environment"] = {
            **({} if order.container_image else self._inherited),
            **self._of_user(order),
            "PYTHONUNBUFFERED": "1",
            "PWD": order.workdir,
            **dict(order.environment),
            "DOVETAIL_JOB": str(order.job),
        }
        environment.update(self._device(order, self._inherited | environment))
        environment.update(self._trains(order, token) if order.trains else task_environment(order))
        if order.trains or order.distributed:
            for name, value in interface_variables(self.host).items():
                environment.setdefault(name, value)
        self._bind(order, prepared)
        if order.container_image:
            self._contain(order, prepared, folder)
        return prepared

    def _bind(self, order: StartWorker, prepared: KeeperOrder) -> None:
        """Sets control groups, cores and the number of threads that fits them."""
        environment = prepared["environment"]
        if self._devices.are_gpus:
            if self._release is not None:
                self._release.started((order.job, order.worker), order.all_gpus)
            if order.distributed and order.local_world_size > 1:
                # As torchrun: several processes of a node would fight for its cores.
                environment.setdefault("OMP_NUM_THREADS", "1")
            prepared["cgroups"] = self._groups.track(f"{order.job}-{order.worker}")
            return
        slots = order.all_gpus
        cores = sorted({core for slot in slots for core in self._devices.cores[slot]})
        # torchrun starts a process on each slot, and they would fight for the cores.
        threads = len(cores) if len(slots) > 1 and not order.per_node else 1
        environment.setdefault("OMP_NUM_THREADS", str(threads))
        prepared["cores"], prepared["cgroups"] = cores, self._groups.make(*_bounds(order))

    def _contain(self, order: StartWorker, prepared: KeeperOrder, folder: Path) -> None:
        """Puts the program of a worker into a container. Raises LaunchError, OSError."""
        environment = prepared["environment"]
        folders, user = [(order.folder, order.folder)], self._container_user(order)
        if order.trains:
            door, inside = self._containers.door(user)
            folders.append((door, inside))
            environment[SOCKET] = f"{inside}/{self._socket.name}"
        if SHARE_LIMIT in environment:
            pipe = (self._inherited | environment).get(MPS_PIPE, MPS_PIPE_USUAL)
            folders.append((pipe, pipe))
            environment[MPS_PIPE] = pipe
        gpus = [self._devices.names[gpu] for gpu in order.local_gpus or order.all_gpus]
        program = ContainerSpec(
            order.container_image,
            order.command,
            order.workdir,
            environment,
            order.container_mounts,
            tuple(folders),
            tuple(gpus) if self._devices.are_gpus else (),
            terminal=order.terminal,
        )
        began = folder if user is None else Path(order.folder)
        name = "container.pid" if user is None else f".container-{order.worker}.pid"
        command = self._containers.command(program, began / name, user)
        prepared["argv"], prepared["removal"] = list(command.argv), list(command.removal)
        prepared["began"] = command.began
        prepared["environment"] = {**self._inherited, **command.environment}
        if user is not None:
            prepared["removal_environment"] = home_of(user)

    def _of_user(self, order: StartWorker) -> Mapping[str, str]:
        """Returns the variables that depend on the user as whom a worker runs."""
        return {}

    def _container_user(self, order: StartWorker) -> UserEntry | None:
        """Returns as whom the runtime of a container runs, None: as this process does."""
        return None

    def _trains(self, order: StartWorker, token: str) -> dict[str, str]:
        folder = lineage_folder(Path(order.folder), order.lineage)
        if order.lineage and not folder.is_dir():
            # Without the checkpoints in it the program would begin from nothing.
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        variables = {
            SOCKET: str(self._socket),
            WORKER: f"{order.job}/{order.worker}",
            TOKEN: token,
            FOLDER: str(folder),
            HOST: self.host,
        }
        return variables | ({MEMORY: str(order.memory_bytes)} if order.memory_bytes else {})

    def _device(self, order: StartWorker, environment: Mapping[str, str]) -> dict[str, str]:
        """Returns what makes a worker see its GPUs alone, and use no more than its share."""
        if not self._devices.are_gpus:
            return {VISIBLE: ""}
        mine = order.local_gpus or (order.gpu,)
        seen = {VISIBLE: ",".join(self._devices.names[g] for g in mine)}
        # The folder outlives the daemon; the pipe in it is there while it runs.
        if order.share < 1 and Path(environment.get(MPS_PIPE, MPS_PIPE_USUAL), "control").exists():
            seen[SHARE_LIMIT] = str(max(1, round(order.share * 100)))
        return seen

    def limit(self, order: StartWorker) -> None:
        """Changes weight and memory bound of a running worker on a CPU slot."""
        if self._scripts is not None:
            self._scripts.started(order.job, order.worker)
        if self._release is not None:
            self._release.adopted((order.job, order.worker), order.all_gpus)
        self._groups.limit(*_bounds(order))

    def ran_out_of_memory(self, job: int, worker: int) -> bool:
        """True if the kernel killed a worker at its bound."""
        return self._groups.ran_out_of_memory(f"{job}-{worker}")

    def clear(self, job: int, worker: int) -> None:
        """Removes the control groups of a worker that has ended."""
        if self._scripts is not None:
            self._scripts.ended(job, worker)
        if self._release is not None:
            self._release.ended((job, worker))
        self._groups.remove(f"{job}-{worker}")


def _bounds(order: StartWorker) -> tuple[str, float, int]:
    """Returns a worker's control group, and its weight and memory: its parts of all its slots."""
    slots = len(order.all_gpus)
    return f"{order.job}-{order.worker}", order.share * slots, order.memory_bytes * slots


class LocalNodes:
    """The agents of the nodes that this machine plays, usually one, numbered from `first`.

    With `leased` their workers end when no controller is heard; `clock` is then `boot_s`. `hosts`
    are the addresses of the nodes as other nodes reach them; all are on this machine without.
    `settings` makes the settings of the workers of each node.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        devices: Sequence[Devices],
        loop: EventLoop,
        clock: Callable[[], float],
        groups: ControlGroups,
        home: Path | None = None,
        *,
        first: int = 0,
        leased: bool = False,
        hosts: Sequence[str] = (),
        settings: Callable[..., LocalProcessSettings] = LocalProcessSettings,
    ) -> None:
        self._leased, self._first, self._hosts = leased, first, tuple(hosts)
        self._settings = settings
        self._clock, self._loop, self._home = clock, loop, home
        self._reports: list[AgentReport] = []
        self._groups = groups
        self._hubs: list[WorkerHub] = []
        self._healths: list[HealthMonitor] = []
        self._site = Path()
        self._bound = OutputBound(lambda: read_site(self._site).output_bytes_max)
        self._launchers: list[ProcessLauncher] = []
        self._addressed: list[tuple[LocalProcessSettings, RendezvousAddresses]] = []
        self.agents: list[Agent] = []
        self._shipper: Shipper | None = None
        self._terminals = AgentTerminals()
        self._kept_back: list[AgentReport] = []
        for node, (folder, have) in enumerate(zip(folders, devices, strict=True), start=first):
            self._open(node, folder, have)

    def _open(self, node: int, folder: Path, devices: Devices) -> None:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_private_folder(folder)
        socket = worker_socket(folder)

        def receive(job: int, worker: int, message: FromWorker) -> None:
            self._reports += agent.receive(job, worker, message, self._clock())

        release = GpuRelease.open(devices.names) if devices.are_gpus else None
        lease = StoredLease(folder / "lease.json") if self._leased else None
        host = self._hosts[node - self._first] if self._hosts else LOOPBACK
        self._site = folder.parent / SITE
        health = HealthMonitor(node, folder.parent / SITE, folder / "site", devices)
        setting = self._settings(
            devices,
            socket,
            self._groups,
            release=release,
            lease=lease,
            host=host,
            scripts=health.scripts,
        )
        if setting.uids is not None:
            # Workers of several users must reach the socket in it.
            folder.chmod(0o711)
        hub = WorkerHub(self._loop, socket, self._clock, receive, setting.uids)
        reopen_door(socket)
        launcher = ProcessLauncher(folder / "workers", setting, hub.send, hub.drain, self._home)
        fence = StoredFence(folder / "fence.json")
        ports = RendezvousAddresses(host)
        self._addressed.append((setting, ports))
        agent = Agent(node, devices.names, launcher, fence=fence, lease=lease, ports=ports)
        before = stored_names(folder) or devices.names
        if agent.alive and devices.are_gpus and before != devices.names:
            # Workers are known by the place of their GPU: each would be taken for another's.
            hub.close()
            raise DovetailError(
                f"workers run on the GPUs {', '.join(before)}, and now those here are "
                f"{', '.join(devices.names)}; say the same CUDA_VISIBLE_DEVICES, or end them first"
            )
        store_names(folder, devices.names)
        hub.attach(agent)
        health.scripts.finish_adopting()
        self._healths.append(health)
        # The loop wakes when a worker ends; `tick` then polls.
        self._loop.watch(launcher.fileno(), selectors.EVENT_READ, lambda _: None)
        self._hubs.append(hub)
        self._launchers.append(launcher)
        self.agents.append(agent)

    def move_to(self, host: str) -> None:
        """Sets the address of the nodes: workers that start from now on meet there."""
        for setting, ports in self._addressed:
            setting.host = ports.host = host

    def watch_folder(self, shared: SharedFolder | None) -> None:
        """Looks after the folder that the cluster's nodes share, none if they share none."""
        for health in self._healths:
            health.watch_folder(shared)
        for setting, _ in self._addressed:
            setting.shared = None if shared is None else shared.path

    def carry_files(self, shipper: Shipper) -> None:
        """Ships files of jobs from now on, where orders say that no folder is shared."""
        self._shipper = shipper
        for setting, _ in self._addressed:
            setting.shipper = shipper

    def handle(self, node: int, order: AgentOrder, now: float) -> list[AgentReport]:
        """Passes an order to the agent of a node."""
        place = node - self._first
        if not 0 <= place < len(self.agents):
            return []
        if order.warn is not None:
            self._launchers[place].warn(order.warn.job, order.warn.worker, order.warn.text)
        if order.start is not None and order.start.ships and self._shipper is not None:
            order = replace(order, start=self._shipper.localized(order.start))
        return self.agents[place].handle(order, now)

    def call_terminals(self, call: Callable[[str], tuple[Stream, bytes]]) -> None:
        """Opens connections for terminals by their tickets from now on."""
        self._terminals.call = call

    def open_terminal(self, wanted: LinkTerminal, link: LineConnection | None) -> None:
        """Joins the terminal of a worker to a connection, or to one that it opens by a ticket."""
        place = wanted.node - self._first
        here = 0 <= place < len(self._launchers)
        folder = self._launchers[place].terminal(wanted.job, wanted.worker) if here else None
        self._terminals.open(folder, wanted.ticket, link)

    def tick(self, now: float) -> list[AgentReport]:
        """Does what is due in agents and sockets; returns all reports."""
        for hub in self._hubs:
            hub.tick()
        ticked = [report for agent in self.agents for report in agent.tick(now)]
        if self._shipper is not None:
            ticked = self._with_output_first(ticked, self._shipper)
        # Polling for ends reads the last messages of workers, which are reported first.
        reports, self._reports = self._reports, []
        self._bound.tick(
            lambda: {k: v for each in self._launchers for k, v in each.outputs().items()}
        )
        # First of all: a job that its node failed must not be started there again.
        found = [report for health in self._healths for report in health.tick()]
        pairs = zip(self._healths, self._launchers, strict=True)
        idle = [r for health, launcher in pairs for r in health.idle(launcher.living)]
        return [*found, *reports, *ticked, *idle]

    def _with_output_first(self, reports: list[AgentReport], shipper: Shipper) -> list[AgentReport]:
        """Returns reports, without ends of workers whose last output is still on its way."""
        shipper.note_living(frozenset(job for _, job, _ in self.alive))
        due, reports = [*self._kept_back, *reports], []
        self._kept_back = []
        for report in due:
            late = report.ended is not None and shipper.keeps_back(report.ended.job)
            (self._kept_back if late else reports).append(report)
        return reports

    def heartbeats(self, now: float) -> list[AgentReport]:
        """Returns the signs of life of all agents."""
        return [agent.heartbeat(now) for agent in self.agents]

    def next_due(self) -> float:
        """Returns when `tick` has something to do whatever happens."""
        due = [agent.next_due() for agent in self.agents]
        return min((*due, *(hub.next_due() for hub in self._hubs)), default=NEVER_S)

    def end_all(self, grace_s: float, now: float) -> list[AgentReport]:
        """Ends all workers."""
        return [r for agent in self.agents for r in agent.end_all(grace_s, now)]

    @property
    def alive(self) -> list[tuple[int, int, int]]:
        """Returns (node, job, worker) of every worker that lives."""
        return [(agent.node, *key) for agent in self.agents for key in agent.alive]

    def close(self) -> None:
        """Closes everything; workers live on."""
        for health in self._healths:
            health.close()
        for hub in self._hubs:
            hub.close()
        for launcher in self._launchers:
            self._loop.leave(launcher.fileno())
            launcher.close()
        if not self.alive:
            self._groups.close()
