"""Measures real PyTorch models on your GPU and writes them as a profile set for Dovetail.

    python examples/measure_gpu.py -o profiles/            # one GPU, about ten minutes
    python examples/measure_gpu.py --tiny --device cpu     # a dry run without a GPU, seconds
    dovetail models --profiles profiles/nvidia-a100-sxm4-40gb.toml

Needs PyTorch and nothing else that Dovetail does not. For ResNet-50, VGG-16, BERT-base, GPT-2
small and an actor-critic on Atari-like frames, all written below, it measures
- the training step over batch sizes, to which `a + b*B` is fitted,
- the stages of an iteration: storage, CPU, GPU (one GPU exchanges nothing: network is 0),
- a whole iteration whose next batch is prepared in the background,
- the memory over batch sizes, to which `fixed + per_sample*B` is fitted,
- every pair of models in two processes on the GPU: iteration time shared over alone.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import torch
import torch.multiprocessing as processes
from torch import Tensor, nn

from dovetail.core.cluster import DEFAULT_LINKS
from dovetail.physics.memory import MemoryLaw
from dovetail.physics.sharing.pairs import PairRatio
from dovetail.physics.speed.compute import Compute
from dovetail.physics.speed.network import Network
from dovetail.physics.zoo.profile import Batch, Curve, ModelProfile, StageTimes
from dovetail.physics.zoo.profile_file import ProfileSet, dump_profiles
from dovetail.physics.zoo.provenance import Provenance, Sourced
from dovetail.profiling.least_squares import error_of

MEASURED, FITTED, DERIVED, ASSUMED = Provenance

# ---------------------------------------------------------------------------- the models


class Bottleneck(nn.Module):
    """A residual block of ResNet-50."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            *_conv(inside, width, 1), nn.ReLU(),
            *_conv(width, width, 3, stride), nn.ReLU(),
            *_conv(width, out, 1),
        )  # fmt: skip
        plain = inside == out and stride == 1
        self.skip = nn.Identity() if plain else nn.Sequential(*_conv(inside, out, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.skip(x))


def _conv(inside: int, out: int, size: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    conv = nn.Conv2d(inside, out, size, stride, size // 2, bias=False)
    return conv, nn.BatchNorm2d(out)


def resnet(tiny: bool) -> nn.Module:
    """Returns ResNet-50, or four blocks of it."""
    depths, width = ((1, 1, 1, 1), 8) if tiny else ((3, 4, 6, 3), 64)
    layers: list[nn.Module] = [*_conv(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inside = width
    for stage, depth in enumerate(depths):
        for block in range(depth):
            stride = 2 if stage and not block else 1
            layers.append(Bottleneck(inside, width << stage, stride))
            inside = 4 * (width << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000))


def vgg(tiny: bool) -> nn.Module:
    """Returns VGG-16, or one with an eighth of its channels."""
    cut, hidden = (8, 64) if tiny else (1, 4096)
    layers: list[nn.Module] = []
    inside = 3
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            layers += [nn.Conv2d(inside, width // cut, 3, padding=1), nn.ReLU()]
            inside = width // cut
        layers.append(nn.MaxPool2d(2))
    head = [nn.Linear(inside * 49, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()]
    pool = nn.AdaptiveAvgPool2d(7)
    return nn.Sequential(*layers, pool, nn.Flatten(), *head, nn.Linear(hidden, 1000))


class Transformer(nn.Module):
    """BERT (every token sees all) or GPT-2 (every token sees those before it)."""

    def __init__(self, *, words: int, width: int, depth: int, length: int, causal: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(
            width, max(1, width // 64), 4 * width, activation="gelu", batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.causal = causal

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        mask = None
        if self.causal:
            mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        hidden = self.layers(self.words(tokens) + self.places[:length], mask=mask)
        return (hidden @ self.words.weight.T).flatten(0, 1)


def bert(tiny: bool) -> nn.Module:
    """Returns BERT-base with sequences of 384 tokens."""
    if tiny:
        return Transformer(words=500, width=64, depth=2, length=16, causal=False)
    return Transformer(words=30522, width=768, depth=12, length=384, causal=False)


def gpt2(tiny: bool) -> nn.Module:
    """Returns GPT-2 small with sequences of 1024 tokens."""
    if tiny:
        return Transformer(words=500, width=64, depth=2, length=32, causal=True)
    return Transformer(words=50257, width=768, depth=12, length=1024, causal=True)


def actor_critic(tiny: bool) -> nn.Module:
    """Returns the convolutional policy of the Atari papers; its six outputs are the actions."""
    cut = 4 if tiny else 1
    return nn.Sequential(
        nn.Conv2d(4, 32 // cut, 8, 4), nn.ReLU(),
        nn.Conv2d(32 // cut, 64 // cut, 4, 2), nn.ReLU(),
        nn.Conv2d(64 // cut, 64 // cut, 3, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(49 * 64 // cut, 512 // cut), nn.ReLU(), nn.Linear(512 // cut, 6),
    )  # fmt: skip


@dataclass(frozen=True)
class Workload:
    """A model and its data: raw bytes of a sample on storage, and how the CPU prepares them."""

    title: str
    build: Callable[[bool], nn.Module]
    sample: Callable[[bool], tuple[int, ...]]
    classes: Callable[[bool], int]
    batch: int
    cpu_rounds: int

    @property
    def is_text(self) -> bool:
        """Tells whether a sample is a row of tokens, each of which is predicted."""
        return self.build in (bert, gpt2)


def _image(tiny: bool) -> tuple[int, ...]:
    return (3, 64, 64) if tiny else (3, 224, 224)


WORKLOADS = {
    "resnet50": Workload("ResNet-50, 224 x 224", resnet, _image, lambda tiny: 1000, 64, 1),
    "vgg16": Workload("VGG-16, 224 x 224", vgg, _image, lambda tiny: 1000, 32, 1),
    "bert": Workload(
        "BERT-base, 384 tokens", bert, lambda t: (16,) if t else (384,),
        lambda t: 500 if t else 30522, 16, 1,
    ),
    "gpt2": Workload(
        "GPT-2 small, 1024 tokens", gpt2, lambda t: (32,) if t else (1024,),
        lambda t: 500 if t else 50257, 8, 1,
    ),
    # An environment makes one sample in several emulated frames, all on the CPU.
    "a2c": Workload(
        "Actor-critic on 84 x 84 frames", actor_critic, lambda t: (4, 84, 84), lambda t: 6, 64, 16
    ),
}  # fmt: skip

# ---------------------------------------------------------------------------- measuring


class Trainer:
    """One model in training on one device, step by step."""

    def __init__(self, name: str, device: str, tiny: bool) -> None:
        torch.manual_seed(0)
        self.work, self.device, self.tiny = WORKLOADS[name], torch.device(device), tiny
        self.model = self.work.build(tiny).to(self.device)
        self.optimiser = torch.optim.Adam(self.model.parameters(), 1e-4)
        self.loss = nn.CrossEntropyLoss()

    def prepare(self, raw: np.ndarray, batch: int) -> tuple[Tensor, Tensor]:
        """Returns a batch made on the CPU from raw bytes: the CPU stage."""
        shape = (batch, *self.work.sample(self.tiny))
        data = raw[: int(np.prod(shape))].reshape(shape)
        for _ in range(self.work.cpu_rounds):
            made = torch.from_numpy(np.flip(data, -1).copy()).float().sub_(127.5).div_(64)
        if self.work.is_text:
            tokens = torch.from_numpy(data.astype(np.int64)) % self.work.classes(self.tiny)
            return tokens, tokens.flatten()
        return made, torch.from_numpy(raw[:batch].astype(np.int64)) % self.work.classes(self.tiny)

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        """Makes one training step and waits for it: the GPU stage."""
        inputs, targets = inputs.to(self.device), targets.to(self.device)
        self.optimiser.zero_grad(set_to_none=True)
        self.loss(self.model(inputs), targets).backward()
        self.optimiser.step()
        self.wait()

    def wait(self) -> None:
        """Waits until the device has done all it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def context_bytes(self) -> float:
        """Returns what the device holds outside the allocator; other users of it count too."""
        if self.device.type != "cuda":
            return 0.0
        free, total = torch.cuda.mem_get_info(self.device)
        return float(total - free - torch.cuda.memory_reserved(self.device))

    def bytes_of(self, batch: int) -> int:
        """Returns what a raw batch takes on storage."""
        return max(batch, batch * int(np.prod(self.work.sample(self.tiny))))


class Store:
    """A file of random bytes that is read anew each time, past the page cache where it can be."""

    def __init__(self, folder: str, size: int) -> None:
        self.path = Path(folder) / "samples.bin"
        self.path.write_bytes(np.random.default_rng(0).bytes(size))

    def read(self, size: int) -> np.ndarray:
        """Returns the first bytes of the file: the storage stage."""
        with self.path.open("rb") as file:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return np.frombuffer(file.read(size), np.uint8)


def seconds(act: Callable[[], object], repeats: int, warm_up: int) -> float:
    """Returns the median seconds of an act, after some that do not count."""
    times = []
    for i in range(warm_up + repeats):
        began = time.perf_counter()
        act()
        if i >= warm_up:
            times.append(time.perf_counter() - began)
    return statistics.median(times)


@contextmanager
def counted_bytes(device: torch.device) -> Iterator[Callable[[], float]]:
    """Gives a function that returns the peak bytes since: the allocator's, or what is saved."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield lambda: float(torch.cuda.max_memory_allocated(device))
        return
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield lambda: float(sum(kept.values()))


@dataclass
class Rows:
    """What was measured of one model over batch sizes."""

    batches: list[int]
    step_s: list[float]
    used_bytes: list[float]


def over_batches(trainer: Trainer, limit: int, repeats: int) -> Rows:
    """Returns step times and memory for doubling batches, up to a limit or the end of memory."""
    rows = Rows([], [], [])
    batch = 1
    while batch <= limit:
        inputs, targets = trainer.prepare(np.zeros(trainer.bytes_of(batch), np.uint8), batch)
        try:
            step_s = seconds(lambda: trainer.step(inputs, targets), repeats, warm_up=3)  # noqa: B023
            with counted_bytes(trainer.device) as used:
                trainer.step(inputs, targets)
                rows.used_bytes.append(used())
        except torch.cuda.OutOfMemoryError:
            trainer.optimiser.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            break
        rows.batches.append(batch)
        rows.step_s.append(step_s)
        batch *= 2
    return rows


def stages(trainer: Trainer, store: Store, batch: int, repeats: int) -> tuple[StageTimes, float]:
    """Returns the stage times at a batch, and the iteration with the next batch in the making."""
    size = trainer.bytes_of(batch)
    raw = store.read(size)
    made = trainer.prepare(raw, batch)
    storage_s = seconds(lambda: store.read(size), repeats, warm_up=1)
    cpu_s = seconds(lambda: trainer.prepare(raw, batch), repeats, warm_up=1)
    gpu_s = seconds(lambda: trainer.step(*made), repeats, warm_up=2)

    def iterate() -> None:
        ahead = threading.Thread(target=lambda: trainer.prepare(store.read(size), batch))
        ahead.start()
        trainer.step(*made)
        ahead.join()

    whole_s = seconds(iterate, repeats, warm_up=1)
    return StageTimes(1, storage_s, cpu_s, gpu_s, 0.0), whole_s


def line(batches: list[int], values: list[float]) -> tuple[float, float]:
    """Returns (a, b), neither negative, of the line `a + b*B` that is nearest in relative terms."""
    from scipy.optimize import nnls

    x, y = np.array(batches, float), np.array(values)
    a, b = nnls(np.column_stack([1 / y, x / y]), np.ones(len(y)))[0]
    return float(a), float(b)


# ---------------------------------------------------------------------------- pairs


def serve(pipe, barrier, device: str, tiny: bool) -> None:  # type: ignore[no-untyped-def]
    """Trains what it is told to for as long as it is told to, and says how fast: one process."""
    torch.set_num_threads(1)
    trainers: dict[str, Trainer] = {}
    while (order := pipe.recv()) is not None:
        name, batch, lasting_s, together = order
        if name not in trainers:
            trainers[name] = Trainer(name, device, tiny)
        trainer = trainers[name]
        made = trainer.prepare(np.zeros(trainer.bytes_of(batch), np.uint8), batch)
        trainer.step(*made)
        if together:
            barrier.wait()
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < lasting_s:
            trainer.step(*made)
            count += 1
        pipe.send((time.perf_counter() - began) / count)


def pairs(batches: dict[str, int], device: str, tiny: bool, lasting_s: float) -> list[PairRatio]:
    """Returns the slowdown of every pair of models, each in a process of its own."""
    context = processes.get_context("spawn")
    barrier = context.Barrier(2)
    pipes = []
    for _ in range(2):
        ours, theirs = context.Pipe()
        context.Process(target=serve, args=(theirs, barrier, device, tiny), daemon=True).start()
        pipes.append(ours)
    first, second = pipes

    def run(pipe, name: str, together: bool) -> None:  # type: ignore[no-untyped-def]
        pipe.send((name, batches[name], lasting_s, together))

    alone = {}
    for name in batches:
        run(first, name, together=False)
        alone[name] = first.recv()
    found = []
    for one, other in combinations_with_replacement(batches, 2):
        run(first, one, together=True)
        run(second, other, together=True)
        slow, slow_other = first.recv() / alone[one], second.recv() / alone[other]
        found.append(PairRatio(one, batches[one], other, batches[other], slow, slow_other))
        print(f"  {one} with {other}: {slow:.2f}, {slow_other:.2f}")
    for pipe in pipes:
        pipe.send(None)
    return found


# ---------------------------------------------------------------------------- the profile set


def profile_of(
    name: str, options: argparse.Namespace, gpu_type: str, family: str, store: Store
) -> ModelProfile:
    """Measures one model and returns it as the zoo holds it."""
    trainer = Trainer(name, options.device, options.tiny)
    rows = over_batches(trainer, 4 if options.tiny else options.max_batch, options.repeats)
    batch = min(trainer.work.batch, rows.batches[-1])
    stage, whole_s = stages(trainer, store, batch, options.repeats)
    kept_bytes = trainer.context_bytes()
    parameters = float(sum(p.numel() for p in trainer.model.parameters()))
    on_cpu = options.device == "cpu"
    outside_bytes = 16 * parameters if on_cpu else kept_bytes
    fixed_bytes, sample_bytes = line(rows.batches, rows.used_bytes)
    a_s, b_s = line(rows.batches, rows.step_s)
    here = f"examples/measure_gpu.py on {gpu_type}, PyTorch {torch.__version__}, FP32"
    fitted = Sourced(Compute(a_s, b_s), FITTED, f"{here}: step times over batches")
    on_line = error_of(a_s + b_s * np.array(rows.batches, float), np.array(rows.step_s))
    print(
        f"{name}: {1e3 * a_s:.2f} ms + {1e3 * b_s:.3f} ms a sample, {on_line.mean:.1%} off the line"
    )
    return ModelProfile(
        name=name,
        family=family,
        title=trainer.work.title + (" (tiny)" if options.tiny else ""),
        aliases=(),
        gpu_type=Sourced(gpu_type, MEASURED, here),
        gpus_per_node=Sourced(8, ASSUMED, "one GPU was measured"),
        batch=Sourced(Batch(batch, True, rows.batches[-1]), MEASURED, "the largest batch that ran"),
        max_gpus=Sourced(8, ASSUMED, "one GPU was measured"),
        parameters=Sourced(parameters, MEASURED, "counted in the model"),
        gradient_bytes=Sourced(4 * parameters, DERIVED, "parameters x 4 bytes (FP32)"),
        compute=((gpu_type, fitted),),
        overlap=Sourced(1.0, ASSUMED, "one GPU was measured: no overlap taken"),
        network=Sourced(Network.of(DEFAULT_LINKS), ASSUMED, "10 Gbit/s between nodes, PCIe 3.0"),
        memory=Sourced(
            MemoryLaw(fixed_bytes + outside_bytes, sample_bytes), MEASURED,
            f"{here}: peak of the allocator, and the context" if not on_cpu else
            f"{here}: saved tensors, and 16 bytes a parameter",
        ),
        curve=Sourced(Curve((1,), (whole_s,)), MEASURED, f"{here}: next batch in the making"),
        stages=Sourced((stage,), MEASURED, here),
    )  # fmt: skip


def device_name(device: str) -> str:
    """Returns the device's name as a file name: lower case, digits and hyphens."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def main() -> None:
    """Measures, writes the file and says where it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true", help="small models and few repeats")
    parser.add_argument("--models", default=",".join(WORKLOADS), help="which, by commas")
    parser.add_argument("--max-batch", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--pair-seconds", type=float, default=5.0, help="per pair; 0: no pairs")
    parser.add_argument("-o", "--output", type=Path, default=Path(), help="folder for the file")
    options = parser.parse_args()
    if options.tiny:
        options.repeats, options.pair_seconds = 3, min(0.2, options.pair_seconds)
    names = options.models.split(",")
    if unknown := [name for name in names if name not in WORKLOADS]:
        parser.error(f"unknown model {unknown[0]}: one of {', '.join(WORKLOADS)}")
    gpu_type = device_name(options.device)
    family = f"{gpu_type}-tiny" if options.tiny else gpu_type
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder, 2**22 if options.tiny else 2**28)
        profiles = tuple(profile_of(name, options, gpu_type, family, store) for name in names)
    batches = {profile.name: profile.batch.value.size for profile in profiles}
    found = (
        pairs(batches, options.device, options.tiny, options.pair_seconds)
        if options.pair_seconds
        else []
    )
    measured = ProfileSet(
        family=family,
        title=f"Measured on {gpu_type}" + (" with tiny models" if options.tiny else ""),
        licence="yours",
        sources=(),
        profiles=profiles,
        pairs=tuple(found),
    )
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"{family}.toml"
    path.write_text(dump_profiles(measured), encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
