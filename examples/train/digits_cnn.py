"""`plain_digits.py`, made elastic: it trains on any number of workers, which may come and go.

    python examples/train/digits_cnn.py
    dovetail submit --gpus 1..4 -- python examples/train/digits_cnn.py

By hand it is one process, as before. As a submitted job its batches are shared out among as many
workers as it has at the moment.
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import dovetail.train

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 4

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
data = torch.utils.data.TensorDataset(images[:1500], labels[:1500])

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
job = dovetail.train.Job(model, optimizer, data=data, batch_size=60, epochs=epochs)

for x, y in job.batches():
    loss = cross_entropy(model(x), y)
    job.backward(loss)
    job.step()

if job.first:
    correct = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
    print(f"loss {job.loss:.3f}, {correct:.1%} of the unseen digits are right")
