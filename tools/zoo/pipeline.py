"""Makes the profiles of A-SRPT's models: from public architecture facts, since nobody timed them.

The paper profiled nine models and published neither times nor plans. Everything here is derived
from layer shapes or assumed; the scaling curve is the planner's, on the paper's testbed.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from dovetail.algorithms.pipeline_time import packed_s
from dovetail.core.errors import InputError
from dovetail.physics.memory import MemoryLaw
from dovetail.physics.pipelines.pipeline import FAMILY
from dovetail.physics.pipelines.pipelined import LAUNCH_S, Pipelined, pipelined
from dovetail.physics.pipelines.planner import TESTBED, held_bytes, plan
from dovetail.physics.speed.compute import Compute
from dovetail.physics.speed.network import Network, RingLink
from dovetail.physics.zoo.profile import Batch, Curve, ModelProfile, StageTimes
from dovetail.physics.zoo.profile_file import ProfileSet
from dovetail.physics.zoo.provenance import Sourced
from tools.zoo.fit_placements import read_csv
from tools.zoo.from_curve import ASSUMED, DERIVED
from tools.zoo.input_pipeline import LOADERS, input_costs

GPU_TYPE = "v100m32"
COUNTS = (1, 2, 4, 8, 16, 32)
"""The GPU counts with a point of the curve."""
PAPER = "A-SRPT, Table I and section V.B"
PLANNER = (
    "dovetail's planner (physics/planner.py) on servers of eight V100, 300 GB/s inside and "
    "10 Gbit/s between, servers full but for the last, Heavy-Edge"
)
SHAPES = "counted from published layer shapes (physics/blocks.py)"
TITLES = {
    "vgg19": "VGG-19 on ImageNet",
    "resnet152": "ResNet-152 on ImageNet",
    "inception3": "Inception-V3 on ImageNet",
    "bert-large": "BERT-large on SQuAD 2.0",
    "xlnet-large": "XLNet-large on SQuAD 2.0",
    "t5-11b": "T5 with 11B parameters, 512 tokens",
    "gpt-6.7b": "GPT with 6.7B parameters, 512 tokens",
    "gpt-13b": "GPT with 13B parameters, 512 tokens",
    "gpt-175b": "GPT with 175B parameters, 512 tokens",
}
_TENSORFLOW = (
    "TensorFlow's convolutional benchmark, {} images/s on a P100 in FP32 (recalled, not checked), "
    "over the zoo's speed of a P100"
)
_MEGATRON = "39 TFLOP/s for one V100 in FP16 (Shoeybi et al. 2019)"
_HALF_PEAK = "half of the V100's FP32 peak of 15.7 TFLOP/s"
RATES = {
    "vgg19": "Muri's GPU stage of VGG-19: 16 images in 80 ms on a V100",
    "resnet152": _TENSORFLOW.format("92"),
    "inception3": _TENSORFLOW.format("142"),
    "bert-large": _HALF_PEAK,
    "xlnet-large": _HALF_PEAK,
}


def fit_pipeline(data: Path) -> ProfileSet:
    """Returns the models of A-SRPT. Only VGG-19's rate is measured; the data must bear it out."""
    _check_rate(data / "data" / "muri" / "stage_profiles_derived.csv")
    return ProfileSet(
        family=FAMILY,
        title="Models of A-SRPT's Table I on V100 servers, with pipeline plans",
        licence="MIT (derived here from public architecture facts)",
        sources=(("paper", PAPER), ("planner", PLANNER), ("shapes", SHAPES)),
        profiles=tuple(_profile(model) for model in pipelined().values()),
    )


def _check_rate(path: Path) -> None:
    """Raises InputError where Muri's VGG-19 does not run at the rate the planner uses."""
    model = pipelined()["vgg19"]
    rows = [r for r in read_csv(path) if (r["model"], r["num_gpu"]) == ("vgg19", "1")]
    for row in rows:
        stage_s = float(row["stage1_gpu_ms"]) / 1e3
        rate = 3 * sum(b.flops for b in model.blocks) * int(row["batch_size_per_gpu"]) / stage_s
        if abs(rate / model.flops_per_s - 1) < 0.01:
            return
    raise InputError(str(path), f"VGG-19 does not run at {model.flops_per_s:g} operations/s")


def _profile(model: Pipelined) -> ModelProfile:
    both = 1 + model.backward_factor
    rate = RATES.get(model.name, _MEGATRON)
    launch_s = LAUNCH_S * sum(block.layers for block in model.blocks)
    sample_s = sum(block.flops for block in model.blocks) / model.flops_per_s
    compute = Compute(both * launch_s, both * sample_s)
    parameters = sum(block.parameters for block in model.blocks)
    gradient_bytes = model.number_bytes * parameters
    precision = "FP16" if model.recomputed else "FP32"
    return ModelProfile(
        name=model.name,
        family=FAMILY,
        title=TITLES[model.name],
        aliases=(),
        gpu_type=Sourced(GPU_TYPE, ASSUMED, f"{PAPER}: V100; 32 GB are assumed"),
        gpus_per_node=Sourced(TESTBED.gpus, DERIVED, PAPER),
        batch=Sourced(
            Batch(model.batch, per_gpu=False, max_per_gpu=model.batch),
            DERIVED,
            f"{PAPER}: the mini-batch, taken for that of the whole job",
        ),
        max_gpus=Sourced(
            _most_useful(_curve(model).value), DERIVED, f"{PLANNER}; more are no faster"
        ),
        parameters=Sourced(parameters, DERIVED, SHAPES),
        gradient_bytes=Sourced(gradient_bytes, DERIVED, f"parameters in {precision}"),
        compute=((GPU_TYPE, Sourced(compute, ASSUMED, _compute_source(rate))),),
        overlap=Sourced(1.0, ASSUMED, "nothing overlaps, as in (7) of the paper"),
        network=Sourced(
            Network(
                RingLink(0.0, TESTBED.intra_bytes_per_s), RingLink(0.0, TESTBED.nic_bytes_per_s)
            ),
            DERIVED,
            PAPER,
        ),
        memory=_memory(model),
        curve=_curve(model),
        stages=_stages(model),
    )


def _compute_source(rate: str) -> str:
    return f"operations {SHAPES}; rate: {rate}; {1e6 * LAUNCH_S:g} us to launch a layer"


def _memory(model: Pipelined) -> Sourced[MemoryLaw]:
    """Returns what the fullest GPU holds on the fewest that hold the model."""
    needs = _needs(model)
    fixed, held = held_bytes(model, needs)
    where = "weights and gradients, the optimizer's state on the host (ZeRO-Offload, hidden)"
    if not model.recomputed:
        where = "weights, gradients and the optimizer's state in FP32"
    kept = "block inputs only, the rest recomputed" if model.recomputed else "all activations"
    return Sourced(
        MemoryLaw(fixed, (held - fixed) / model.batch),
        ASSUMED,
        f"{where}; {kept}; the fullest GPU of the plan on {needs}, the fewest that hold it",
    )


def _needs(model: Pipelined) -> int:
    """Returns the fewest GPUs of the curve that hold the model."""
    return next(gpus for gpus in COUNTS if plan(model, gpus))


def _curve(model: Pipelined) -> Sourced[Curve]:
    needs = _needs(model)
    least_s = packed_s(plan(model, needs), TESTBED)
    times = tuple(
        packed_s(plan(model, n), TESTBED) if n >= needs else least_s * needs / n for n in COUNTS
    )
    said = f"{PLANNER}; below {needs} GPUs it does not fit: in proportion" if needs > 1 else PLANNER
    return Sourced(Curve(COUNTS, times), DERIVED, said)


def _most_useful(curve: Curve) -> int:
    """Returns the count up to which each point of the curve is faster than the one before."""
    pairs = pairwise(zip(curve.gpus, curve.iteration_s, strict=True))
    slower = [before[0] for before, here in pairs if here[1] >= before[1]]
    return slower[0] if slower else curve.gpus[-1]


def _stages(model: Pipelined) -> Sourced[tuple[StageTimes, ...]]:
    """Returns the bottleneck stage's computing, what else it waits for, and loading."""
    cost = input_costs()[f"{FAMILY}/{model.name}"]
    curve = _curve(model).value
    rows = []
    for gpus, iteration_s in zip(curve.gpus, curve.iteration_s, strict=True):
        graph = plan(model, max(gpus, _needs(model)))
        busy_s = max(stage.forward_s + stage.backward_s for stage in graph)
        gpu_s = min(iteration_s, busy_s * max(1.0, _needs(model) / gpus))
        load_s = min(iteration_s, cost.load_s * model.batch / graph[0].replicas)
        on_disk = cost.load_is == "storage"
        rows.append(
            StageTimes(
                gpus=gpus,
                storage_s=load_s if on_disk else 0.0,
                cpu_s=0.0 if on_disk else load_s,
                gpu_s=gpu_s,
                network_s=iteration_s - gpu_s,
            )
        )
    said = f"GPU and network: the slowest stage of the plan; load ({cost.load_is}): {cost.source}"
    return Sourced(
        tuple(rows), ASSUMED, f"{said}; {LOADERS} loaders for each GPU of the first stage"
    )
