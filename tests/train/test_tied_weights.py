"""Weights under two names are one: saved once, sent once, and still tied after that."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from dovetail.train.state.checkpoint import (
    TrainingPosition,
    list_checkpoints,
    restore,
    snapshot,
    write,
)
from dovetail.train.state.state import TrainingState
from dovetail.train.sync.state_transfer import flatten, pack, slices_of, unpack

ROWS, WIDTH = 400, 50
WEIGHT_BYTES = ROWS * WIDTH * 4


class Tied(nn.Module):
    """An embedding and an output layer with the same weights: one parameter, or two on one
    storage."""

    def __init__(self, *, two_parameters: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(ROWS, WIDTH)
        self.output = nn.Linear(WIDTH, ROWS, bias=False)
        weight = self.embedding.weight
        self.output.weight = nn.Parameter(weight.detach()) if two_parameters else weight


def parts(seed: int, *, two_parameters: bool) -> TrainingState:
    torch.manual_seed(seed)
    model = Tied(two_parameters=two_parameters)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.output(model.embedding(torch.arange(8))).sum().backward()
    optimizer.step()
    return TrainingState(model, optimizer)


def assert_tied(model: nn.Module, like: nn.Module) -> None:
    assert isinstance(model, Tied) and isinstance(like, Tied)
    assert torch.equal(model.embedding.weight, like.embedding.weight)
    with torch.no_grad():
        model.embedding.weight[0, 0] = 7.0
    assert model.output.weight[0, 0] == 7.0


@pytest.mark.parametrize("two_parameters", [False, True])
def test_tied_weights_are_saved_once_and_restored_tied(
    tmp_path: Path, two_parameters: bool
) -> None:
    mine = parts(0, two_parameters=two_parameters)
    write(tmp_path, 1, snapshot(mine, TrainingPosition(step=1, known=True), {}))
    (path,) = list_checkpoints(tmp_path)
    momenta = 2 if two_parameters else 1
    assert path.stat().st_size < (1 + momenta) * WEIGHT_BYTES + 20_000
    state = torch.load(path, weights_only=True)["model"]
    assert state["embedding.weight"].data_ptr() == state["output.weight"].data_ptr()
    other = parts(1, two_parameters=two_parameters)
    assert restore(tmp_path, other, {}) is not None
    assert_tied(other.model, mine.model)


@pytest.mark.parametrize("two_parameters", [False, True])
def test_tied_weights_are_sent_once_and_stay_tied(two_parameters: bool) -> None:
    mine = parts(0, two_parameters=two_parameters)
    other = parts(1, two_parameters=two_parameters)
    other.take_skeleton(mine.skeleton())
    slices = slices_of(mine.tensors(), mine.units(), 1000)
    sent = 0
    for spans in slices:
        packed = pack(flatten(mine.tensors()), spans)
        unpack(flatten(other.tensors()), spans, packed)
        sent += packed.numel()
    momenta = 2 if two_parameters else 1
    assert sent == (1 + momenta) * WEIGHT_BYTES
    assert other.digest() == mine.digest()
    assert_tied(other.model, mine.model)


def test_tensors_that_only_share_a_storage_are_saved_each_as_they_are(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    model.register_buffer("row", model.weight.detach()[0])
    model.register_buffer("turned", model.weight.detach().t())
    mine = TrainingState(model, torch.optim.SGD(model.parameters(), lr=0.1))
    whole = mine.whole()["model"]
    assert torch.equal(whole["row"], model.weight[0])
    assert torch.equal(whole["turned"], model.weight.t())
