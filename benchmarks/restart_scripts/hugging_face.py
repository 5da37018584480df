"""A script for Hugging Face's `Trainer` as its documentation has it, on a model and data made here.

    torchrun hugging_face.py FOLDER STEPS STEP_S

Only the printing of steps and the pause that stands for computing are ours.
"""

import os
import sys
import time

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

FOLDER, STEPS, STEP_S = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
WORDS, LENGTH, BATCH = 64, 16, 24


class Counting(Dataset):
    """Texts that count up, each from a start of its own."""

    def __len__(self) -> int:
        return 4800

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        text = (index * 7 + torch.arange(LENGTH)) % WORDS
        return {"input_ids": text, "labels": text}


class Tell(TrainerCallback):
    """Prints each step, and stands for a model that takes longer."""

    def on_log(self, args, state, control, logs, **rest):  # type: ignore[no-untyped-def]
        if state.is_world_process_zero and "loss" in logs:
            workers = args.world_size
            print(
                f"step {state.global_step} on {workers}: loss {float(logs['loss']):.6f}", flush=True
            )

    def on_step_begin(self, args, state, control, **rest):  # type: ignore[no-untyped-def]
        time.sleep(STEP_S)


args = TrainingArguments(
    output_dir=FOLDER,
    max_steps=STEPS,
    per_device_train_batch_size=BATCH // 4,
    save_steps=25,
    save_total_limit=2,
    logging_steps=1,
    learning_rate=1e-3,
    use_cpu=True,
    report_to=[],
    disable_tqdm=True,
)
config = GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=4)
trainer = Trainer(
    model=GPT2LMHeadModel(config), args=args, train_dataset=Counting(), callbacks=[Tell()]
)
last = get_last_checkpoint(FOLDER) if os.path.isdir(FOLDER) else None
trainer.train(resume_from_checkpoint=last)
