"""State is cut into slices, sent and put together again; checkpoints are whole or not there."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dovetail.train.state import checkpoint
from dovetail.train.state.checkpoint import (
    CheckpointWriter,
    TrainingPosition,
    list_checkpoints,
    restore,
    snapshot,
)
from dovetail.train.state.state import TrainingState, from_bytes, to_bytes
from dovetail.train.sync.state_transfer import flatten, is_dense, pack, slices_of, unpack


def parts(init: int, *, optimizer: Any = torch.optim.AdamW) -> TrainingState:
    """Returns a model with the oddities of real ones, after a step."""
    torch.manual_seed(init)
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 2)
    ).to(memory_format=torch.channels_last)
    trained = optimizer(model.parameters(), lr=0.1 * (init + 1))
    schedule = torch.optim.lr_scheduler.MultiStepLR(trained, [1, 5])
    model(torch.randn(2, 2, 4, 4)).sum().backward()
    trained.step()
    schedule.step()
    return TrainingState(
        model, trained, {"scheduler": schedule, "scaler": torch.amp.GradScaler("cpu")}
    )


@settings(max_examples=60, deadline=None)
@given(
    shapes=st.lists(st.lists(st.integers(0, 4), max_size=3), max_size=6),
    together=st.integers(1, 3),
    slice_bytes=st.integers(8, 200),
)
def test_slices_hold_every_element_once(
    shapes: list[list[int]], together: int, slice_bytes: int
) -> None:
    kinds = (torch.float32, torch.int64, torch.bfloat16)
    given_ = [torch.rand(s).mul(100).to(kinds[i % 3]) for i, s in enumerate(shapes)]
    taken = [torch.zeros_like(t) for t in given_]
    places = list(range(len(given_)))
    units = [places[i : i + together] for i in places[::together]]
    for spans in slices_of(given_, units, slice_bytes):
        packed = pack(flatten(given_), spans)
        unpack(flatten(taken), spans, packed)
    assert all(torch.equal(a, b) for a, b in zip(given_, taken, strict=True))


def test_an_element_travels_with_its_state_and_large_parameters_in_parts() -> None:
    model = nn.Linear(50, 3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 50)).sum().backward()
    optimizer.step()
    held = TrainingState(model, optimizer)
    tensors, units = held.tensors(), held.units()
    sizes = [[tensors[i].numel() for i in unit] for unit in units]
    assert sizes == [[150, 1, 150, 150], [3, 1, 3, 3]]
    slices = slices_of(tensors, units, 600)
    assert len(slices) == 4
    runs = [
        {(s.begin, s.end) for s in spans if tensors[s.tensor].numel() == 150} for spans in slices
    ]
    assert runs == [{(0, 50)}, {(50, 100)}, {(100, 150)}, set()]
    assert [tensors[s.tensor].numel() for s in slices[0]] == [1, 150, 150, 150]


def test_tensors_that_are_not_alike_travel_whole() -> None:
    unlike = [torch.ones(10, 10), torch.ones(10), torch.ones(10, 10).t()]
    assert len(slices_of(unlike, [[0, 1, 2]], 80)) == 1
    assert len(slices_of(unlike, [[0], [1], [2]], 80)) == 11


def test_only_optimizers_known_to_work_element_by_element_are_sent_in_parts() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    assert TrainingState(model, optimizer).elementwise
    optimizer.register_step_post_hook(lambda *_: None)
    assert not TrainingState(model, optimizer).elementwise
    assert not TrainingState(model, torch.optim.Adafactor(model.parameters())).elementwise


@pytest.mark.parametrize(
    "optimizer", [torch.optim.AdamW, torch.optim.Adagrad, torch.optim.SGD, torch.optim.NAdam]
)
def test_a_joiner_takes_on_the_state_of_another_bit_by_bit(optimizer: Any) -> None:
    one, other = parts(0, optimizer=optimizer), parts(1, optimizer=optimizer)
    assert one.digest() != other.digest()
    other.take_skeleton(one.skeleton())
    tensors = zip(flatten(one.tensors()), flatten(other.tensors()), strict=True)
    for mine, theirs in tensors:
        theirs.copy_(mine)
    assert one.digest() == other.digest()
    assert one.skeleton() == other.skeleton()
    for p in (one, other):
        torch.manual_seed(7)
        p.optimizer.zero_grad()
        p.model(torch.randn(2, 2, 4, 4)).sum().backward()
        p.optimizer.step()
    assert one.digest() == other.digest()


def test_state_keeps_its_type_beside_parameters_of_another() -> None:
    """Torch would give it the type of the parameter, and a joiner read the wrong bytes."""

    def double() -> TrainingState:
        model = nn.Linear(3, 2).double()
        trained = torch.optim.NAdam(model.parameters())
        model(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
        trained.step()
        return TrainingState(model, trained)

    def kinds(parts: TrainingState) -> list[torch.dtype]:
        return [t.dtype for t in parts.tensors()]

    one, joiner, resumed = double(), double(), double()
    joiner.take_skeleton(one.skeleton())
    resumed.take_whole(one.whole())
    assert torch.float32 in kinds(one)
    assert kinds(joiner) == kinds(resumed) == kinds(one)
    assert resumed.digest() == one.digest()


def test_tensors_with_holes_cannot_be_sent() -> None:
    assert is_dense(torch.empty(3, 4).t())
    assert not is_dense(torch.empty(3, 4)[:, :2])
    with pytest.raises(ValueError, match="dense"):
        flatten([torch.empty(3, 4)[:, :2]])


def test_state_is_read_without_executing_anything() -> None:
    assert from_bytes(to_bytes({"a": torch.ones(2), "b": (1, "x")}))["b"] == (1, "x")
    with pytest.raises(Exception, match=r"weights_only|Weights only"):
        from_bytes(to_bytes(Path("/")))


def test_a_checkpoint_gives_everything_back(tmp_path: Path) -> None:
    one, other = parts(0), parts(1)
    said: list[tuple[int, int]] = []
    writer = CheckpointWriter(tmp_path, lambda *done: said.append(done), on_failure=pytest.fail)
    writer.begin(snapshot(one, TrainingPosition(7, 70), {"seed": 3}))
    writer.wait()
    assert said == [(7, 70)]
    assert restore(tmp_path, other, {"seed": 3}) == TrainingPosition(7, 70, known=True)
    assert one.digest() == other.digest()


def test_the_newest_two_checkpoints_are_kept(tmp_path: Path) -> None:
    for step in (5, 20, 100, 1000):
        checkpoint.write(tmp_path, step, {"step": step})
    assert [p.name for p in list_checkpoints(tmp_path)] == [
        "checkpoint-000000001000.pt",
        "checkpoint-000000000100.pt",
    ]


def test_a_full_disk_leaves_the_older_checkpoint_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, told = parts(0), []
    writer = CheckpointWriter(tmp_path, lambda *done: None, on_failure=told.append)
    assert writer.write(snapshot(one, TrainingPosition(1, 10), {}))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert not writer.write(snapshot(one, TrainingPosition(2, 20), {}))
    assert told == ["checkpoint of step 2 not saved: [Errno 28] No space left on device"]
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint-000000000001.pt"]
    assert restore(tmp_path, parts(1), {}) == TrainingPosition(1, 10, known=True)


def test_schedulers_in_sequence_go_on_from_a_state_that_was_sent() -> None:
    """They ask a `Counter` for more than a dictionary knows."""

    def sequence() -> TrainingState:
        model = nn.Linear(2, 1)
        trained = torch.optim.SGD(model.parameters(), lr=1.0)
        schedules = torch.optim.lr_scheduler
        steps = [schedules.LinearLR(trained, 0.1), schedules.MultiStepLR(trained, [2, 4])]
        return TrainingState(
            model, trained, {"scheduler": schedules.SequentialLR(trained, steps, [3])}
        )

    one, other = sequence(), sequence()
    other.take_skeleton(one.skeleton())
    rates: list[list[float]] = [[], []]
    for found, held in zip(rates, (one, other), strict=True):
        for _ in range(9):
            held.optimizer.step()
            held.others["scheduler"].step()  # type: ignore[attr-defined]
            found.append(held.optimizer.param_groups[0]["lr"])
    assert rates[0] == rates[1]
    assert len(set(rates[0])) == 5


def test_the_state_of_a_model_says_of_which_version_it_is() -> None:
    state = from_bytes(to_bytes(parts(0).model.state_dict()))
    assert state._metadata == parts(0).model.state_dict()._metadata  # type: ignore[attr-defined]


def test_a_model_that_is_another_takes_nothing_on() -> None:
    one = parts(0)
    one.model.register_buffer("mask", torch.ones(3))
    with pytest.raises(ValueError, match="differs from that of the other workers"):
        parts(1).take_skeleton(one.skeleton())


def test_settings_that_a_script_adds_are_given_too() -> None:
    one, other = parts(0), parts(1)
    one.optimizer.param_groups[0]["name"] = "all"
    other.take_settings(one.settings(whole=False))
    assert other.optimizer.param_groups[0]["name"] == "all"


def test_who_waits_for_a_slow_disk_shows_that_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would count as hung, and be killed before the checkpoint is there."""
    enough, waited = threading.Event(), []

    def waits() -> None:
        waited.append(1)
        if len(waited) == 3:
            enough.set()

    monkeypatch.setattr(checkpoint, "WAIT_S", 0.001)
    monkeypatch.setattr(checkpoint, "write", lambda *_: enough.wait(300))
    writer = CheckpointWriter(tmp_path, lambda *done: None, pytest.fail, waits)
    assert writer.write({"step": 1, "samples": 2})
    assert len(waited) >= 3


class Scaled(nn.Linear):
    """Has state beside tensors."""

    scale = 1.0

    def get_extra_state(self) -> dict[str, float]:
        return {"scale": self.scale}

    def set_extra_state(self, state: dict[str, float]) -> None:
        self.scale = state["scale"]


def test_who_joins_learns_what_modules_keep_beside_tensors() -> None:
    models = [nn.Sequential(Scaled(2, 2), nn.Linear(2, 1)) for _ in range(2)]
    one, other = (TrainingState.of(m, torch.optim.SGD(m.parameters()), {}, {}) for m in models)
    models[0][0].scale = 3.0  # type: ignore[assignment]
    other.take_skeleton(one.skeleton())
    assert models[1][0].scale == 3.0
