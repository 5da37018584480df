"""An ordinary PyTorch script: a small network learns the handwritten digits of scikit-learn.

    python examples/train/plain_digits.py

Nothing here knows of Dovetail. `digits_cnn.py` is the same script, made elastic.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
data = torch.utils.data.TensorDataset(images[:1500], labels[:1500])

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loader = torch.utils.data.DataLoader(data, batch_size=60, shuffle=True)

for _epoch in range(4):
    for x, y in loader:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

correct = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
print(f"loss {loss.item():.3f}, {correct:.1%} of the unseen digits are right")
