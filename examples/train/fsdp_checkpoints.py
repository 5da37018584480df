"""An ordinary FSDP2 script whose checkpoints, of torch.distributed.checkpoint, fit any number.

    torchrun --nproc-per-node 2 examples/train/fsdp_checkpoints.py 100 checkpoints
    dovetail submit --gpus 2..4 --elastic restart -- \\
        torchrun examples/train/fsdp_checkpoints.py 100 checkpoints

Nothing here knows of Dovetail. It saves every ten steps: what came after the newest checkpoint is
lost when it is ended.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

STEPS, FOLDER = int(sys.argv[1]), Path(sys.argv[2])
STEP_S = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
BATCH, LENGTH, WORDS, WIDTH, SAVE_EVERY = 24, 16, 64, 32, 10

device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if device == "cuda" else "gloo")
rank, workers = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

layers = [nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True) for _ in range(2)]
model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *layers, nn.Linear(WIDTH, WORDS)).to(device)
mesh = init_device_mesh(device, (workers,))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def newest() -> int:
    """Returns the step of the newest complete checkpoint, 0 without one."""
    return max((int(p.parent.name) for p in FOLDER.glob("*/.metadata")), default=0)


def state(step: int) -> dict[str, object]:
    """Returns what a checkpoint holds."""
    net, opt = get_state_dict(model, optimizer)
    return {"model": net, "optimizer": opt, "step": torch.tensor(step)}


done = newest()
if done:
    saved = state(done)
    dcp.load(saved, checkpoint_id=FOLDER / str(done))
    set_state_dict(
        model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"]
    )
for step in range(done, STEPS):
    draw = torch.Generator().manual_seed(step)
    start = torch.randint(WORDS, (BATCH, 1), generator=draw)
    text = (start + torch.arange(LENGTH + 1)) % WORDS
    mine = text[rank::workers].to(device)
    loss = cross_entropy(model(mine[:, :-1]).flatten(0, 1), mine[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(STEP_S)
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if rank == 0:
        print(f"step {step + 1} on {workers}: loss {mean.item() / workers:.6f}", flush=True)
    if (step + 1) % SAVE_EVERY == 0:
        dcp.save(state(step + 1), checkpoint_id=FOLDER / str(step + 1))
dist.destroy_process_group()
