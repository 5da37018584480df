"""A job that is measured beside another on one GPU, by `python -m benchmarks.gpu`.

    python -m benchmarks.gpu_member MODEL --window FILE

Five models that lean on different parts of a GPU, and one that leans on its loaders. It trains
until FILE says from when to when to count, so that jobs side by side are measured at one time, and
then prints what it did.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from dovetail.train import Job
from dovetail.train.process.device import synchronize

WARM_UP = 3
SAMPLES = 4096


class Block(nn.Module):
    """Two convolutions beside a short cut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.inner(x))


def convolutions(width: int) -> nn.Module:
    """Returns a residual network: bound by arithmetic."""
    return nn.Sequential(
        nn.Unflatten(1, (3, 32, 32)),
        nn.Conv2d(3, width, 3, padding=1),
        *(Block(width) for _ in range(8)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )


def attention(width: int) -> nn.Module:
    """Returns a transformer."""
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
    return nn.Sequential(
        nn.Unflatten(1, (32, 96)), nn.Linear(96, width), nn.TransformerEncoder(layer, 4)
    )


class Recurrent(nn.Module):
    """An LSTM: many small kernels, one after the other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.LSTM(96, width, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.view(-1, 32, 96))[0]  # type: ignore[no-any-return]


class Recommendation(nn.Module):
    """Rows of a large table: bound by the memory of the GPU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(2000 * width, width, mode="mean")
        self.inner = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x: Tensor) -> Tensor:
        rows = (x.abs() * 1000 * self.table.embedding_dim).long() % self.table.num_embeddings
        return self.inner(self.table(rows))  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class GpuKind:
    """A model, its width and batch, and how often a loader unpacks each sample."""

    model: Callable[[int], nn.Module]
    width: int
    batch: int
    unpacked: int = 1


GPU_KINDS = {
    "convolutions": GpuKind(convolutions, 128, 256),
    "attention": GpuKind(attention, 512, 256),
    "recurrent": GpuKind(Recurrent, 512, 128),
    "recommendation": GpuKind(Recommendation, 256, 1024),
    "small": GpuKind(convolutions, 16, 32),
    "input": GpuKind(convolutions, 32, 128, unpacked=40),
}


class Packed(torch.utils.data.Dataset[tuple[Tensor]]):
    """Samples that a loader unpacks, as often as asked for."""

    def __init__(self, unpacked: int) -> None:
        values = torch.randint(0, 16, (64, 3 * 32 * 32), dtype=torch.uint8)
        self._packed = [zlib.compress(bytes(row.tolist()), 1) for row in values]
        self._unpacked = unpacked

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor]:
        for _ in range(self._unpacked):
            raw = zlib.decompress(self._packed[index % len(self._packed)])
        return (torch.frombuffer(bytearray(raw), dtype=torch.uint8).float() / 8 - 1,)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=GPU_KINDS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--window", type=Path, required=True)
    parser.add_argument("--ready", type=Path, required=True, help="made once it is warm")
    parser.add_argument("--loaders", type=int, default=2)
    parser.add_argument("--part", type=int, default=1, help="divides width and batch")
    options = parser.parse_args()
    kind = GPU_KINDS[options.kind]
    torch.manual_seed(0)
    model = kind.model(max(4, kind.width // options.part)).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    job = Job(
        model,
        optimizer,
        data=Packed(kind.unpacked),
        batch_size=max(2, kind.batch // options.part),
        epochs=100_000,
        loaders=options.loaders,
    )
    print(json.dumps(train(job, model, options.window, options.ready)))


def train(job: Job, model: nn.Module, window: Path, ready: Path) -> dict[str, list[float]]:
    """Trains to the end of the window; returns what was done in it."""
    counted: list[float] = []
    waited_s: list[float] = []
    from_s = until_s = float("inf")
    asked_s = time.monotonic()
    for steps, (x,) in enumerate(job.batches(), 1):
        began_s = time.monotonic()
        job.backward(model(x).square().mean())
        job.step()
        synchronize(job.device)
        ended_s = time.monotonic()
        if from_s <= ended_s < until_s:
            counted.append(ended_s)
            waited_s.append(began_s - asked_s)
        asked_s = ended_s
        if steps == WARM_UP:
            ready.touch()
        if until_s == float("inf") and window.exists():
            from_s, until_s = json.loads(window.read_text())
        if ended_s >= until_s:
            job.stop()
    return {"ends_s": counted, "waited_s": waited_s}


if __name__ == "__main__":
    main()
