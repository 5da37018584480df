"""The durable state of each job: enough for a new controller to go on after a kill at any time."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.core.placement import Placement
from dovetail.live.jobs.lifecycle import PENDING, State


@dataclass(frozen=True, slots=True)
class GangMember:
    """One wanted worker: its number, never used twice in a job, and its GPU."""

    worker: int
    node: int
    gpu: int


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The durable state of one job beside its request.

    `members` are the wanted workers in rank order. `group` are the numbers of the workers that are
    to form `generation`: the same, except while a change is under way. `next_worker` is the next
    number.
    `done_s` (solo seconds) and `attained_gpu_s` are as of `since_s`, and `saved_s` of the work is
    on disk; `reason` says why it waits or how it ended, in Slurm's words; `detail` is a sentence.
    `ending` is what a COMPLETING job will be; `exit_code` is None until it ended. `again_s` is
    when its owner requeued it after its end, below 0 if never; `restarts` how often its program
    was lost while it ran, `grace_kills` how often it had to be killed as it left. `spoke` is True
    once its program made its `dovetail.train.Job`; `resumed_step` is the newest checkpoint there
    was at its last start. `pending_s` is when it last began to wait, `placed_s` when it was last
    placed, below 0 in records of older releases.

    `nodes` are those with a lease on which workers of it may live: a start from scratch waits for
    them. Its checkpoints are in the subfolder of `lineage`. `stranded` are (node, lineage) of
    workers that may live but can train no step: at most they still write to that lineage. Its next
    try is not on the `avoided` nodes, which failed it, if another can hold it.
    """

    job: int
    state: State = PENDING
    submit_s: float = 0.0
    generation: int = 0
    placement: Placement | None = None
    members: tuple[GangMember, ...] = ()
    group: tuple[int, ...] = ()
    next_worker: int = 0
    done_s: float = 0.0
    rate: float = 0.0
    attained_gpu_s: float = 0.0
    since_s: float = 0.0
    first_start_s: float = float("inf")
    ran_s: float = 0.0
    end_s: float = float("inf")
    held: bool = False
    retries: int = 0
    not_before_s: float = 0.0
    reason: str = ""
    detail: str = ""
    ending: State | None = None
    exit_code: int | None = None
    samples: int = 0
    total_samples: int = 0
    saved_step: int = -1
    saved_s: float = 0.0
    iteration_s: float = 0.0
    again_s: float = -1.0
    restarts: int = 0
    grace_kills: int = 0
    spoke: bool = False
    resumed_step: int = -1
    pending_s: float = -1.0
    placed_s: float = -1.0
    nodes: tuple[int, ...] = ()
    lineage: int = 0
    stranded: tuple[tuple[int, int], ...] = ()
    avoided: tuple[int, ...] = ()

    @property
    def has_newer_checkpoint(self) -> bool:
        """Returns whether a start from here is not a repetition of the last one."""
        return self.saved_step > self.resumed_step

    @property
    def queued_s(self) -> float:
        """Returns when it was submitted, as users count: anew, if it began anew after its end."""
        return max(self.submit_s, self.again_s)
