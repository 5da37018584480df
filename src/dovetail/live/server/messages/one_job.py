"""The details of one job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dovetail.live.server.messages.listing import JobRow


@dataclass(frozen=True, slots=True)
class ShowJob:
    """Request the details of one job."""

    verb: ClassVar[str] = "show"
    job: str


@dataclass(frozen=True, slots=True)
class ShowReply:
    """The details of one job. `environment` has names without values, which may be secret.

    `waits_s` is how long it has waited since it last began to, -1 if it does not wait; `stops` how
    often the policy stopped it, as far as the policy counts.
    """

    row: JobRow
    command: tuple[str, ...]
    script_lines: int
    workdir: str
    output: str
    folder: str
    model: str
    queue: str
    gpu_type: str
    trains: bool
    shareable: bool
    preemptible: bool
    requeue: bool
    priority: float
    batch_size: int
    time_limit_s: float
    deadline_s: float
    duration_s: float
    environment: tuple[str, ...]
    after: tuple[str, ...]
    generation: int
    workers: tuple[str, ...]
    attained_gpu_s: float
    ran_s: float
    held: bool
    detail: str = ""
    samples: int = 0
    total_samples: int = 0
    iteration_s: float = 0.0
    saved_step: int = -1
    account: str = ""
    qos: str = ""
    reservation: str = ""
    waits_s: float = -1.0
    stops: int = 0
    container_image: str = ""
    restart_s: float = 0.0
    restarts: int = 0
    grace_kills: int = 0
