"""An ordinary script for torchrun, with checkpoints of its own: it goes on from the newest one.

    torchrun --nproc-per-node 2 examples/train/ddp_checkpoints.py 200 digits.pt
    dovetail submit --gpus 1..4 --elastic restart -- \\
        torchrun examples/train/ddp_checkpoints.py 200 digits.pt

Nothing here knows of Dovetail. On SIGTERM it saves after the step that it is in, and ends.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

STEPS, FILE = int(sys.argv[1]), sys.argv[2]
STEP_S = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
BATCH, SAVE_EVERY = 60, 50

terminated = torch.zeros(1)
signal.signal(signal.SIGTERM, lambda *_: terminated.fill_(1))
dist.init_process_group("gloo")
rank, workers = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
done = 0
if os.path.exists(FILE):
    saved = torch.load(FILE)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    done = saved["step"]
ddp = DistributedDataParallel(model)


def save(step: int) -> None:
    """Saves on one worker, so that the file is whole or the one before."""
    if rank == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, f"{FILE}.new")
        os.replace(f"{FILE}.new", FILE)


for step in range(done, STEPS):
    batch = torch.randint(1500, (BATCH,), generator=torch.Generator().manual_seed(step))
    mine = batch[rank::workers]
    loss = cross_entropy(ddp(images[mine]), labels[mine])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(STEP_S)
    # The mean over the batch, and whether any worker is to end: all of them end after one step.
    told = torch.cat([loss.detach().reshape(1) * len(mine) / BATCH, terminated])
    dist.all_reduce(told)
    if rank == 0:
        print(f"step {step + 1} on {workers}: loss {told[0].item():.6f}", flush=True)
    if told[1]:
        save(step + 1)
        break
    if (step + 1) % SAVE_EVERY == 0:
        save(step + 1)
dist.destroy_process_group()
