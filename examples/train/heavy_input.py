"""A job whose input costs more than its model: pictures from disk, decoded and bent by the CPU.

    python examples/train/heavy_input.py [SAMPLES] [LOADERS]

Each sample is a file of its own (storage), which is unpacked, scaled and turned at random (CPU),
by loader processes that read ahead. Such a job leaves the GPU free most of the time: a neighbour
that computes much and reads little fits beside it. The random turn of a picture depends on the
seed, the pass and the picture, not on who reads it.
"""

import random
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import dovetail.train

count = int(sys.argv[1]) if len(sys.argv) > 1 else 600
loaders = int(sys.argv[2]) if len(sys.argv) > 2 else 2
SIDE = 64


class Pictures(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Digits as packed files in a folder."""

    def __init__(self, folder: Path) -> None:
        digits = load_digits()
        self.labels = [int(label) for label in digits.target[:count]]
        self.files = [folder / f"{i}.z" for i in range(count)]
        for file, image in zip(self.files, digits.images, strict=False):
            big = np.kron(image, np.ones((SIDE // 8, SIDE // 8))).astype(np.float32)
            file.write_bytes(zlib.compress(big.tobytes()))

    def __len__(self) -> int:
        return count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        packed = self.files[index].read_bytes()
        picture = np.frombuffer(zlib.decompress(packed), np.float32).reshape(SIDE, SIDE)
        for _ in range(8):
            picture = (picture + np.roll(picture, 1, 0) + np.roll(picture, 1, 1)) / 3
        shift = random.randrange(-4, 5)
        turned = np.roll(picture, shift, axis=1).copy()
        return torch.from_numpy(turned)[None] / 16, self.labels[index]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        model = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(64, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        job = dovetail.train.Job(
            model, optimizer, data=Pictures(Path(folder)), batch_size=50, epochs=2, loaders=loaders
        )
        for x, y in job.batches():
            job.backward(cross_entropy(model(x), y))
            job.step()
        if job.first:
            print(f"{job.samples_done} pictures, loss {job.loss:.3f}")
