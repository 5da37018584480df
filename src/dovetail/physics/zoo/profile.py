"""One model of the zoo: everything physics knows about it, each field with its provenance."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from dovetail.physics.batches.efficiency import Efficiency
from dovetail.physics.memory import MemoryLaw
from dovetail.physics.speed.compute import Compute
from dovetail.physics.speed.network import Network
from dovetail.physics.zoo.provenance import Sourced


@dataclass(frozen=True, slots=True)
class Batch:
    """The batch of the model unless the job requests another.

    `size` samples. Strong scaling (`per_gpu` false): of the whole job, shared by its GPUs.
    Weak scaling (`per_gpu` true): on each GPU, so that an iteration grows with the GPUs.
    `max_per_gpu` is the largest micro-batch its source ran on one GPU.
    """

    size: int
    per_gpu: bool
    max_per_gpu: int

    def __post_init__(self) -> None:
        if self.size < 1 or self.max_per_gpu < 1:
            raise ValueError(f"batches must be at least 1: {self}")

    def on_each_of(self, gpus: int) -> float:
        """Returns the samples each of `gpus` GPUs gets in one iteration."""
        return float(self.size) if self.per_gpu else self.size / gpus

    def work(self, gpus: int) -> float:
        """Returns the work of an iteration over that of an iteration on one GPU."""
        return float(gpus) if self.per_gpu else 1.0


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured seconds per iteration at some GPU counts, default batch, well placed."""

    gpus: tuple[int, ...]
    iteration_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.gpus) != len(self.iteration_s) or not self.gpus:
            raise ValueError("a curve needs one time for each GPU count")
        if self.gpus[0] != 1 or list(self.gpus) != sorted(set(self.gpus)):
            raise ValueError("GPU counts of a curve start at 1 and grow")
        if min(self.iteration_s) <= 0:
            raise ValueError("iteration times must be positive")


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Seconds per iteration of each stage at one GPU count (ALGORITHMS section 4.1).

    The stages of one job may overlap, so the iteration can be shorter than their sum.
    """

    gpus: int
    storage_s: float
    cpu_s: float
    gpu_s: float
    network_s: float

    def of_resources(self) -> tuple[float, float, float, float]:
        """Returns the times in the order of the resources: storage, CPU, GPU, network."""
        return (self.storage_s, self.cpu_s, self.gpu_s, self.network_s)


@dataclass(frozen=True, slots=True)
class Startup:
    """Seconds from a start to the first iteration at some GPU counts."""

    gpus: tuple[int, ...]
    start_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FitError:
    """Relative errors of predicted iteration times on rows the fit has not seen."""

    rows: int
    mean: float
    p90: float
    worst: float


@dataclass(frozen=True)
class ModelProfile:
    """A model as physics sees it. Times are those on `gpu_type`.

    `compute` has an entry per device type it was measured or fitted on, the reference first.
    Fields that are None are unknown.
    """

    name: str
    family: str
    title: str
    aliases: tuple[str, ...]
    gpu_type: Sourced[str]
    gpus_per_node: Sourced[int]
    batch: Sourced[Batch]
    max_gpus: Sourced[int]
    parameters: Sourced[float]
    gradient_bytes: Sourced[float]
    compute: tuple[tuple[str, Sourced[Compute]], ...]
    overlap: Sourced[float]
    network: Sourced[Network]
    memory: Sourced[MemoryLaw]
    curve: Sourced[Curve] | None = None
    stages: Sourced[tuple[StageTimes, ...]] | None = None
    startup: Sourced[Startup] | None = None
    fit_error: Sourced[FitError] | None = None
    efficiency: Sourced[Efficiency] | None = None

    def __post_init__(self) -> None:
        if not self.compute or self.compute[0][0] != self.gpu_type.value:
            raise ValueError(f"{self.full_name}: compute must begin with the reference device")
        if self.overlap.value < 1:
            raise ValueError(f"{self.full_name}: the overlap exponent must be at least 1")
        if self.max_gpus.value < 1 or self.gpus_per_node.value < 1:
            raise ValueError(f"{self.full_name}: GPU counts must be at least 1")
        if not all(entry.value.time_s(1.0) > 0 for _, entry in self.compute):
            raise ValueError(f"{self.full_name}: computing must take time")

    @property
    def full_name(self) -> str:
        """Returns the name that is unique in the zoo: `family/name`."""
        return f"{self.family}/{self.name}"

    def __hash__(self) -> int:
        # NOTE: tables are cached by profile; hashing every field would cost more than a lookup.
        return hash(self.full_name)

    def well_placed(self, gpus: int) -> tuple[int, ...]:
        """Returns GPUs per node on as few nodes of the source's size as hold them."""
        per_node = self.gpus_per_node.value
        whole, rest = divmod(gpus, per_node)
        return (per_node,) * whole + ((rest,) if rest else ())

    def stage_times(self, gpus: int) -> StageTimes | None:
        """Returns the stage times at a GPU count, linear between those with a row."""
        if self.stages is None:
            return None
        rows = self.stages.value
        above = next((row for row in rows if row.gpus >= gpus), rows[-1])
        below = max(
            (row for row in rows if row.gpus <= gpus), key=attrgetter("gpus"), default=rows[0]
        )
        if above.gpus == below.gpus:
            return below
        way = (gpus - below.gpus) / (above.gpus - below.gpus)
        pairs = zip(below.of_resources(), above.of_resources(), strict=True)
        return StageTimes(gpus, *(low + way * (high - low) for low, high in pairs))
