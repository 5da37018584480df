"""A tiny transformer learns to add: text such as `27+58=085`, made by the script itself.

    python examples/train/tiny_transformer.py

Shows what a real script has beside the loop: a loss that is a mean over tokens, a schedule of
learning rates, clipped gradients, and checkpoints in a folder of its own.
"""

import sys

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import dovetail.train

LETTERS = "0123456789+="
LENGTH = len("27+58=085")
epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 6
folder = sys.argv[2] if len(sys.argv) > 2 else None


class Sums(torch.utils.data.Dataset[Tensor]):
    """All sums of two numbers below 100, as the numbers of their letters."""

    def __len__(self) -> int:
        return 100 * 100

    def __getitem__(self, index: int) -> Tensor:
        a, b = divmod(index, 100)
        return torch.tensor([LETTERS.index(c) for c in f"{a:02}+{b:02}={a + b:03}"])


class Transformer(nn.Module):
    """Two layers that predict each letter from those before it."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), width)
        self.places = nn.Parameter(torch.zeros(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(LETTERS))

    def forward(self, text: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1])
        x = self.letters(text) + self.places[: text.shape[1]]
        return self.head(self.layers(x, mask=mask, is_causal=True))


torch.manual_seed(0)
model = Transformer()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=20)
job = dovetail.train.Job(
    model,
    optimizer,
    data=Sums(),
    batch_size=250,
    epochs=epochs,
    scheduler=scheduler,
    clip_norm=1.0,
    folder=folder,
)
for text in job.batches():
    guess = model(text[:, :-1])
    answer = text[:, 6:]  # the three digits behind the equals sign
    loss = cross_entropy(guess[:, 5:].flatten(0, 1), answer.flatten())
    job.backward(loss, weight=answer.numel())
    job.step()

if job.first:
    print(f"{job.samples_done} sums in {job.steps_done} steps, loss {job.loss:.3f}")
