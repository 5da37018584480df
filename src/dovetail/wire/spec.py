"""What a user submits: one frozen `JobSpec`, complete and checked, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.wire.terminal import PIPES, PTY
from dovetail.wire.torchrun import is_torchrun

INFINITE = float("inf")

EACH_GPU = -1
"""The `ntasks` of a job accepted before the field was stored: its program runs on each GPU."""

AFTER = ("after", "afterok", "afternotok", "afterany")
"""Slurm's dependencies: started, ended well, ended badly, ended."""
CORRESPONDING, SINGLETON = "aftercorr", "singleton"
"""Those that a submit turns into the others: task for task, and all of this name before it."""
ASKED = (*AFTER, CORRESPONDING, SINGLETON)


@dataclass(frozen=True, slots=True)
class Dependency:
    """A job that must reach something first, or (`task`) one task of an array, by its index.

    On record `kind` is one of `AFTER` and `job` the task itself; a submit may say any of `ASKED`.
    """

    kind: str
    job: int = 0
    task: int = -1

    def __post_init__(self) -> None:
        if self.kind not in ASKED:
            raise ValueError(f"a dependency is one of {', '.join(ASKED)}, not {self.kind!r}")


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the node that a container sees at another path, or at its own."""

    source: str
    destination: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job as submitted. Times in seconds; 0 or empty means not said, infinite means no limit.

    `command` is executed word by word, never by a shell of ours. `script` is the text of a
    batch script, run by its own interpreter (its first line) with `command` as its arguments.
    `trains` marks a program written with `dovetail.train`. Only such a job can be elastic, and one
    that has checkpoints of its own: with `restart_s` its program is ended and started anew when its
    GPUs change, which costs about so many seconds.
    `duration_s` is its run time alone on `gpus`, if its owner knows; `paced` makes it a clock of
    that length, for emulated nodes. `array` is its index in an array of jobs, -1 for none, of
    which at most `at_once` (0: all) may wait for GPUs or have them. `begin_s` is how long after its
    submission it may start. `kill_on_invalid_dep` cancels it when its dependency cannot be met.

    The program runs once, with all GPUs of the job, or as `ntasks` processes with an equal part of
    the GPUs each; with `restart_s` on each GPU, or on each node if it starts the processes of its
    node by itself. `slurm_variables` sets those by which programs take themselves for Slurm jobs.
    With a `container_image` each process runs in a container of its own, made from that image.
    With a `terminal` ("pty" or "pipes") it is interactive: its input and output are those of the
    client that submitted it, without which it does not go on. So it is never stopped to wait again.
    """

    name: str
    command: tuple[str, ...]
    workdir: str
    script: str = ""
    gpus: int = 1
    min_gpus: int = 1
    max_gpus: int = 1
    trains: bool = False
    restart_s: float = 0.0
    shareable: bool = False
    preemptible: bool = True
    user: str = ""
    queue: str = ""
    model: str = ""
    recurrence: str = ""
    gpu_type: str = ""
    topology: str = ""
    priority: float = 0.0
    batch_size: int = 0
    cpus: float = 0.0
    memory_bytes: float = 0.0
    time_limit_s: float = INFINITE
    deadline_s: float = INFINITE
    duration_s: float = 0.0
    environment: tuple[tuple[str, str], ...] = ()
    output: str = ""
    after: tuple[Dependency, ...] = ()
    array: int = -1
    array_of: int = -1
    at_once: int = 0
    begin_s: float = 0.0
    kill_on_invalid_dep: bool = False
    hold: bool = False
    retries: int = 3
    requeue: bool = True
    grace_s: float = 10.0
    paced: bool = False
    ntasks: int = 0
    slurm_variables: bool = False
    account: str = ""
    qos: str = ""
    reservation: str = ""
    container_image: str = ""
    container_mounts: tuple[Mount, ...] = ()
    terminal: str = ""

    @property
    def tasks(self) -> int:
        """Returns how many processes run its program on the GPUs that it asks for."""
        on_each_gpu = self.restarts and not self.starts_per_node
        if self.trains or self.paced or self.ntasks == EACH_GPU or on_each_gpu:
            return self.gpus
        return max(1, self.ntasks)

    @property
    def elastic(self) -> bool:
        """Returns whether its number of GPUs may change."""
        return self.min_gpus < self.max_gpus

    @property
    def restarts(self) -> bool:
        """Returns whether its program is started anew when its GPUs change, and goes on then."""
        return self.restart_s > 0 and not self.paced

    @property
    def keeps_progress(self) -> bool:
        """Returns whether it goes on from where it was after a stop."""
        return self.trains or self.paced or self.restarts

    @property
    def starts_per_node(self) -> bool:
        """Returns whether it is started once on each node: a batch script, or torchrun itself."""
        return self.restarts and (bool(self.script) or is_torchrun(self.command))

    def called(self, number: int) -> str:
        """Returns how users call the job of a number: `12`, or `12_3` for a task of an array."""
        return f"{self.array_of}_{self.array}" if self.array >= 0 else str(number)

    def __post_init__(self) -> None:
        if not (1 <= self.min_gpus <= self.gpus <= self.max_gpus):
            raise ValueError("1 <= min_gpus <= gpus <= max_gpus must hold")
        self._check_elastic()
        if not (self.command or self.script or self.paced):
            raise ValueError("a job needs a command or a script")
        if (
            min(self.retries, self.grace_s, self.begin_s, self.at_once, self.restart_s) < 0
            or self.time_limit_s <= 0
        ):
            raise ValueError("retries, grace, begin and limits cannot be negative")
        if self.ntasks > 0 and self.keeps_progress:
            raise ValueError(
                "ntasks is for programs of a fixed size: an elastic one has a worker on each GPU"
            )
        if self.gpus % self.tasks:
            raise ValueError(
                f"{self.ntasks} tasks cannot share {self.gpus} GPUs evenly:"
                " ntasks must divide the number of GPUs"
            )
        if self.paced and not self.duration_s > 0:
            raise ValueError("a paced job needs its duration_s")
        self._check_interactive()

    def _check_elastic(self) -> None:
        """Raises ValueError if its number of GPUs cannot change as it says."""
        if self.elastic and not (self.trains or self.paced or self.restart_s):
            raise ValueError(
                "only a program written with dovetail.train, or with checkpoints of its own"
                " (restart_s), can be elastic"
            )
        if self.restart_s and (self.trains or not self.elastic):
            raise ValueError(
                "restart_s is for programs without dovetail.train on a range of GPUs"
                if self.trains
                else "restart_s needs a range of GPUs"
            )

    def _check_interactive(self) -> None:
        if not self.terminal:
            return
        if self.terminal not in (PTY, PIPES):
            raise ValueError(f"a terminal is {PTY} or {PIPES}, not {self.terminal[:40]!r}")
        if self.keeps_progress or self.script or self.tasks > 1:
            raise ValueError("an interactive job is one command that runs as one process")
        if self.requeue or self.preemptible or self.retries or self.shareable:
            raise ValueError("an interactive job cannot wait again, nor share its GPUs")
        if self.array >= 0 or self.output:
            raise ValueError("an interactive job is no array, and writes to no file")
