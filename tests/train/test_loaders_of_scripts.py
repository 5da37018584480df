"""What a script's DataLoader says of how it reads is done, not accepted and ignored."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, Sampler, WeightedRandomSampler

from dovetail.train import Job
from dovetail.train.data import source as given

COUNT, BATCH = 64, 4
PATIENT_S = 300.0


class Noted(Dataset[Any]):
    """Samples that leave a mark when they are read, and name the process that did it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        (self.folder / f"{index}").touch()
        return {"x": torch.full((2,), float(index)), "index": index, "reader": os.getpid()}


def job_of(loader: DataLoader[Any], **more: Any) -> tuple[Job, nn.Module]:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    return Job(model, optimizer, data=loader, environment={}, **more), model


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Plays an accelerator; gives the threads that pinned a tensor, one name a tensor."""
    threads: list[str] = []

    def pin(tensor: Tensor, device: object = None) -> Tensor:
        threads.append(threading.current_thread().name)
        return tensor

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(Tensor, "pin_memory", pin)
    return threads


@pytest.mark.parametrize(("loaders", "pins"), [(0, True), (2, True), (0, False), (2, False)])
def test_batches_are_pinned_if_the_loader_says_so(
    tmp_path: Path, pinned: list[str], loaders: int, pins: bool
) -> None:
    loader = DataLoader(
        Noted(tmp_path), batch_size=BATCH, num_workers=loaders, pin_memory=pins, shuffle=True
    )
    job, model = job_of(loader)
    seen: list[int] = []
    for batch in job.batches():
        seen += batch["index"].tolist()
        job.backward(model(batch["x"]).mean())
        job.step()
    assert sorted(seen) == list(range(COUNT))
    assert len(pinned) == (3 * COUNT // BATCH if pins else 0)
    beside = [name.startswith("dovetail-pin") for name in pinned]
    assert all(beside) if loaders else not any(beside)


@pytest.mark.parametrize("prefetch", [1, 3])
def test_each_loader_reads_as_far_ahead_as_the_script_says(tmp_path: Path, prefetch: int) -> None:
    loader = DataLoader(
        Noted(tmp_path),
        batch_size=BATCH,
        num_workers=2,
        prefetch_factor=prefetch,
        persistent_workers=True,
    )
    job, _ = job_of(loader, epochs=2)
    batches = job.batches()
    next(batches)
    ahead = (1 + 2 * prefetch) * BATCH
    give_up_s = time.monotonic() + PATIENT_S
    while len(list(tmp_path.iterdir())) < ahead:
        assert time.monotonic() < give_up_s
        time.sleep(0.001)
    assert len(job._loader._ahead) == 2 * prefetch
    assert {int(path.name) for path in tmp_path.iterdir()} == set(range(ahead))
    batches.close()
    job._close()


def test_loader_processes_persist_over_passes(tmp_path: Path) -> None:
    loader = DataLoader(Noted(tmp_path), BATCH, num_workers=1, persistent_workers=True)
    job, model = job_of(loader, epochs=3)
    readers: list[set[int]] = []
    for _ in job.epochs():
        readers.append(set())
        for batch in job.batches():
            readers[-1] |= set(batch["reader"].tolist())
            job.backward(model(batch["x"]).mean())
            job.step()
    assert len(readers) == 3 and readers[0] == readers[1] == readers[2]
    assert len(readers[0]) == 1 and os.getpid() not in readers[0]


HUGE = 10**10


class Endless(Sampler[int]):
    """Draws without end, and does not say how many."""

    def __iter__(self) -> Any:
        while True:
            yield 0


def test_a_sampler_of_too_many_samples_is_refused_at_once(tmp_path: Path) -> None:
    data = Noted(tmp_path)
    for sampler in (
        RandomSampler(data, replacement=True, num_samples=HUGE),
        WeightedRandomSampler([1.0] * COUNT, HUGE),
    ):
        with pytest.raises(ValueError, match="draws 10,000,000,000 samples in a pass"):
            job_of(DataLoader(data, BATCH, sampler=sampler), steps=3)
    assert not list(tmp_path.iterdir())


def test_a_sampler_that_never_ends_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given, "DRAWN_MAX", 1000)
    with pytest.raises(ValueError, match="draws more than 1,000 samples"):
        job_of(DataLoader(Noted(tmp_path), BATCH, sampler=Endless()), steps=3)


class Huge(Noted):
    def __len__(self) -> int:
        return HUGE


def test_a_huge_data_set_is_read_in_order_but_not_shuffled(tmp_path: Path) -> None:
    job, model = job_of(DataLoader(Huge(tmp_path), BATCH), steps=2)
    seen: list[int] = []
    for batch in job.batches():
        seen += batch["index"].tolist()
        job.backward(model(batch["x"]).mean())
        job.step()
    assert seen == list(range(2 * BATCH))
    with pytest.raises(ValueError, match="cannot be shuffled"):
        job_of(DataLoader(Huge(tmp_path), BATCH, shuffle=True), steps=2)
