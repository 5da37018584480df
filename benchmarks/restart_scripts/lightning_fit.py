"""A script for Lightning's `Trainer` as its documentation has it, on a model and data made here.

    torchrun lightning_fit.py FOLDER STEPS STEP_S

Only the printing of steps and the pause that stands for computing are ours.
"""

import os
import sys
import time

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

FOLDER, STEPS, STEP_S = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])


class Net(lightning.LightningModule):
    """A regression."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch, index):  # type: ignore[no-untyped-def]
        time.sleep(STEP_S)
        x, y = batch
        loss = mse_loss(self.net(x), y)
        if self.global_rank == 0:
            workers = self.trainer.world_size
            print(f"step {self.global_step + 1} on {workers}: loss {loss.item():.6f}", flush=True)
        return loss

    def configure_optimizers(self):  # type: ignore[no-untyped-def]
        return torch.optim.Adam(self.parameters(), lr=1e-3)


draw = torch.Generator().manual_seed(0)
x = torch.randn(4800, 16, generator=draw)
data = TensorDataset(x, x.sum(1, keepdim=True).sin())
torch.manual_seed(0)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
    max_steps=STEPS,
    callbacks=[ModelCheckpoint(FOLDER, save_last=True, every_n_train_steps=25)],
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Net(), DataLoader(data, batch_size=6, shuffle=True), ckpt_path="last")
