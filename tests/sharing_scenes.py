"""Small busy scenes in which jobs of several models may share GPUs, drawn by hypothesis."""

from dataclasses import dataclass

from hypothesis import strategies as st

from builders import Row, scene_of, trace_of
from dovetail.core.cluster import GIB, Cluster, NodeGroup
from dovetail.physics.placed import placed_physics
from dovetail.physics.sharing.interference import Injected, Interference
from dovetail.physics.sharing.service_demand import ServiceDemand
from dovetail.physics.zoo.models import shipped
from dovetail.sim.scene import Scene

MODELS = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3", "")


@dataclass(frozen=True)
class Uneven(Interference):
    """Ratios that differ with the models and fall with smaller micro-batches."""

    worst: float

    def ratio(self, mine: ServiceDemand, other: ServiceDemand) -> float:
        a, b = ((load.model.name if load.model else "") for load in (mine, other))
        micro_batch, other_micro_batch = mine.micro_batch, other.micro_batch
        mixed = sum(map(ord, a)) * 7 + sum(map(ord, b)) * 13
        size = micro_batch / (micro_batch + 4.0) + other_micro_batch / (other_micro_batch + 8.0)
        return 1.0 + (self.worst - 1.0) * (mixed % 17) / 16 * size / 2


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Draws a small busy cluster and jobs of the six models, or of none."""
    rows = []
    t = 0.0
    by_cpus = draw(st.integers(0, 3)) == 0
    for _ in range(draw(st.integers(3, 22))):
        t += draw(st.sampled_from([0.0, 0.0, 3.0, 40.0]))
        model = draw(st.sampled_from(MODELS))
        gpus = draw(st.sampled_from([1, 1, 2, 3, 4, 6, 8]))
        rows.append(
            Row(
                gpus,
                draw(st.sampled_from([5.0, 20.0, 20.0, 90.0, 400.0])),
                submit_s=t,
                model=model,
                batch_size=draw(st.sampled_from([0, 0, 64])) * gpus,
                shareable=draw(st.integers(0, 9)) > 0,
                cpus=draw(st.sampled_from([0.0, 1.0, 5.0])) * gpus if by_cpus else 0.0,
            )
        )
    trace = trace_of(*rows)
    memory = draw(st.sampled_from([6, 11, 16, 40])) * GIB
    nodes = draw(st.integers(2, 4))
    cluster = Cluster((NodeGroup("all", nodes, 4, gpu_memory_bytes=memory, cpus=20.0),))
    uneven = Uneven(draw(st.sampled_from([1.0, 1.6, 3.0, 6.0])))
    even = Injected(draw(st.sampled_from([1.0, 1.25, 1.5, 1.75, 2.0])))
    chosen = draw(st.sampled_from([uneven, even]))
    truth = placed_physics(trace.jobs, cluster, shipped(), interference=chosen)
    breaks = draw(st.booleans())
    capacity = [(30.0, [(0, "down")]), (60.0, [(1, "draining")]), (90.0, [(0, "up"), (1, "up")])]
    return scene_of(
        trace,
        cluster,
        truth=truth,
        switching=draw(st.sampled_from(["none", "restart:7"])),
        forecast=draw(st.sampled_from(["known", "noisy:0.7"])),
        capacity=capacity if breaks else (),
        placing=draw(st.sampled_from(["prefer", "strict", "strict,first-fit"])),
    )
