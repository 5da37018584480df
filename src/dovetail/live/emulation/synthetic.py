"""What a synthetic job is: a clock of a known length, for emulated nodes; what its switches cost.

One sample is a millisecond of the job's time alone on its requested GPUs, so that progress in
samples and progress in solo seconds are the same. The user's word for such a job is "paced", in job
specs as on the wire.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields

from dovetail.core.job import JobRequest
from dovetail.core.switching import Switching
from dovetail.wire.codec import WireError, build, parse_object, plain
from dovetail.wire.spec import JobSpec

SYNTHETIC_COMMAND = "paced"
"""The first word of the command of a synthetic job; the second is its spec as JSON."""
SAMPLES_PER_S = 1000
STEP_SAMPLES = 100
"""An iteration of a synthetic job: a tenth of a second alone."""


@dataclass(frozen=True, slots=True)
class SwitchCosts(Switching):
    """What a switch of a synthetic job costs, as in simulation; free unless a cost is given."""

    resume_s: float = 0.0
    move_s: float = 0.0
    resize_s: float = 0.0
    limit_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SyntheticSpec:
    """A synthetic job: how long it takes alone, and what decides how fast it runs.

    Its fields are called as those of `JobSpec` and of the job table, from which they are copied.
    """

    duration_s: float
    gpus: int = 1
    min_gpus: int = 1
    max_gpus: int = 1
    model: str = ""
    batch_size: int = 0
    gpu_type: str = ""
    restart_s: float = 0.0
    elastic: bool = False
    shareable: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.duration_s < float("inf"):
            raise ValueError("a paced job needs a length above 0")
        if not 1 <= self.min_gpus <= self.gpus <= self.max_gpus:
            raise ValueError("1 <= min_gpus <= gpus <= max_gpus must hold")

    @property
    def samples(self) -> int:
        """Returns the samples of the whole job."""
        return round(self.duration_s * SAMPLES_PER_S)

    def command(self) -> tuple[str, str]:
        """Returns the command of such a job."""
        return SYNTHETIC_COMMAND, json.dumps(plain(self), separators=(",", ":"))

    @staticmethod
    def read(command: Sequence[str]) -> SyntheticSpec:
        """Returns the spec in a command. Raises WireError."""
        if len(command) != 2 or command[0] != SYNTHETIC_COMMAND:
            raise WireError("emulated nodes run paced jobs alone")
        spec: SyntheticSpec = build(SyntheticSpec, parse_object(command[1].encode()))
        return spec

    def row(self, job: int, submit_s: float) -> JobRequest:
        """Returns the row of the job table by which physics knows the job."""
        described = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "duration_s"}
        return JobRequest(job_id=str(job), submit_s=submit_s, **described)


def synthetic_spec(spec: JobSpec) -> SyntheticSpec:
    """Returns the synthetic job of a spec that was submitted as `paced`."""
    return SyntheticSpec(**{f.name: getattr(spec, f.name) for f in fields(SyntheticSpec)})
