"""A program that trains on the digits.

    python -m benchmarks.cpu_worker NET SAMPLES BATCH EPOCHS

Its steps last tens of milliseconds, as steps of real models do: with steps of two milliseconds a
pair of workers that wait for each other measures the machine's scheduler, not ours.
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import dovetail.train

CLASSES, SIDE = 10, 8


def dense(width: int = 1024) -> nn.Module:
    """Returns a network with many parameters for what it computes."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(SIDE * SIDE, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, CLASSES),
    )


def convolutional(width: int = 32) -> nn.Module:
    """Returns a network with few."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * width * SIDE * SIDE, CLASSES),
    )


NETS = {"dense": dense, "convolutional": convolutional}


def main(net: str, samples: int, batch: int, epochs: int) -> None:
    """Trains a network on the first digits."""
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images[:samples], dtype=torch.float32).unsqueeze(1) / 16
    data = torch.utils.data.TensorDataset(images, torch.tensor(digits.target[:samples]))
    model = NETS[net]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    job = dovetail.train.Job(model, optimizer, data=data, batch_size=batch, epochs=epochs)
    for x, y in job.batches():
        loss = cross_entropy(model(x), y)
        job.backward(loss)
        job.step()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
