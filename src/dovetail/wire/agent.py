"""The messages between the controller and the agents of the nodes.

An order may arrive twice, late or out of order and does no harm: workers are identified by (job,
number), which is never used twice, and an agent obeys no controller older than the newest it has
heard of (`epoch`) and no generation of a job older than the newest it has started. A report may be
lost: an `Inventory` repeats everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.wire.codec import Codec, nested
from dovetail.wire.spec import Mount
from dovetail.wire.worker import (
    Abandon,
    Checkpoint,
    Entered,
    Finished,
    Lost,
    Meet,
    Meeting,
    Ready,
    Regroup,
    Saved,
    Training,
    WorkerLeft,
)

WIRE_VERSION = 5
"""Grows with each change of these messages; a controller refuses agents of another version."""


class OnGpus:
    """A worker on GPU `gpu`, or on all `gpus` of a node if there are several."""

    __slots__ = ()
    gpu: int
    gpus: tuple[int, ...]

    @property
    def all_gpus(self) -> tuple[int, ...]:
        """Returns every GPU of its node that it is placed on."""
        return self.gpus or (self.gpu,)


@nested("launch", "command", "retries")
@dataclass(frozen=True, slots=True)
class StartWorker(OnGpus):
    """Start one worker of a job; if it was started before, change its limits alone.

    The controller sets `begun` once the worker was reported started. An agent that does not know
    such a worker has lost it, with its memory or its node, and must not start another process.

    The fields from `command` to `retries` are alike for all workers of the job, and so is `script`.
    `command` is executed word by word. `output` is the log file; `folder` the job's own for
    checkpoints. `user` is the owner of the job as the kernel knows it, for launchers of other
    identities, and `uid` that on the controller's machine (-1: not told); these write the text
    `script` to the file of that name in the folder, where the controller cannot. With `trains` the
    worker speaks the messages of `wire.worker`; without, it is a plain process, with torchrun's
    variables if `distributed` (its restarts so far and at most among them; with `per_node` those
    that tell torchrun itself what to start on this node), and with Slurm's variables of each task
    if `slurm_variables` (`slurm_ntasks` among them, 0: not set; the names of the job's `nodes` and
    the tasks on each, in order of `group_rank`). With a `container_image` it runs in a container,
    which sees `container_mounts` of the node.

    The worker is placed on GPU `gpu`, or on all `gpus` of this node. `share` is the part of each
    that it may use and `memory_bytes` the most it may hold of each (0: no bound). `rank`,
    `world_size`, `local_rank`, `group_rank` (of the node, among `group_world_size`) and `master`
    are torchrun's, for plain processes, which see `local_gpus`. With `trains` its checkpoints are
    in the subfolder of `lineage`. With `ships` no folder is shared: the job's is one of the node's
    own, from which files travel (`wire.shipping`), and a worker that starts `from_checkpoint`, with
    no other to take the state from, needs the newest one, as far as is known of `saved_step`.
    With a `terminal` its input and output are a client's (`wire.terminal`), and no file is written.
    """

    job: int
    worker: int
    generation: int
    gpu: int
    command: tuple[str, ...]
    folder: str
    output: str
    workdir: str
    environment: tuple[tuple[str, str], ...] = ()
    trains: bool = False
    grace_s: float = 10.0
    user: str = ""
    distributed: bool = False
    per_node: bool = False
    slurm_variables: bool = False
    slurm_ntasks: int = 0
    container_image: str = ""
    container_mounts: tuple[Mount, ...] = ()
    restarts: int = 0
    retries: int = 0
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    master: str = ""
    share: float = 1.0
    memory_bytes: int = 0
    local_gpus: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    group_rank: int = 0
    group_world_size: int = 1
    begun: bool = False
    lineage: int = 0
    nodes: tuple[str, ...] = ()
    tasks_on_nodes: tuple[int, ...] = ()
    script: str = ""
    ships: bool = False
    saved_step: int = -1
    from_checkpoint: bool = False
    uid: int = -1
    terminal: str = ""


@dataclass(frozen=True, slots=True)
class EndWorker:
    """End a worker: ask it (SIGTERM), and kill it after `grace_s`; 0 kills at once."""

    job: int
    worker: int
    grace_s: float


@dataclass(frozen=True, slots=True)
class NotifyWorkers:
    """Pass a message on to workers of a job on this node."""

    job: int
    workers: tuple[int, ...]
    regroup: Regroup | None = None
    meet: Meet | None = None
    abandon: Abandon | None = None
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class Forget:
    """The end of this worker is on record; the agent need not report it again."""

    job: int
    worker: int


@dataclass(frozen=True, slots=True)
class FindPort:
    """Find a free port of this node, at which the processes of a plain program meet.

    They are started, as this generation of the job, when it was reported. A repeated request gets
    the same answer.
    """

    job: int
    generation: int


@dataclass(frozen=True, slots=True)
class InventoryRequest:
    """The controller of this epoch is running, and requests the inventory.

    Each request of a controller has a greater `serial` than those before it. An agent that has
    answered starts nothing any more by an order that was given before request `void_before`.
    """

    epoch: int
    serial: int = 0
    void_before: int = 0


@dataclass(frozen=True, slots=True)
class Renew:
    """The lease of a node: its workers may run for `lease_s` from a heartbeat that was heard.

    `incarnation` and `sent_s` are those of that heartbeat. Counted from its sending, by the clock
    that wrote `sent_s`, however late this order comes. After that the workers have at most
    `grace_s` to end.
    """

    lease_s: float
    grace_s: float
    incarnation: str
    sent_s: float


@dataclass(frozen=True, slots=True)
class WarnWorker:
    """Write a line into the output of a worker, for its owner."""

    job: int
    worker: int
    text: str


@dataclass(frozen=True, slots=True)
class AgentOrder:
    """An order of the controller of an epoch: one of the fields is set.

    To a node with a lease a start says after which request for an inventory (`serial`) it came.
    """

    epoch: int
    start: StartWorker | None = None
    end: EndWorker | None = None
    tell: NotifyWorkers | None = None
    forget: Forget | None = None
    hail: InventoryRequest | None = None
    renew: Renew | None = None
    serial: int = 0
    port: FindPort | None = None
    warn: WarnWorker | None = None


@dataclass(frozen=True, slots=True)
class WorkerState(OnGpus):
    """One worker as its agent knows it. `exit_code` is None while it lives, -N after signal N.

    `entered` is the generation it trains in, -1 if it has entered none or is a plain process;
    `ready` the newest one it reported to be ready for; `why` and `asked` as in `WorkerEnded`;
    `generation` as in `WorkerStarted`, and `memory_bytes` the most it may hold, for all that is
    known (0: no bound); `master` is where the processes of a plain program meet. The rest are the
    last messages of their kinds, if there were any.
    """

    job: int
    worker: int
    generation: int
    gpu: int
    entered: int = -1
    exit_code: int | None = None
    started_s: float = 0.0
    why: str = ""
    ready: int = -1
    meeting: Meeting | None = None
    lost: Lost | None = None
    left: WorkerLeft | None = None
    training: Training | None = None
    saved: Saved | None = None
    finished: Finished | None = None
    asked: bool = False
    memory_bytes: int = 0
    gpus: tuple[int, ...] = ()
    master: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """All workers of a node, ended ones included until they are forgotten.

    Orders of controllers before `epoch` are obeyed no more: a worker that is not listed will not
    start. `serial` is that of the request that it answers; all orders before that are carried out.
    `host` is the address of the node as other nodes reach it.
    """

    node: int
    incarnation: str
    gpus: tuple[str, ...]
    workers: tuple[WorkerState, ...]
    epoch: int = -1
    serial: int = 0
    host: str = ""


@dataclass(frozen=True, slots=True)
class WorkerStarted(OnGpus):
    """The process of a worker runs, under the limits of the order of this generation."""

    job: int
    worker: int
    generation: int
    gpu: int
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerDeferred:
    """A worker cannot be started yet, and `why`; its agent retries until it can.

    No inventory lists it: to a later controller it is as if its order had been lost.
    """

    job: int
    worker: int
    why: str


@dataclass(frozen=True, slots=True)
class PortFound:
    """A free port of the node for a generation of a job, as HOST:PORT; or `why` there is none."""

    job: int
    generation: int
    address: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """The process of a worker is gone: exit code, or -N after signal N; `why` if it never was.

    `asked` if it had been ordered to end, or may have been by an agent that is gone.
    """

    job: int
    worker: int
    generation: int
    exit_code: int
    why: str = ""
    asked: bool = False


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """A message of a worker of `dovetail.train`: one of the fields is set."""

    job: int
    worker: int
    meeting: Meeting | None = None
    ready: Ready | None = None
    entered: Entered | None = None
    left: WorkerLeft | None = None
    lost: Lost | None = None
    training: Training | None = None
    saved: Saved | None = None
    finished: Finished | None = None


REPORTED_IN: Mapping[type, str] = {
    Meeting: "meeting",
    Ready: "ready",
    Entered: "entered",
    WorkerLeft: "left",
    Lost: "lost",
    Training: "training",
    Saved: "saved",
    Finished: "finished",
}
"""The field of a `WorkerReport`, and of a `WorkerState`, for each message of a worker."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The agent lives; sent about every second. With a lease it says when, by its own clock."""

    node: int
    incarnation: str = ""
    sent_s: float = -1.0


@dataclass(frozen=True, slots=True)
class IdleWorker:
    """A worker that has not used its GPU, or its CPU slot, for so long."""

    job: int
    worker: int
    idle_s: float


@dataclass(frozen=True, slots=True)
class IdleReport:
    """All workers of a node that are idle; a worker that is not in it any more is busy."""

    workers: tuple[IdleWorker, ...] = ()


FATAL, DRAIN, WARNING = "fatal", "drain", "warning"
"""What a fault means: jobs there cannot go on; they may end, and no other starts; nothing yet."""
DEVICE, CHECK = "device", "check"
"""Who found a fault: the driver of a GPU, or a script of the site."""


@dataclass(frozen=True, slots=True)
class NodeFault:
    """What is wrong with a GPU of a node, or (`gpu` is -1) with the node, in one line."""

    gpu: int
    source: str
    severity: str
    what: str


@dataclass(frozen=True, slots=True)
class HealthReport:
    """All faults that a node has now. One that is not in it any more is over."""

    faults: tuple[NodeFault, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentReport:
    """A report of a node's agent: one of the fields is set.

    A heartbeat (`alive`) may come with the `progress` that workers have reported since the last.
    """

    node: int
    inventory: Inventory | None = None
    started: WorkerStarted | None = None
    ended: WorkerEnded | None = None
    said: WorkerReport | None = None
    alive: Heartbeat | None = None
    deferred: WorkerDeferred | None = None
    port: PortFound | None = None
    health: HealthReport | None = None
    idle: IdleReport | None = None
    progress: tuple[WorkerReport, ...] = ()


def is_progress(report: AgentReport) -> bool:
    """Returns whether a report shows only how the training of a worker goes."""
    said = report.said
    if said is None or said.training is None:
        return False
    return said == WorkerReport(said.job, said.worker, training=said.training)


def looser_bound(one: int, other: int) -> int:
    """Returns the bound of two that allows more memory (0: no bound)."""
    return max(one, other) if one and other else 0


ORDERS = Codec({"Order": AgentOrder})
REPORTS = Codec({"Report": AgentReport})
