"""Workers notice when they do not have the same data, without reading any sample."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from script_scene import Forked, read
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)
from train_scene import let_end, lines

from dovetail.train import Job
from dovetail.train.data.fingerprint import fingerprint
from dovetail.train.data.source import DataSource
from dovetail.train.rehearsal import Rehearsal
from dovetail.train.sync import replicas

COUNT = 400


class Unread(Dataset[Any]):
    """Samples that must not be read only to be compared."""

    def __init__(self, **fields: Any) -> None:
        self.fields_of_mine = 0
        vars(self).update(fields)

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("nobody asked for a sample")


def shuffled(seed: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).permutation(COUNT)]


@pytest.mark.parametrize(
    "held",
    [
        torch.tensor,
        np.array,
        lambda places: Subset(Unread(), places),
        lambda places: ConcatDataset([Unread(), Subset(Unread(), places)]),
        lambda places: Unread(labels=places),
        lambda places: Unread(files=[(f"{i}.png", i) for i in places]),
        lambda places: Unread(tokens=np.array(places).reshape(40, 10)),
        lambda places: (torch.zeros(COUNT, 3), torch.tensor(places)),
    ],
)
def test_what_was_drawn_otherwise_is_seen(held: Callable[[list[int]], Any]) -> None:
    assert fingerprint(held(shuffled(1))) == fingerprint(held(shuffled(1)))
    assert fingerprint(held(shuffled(1))) != fingerprint(held(shuffled(2)))


def test_what_may_differ_between_machines_is_not_looked_at() -> None:
    def seen(noise: float, folder: str) -> int:
        data = Unread(mean=torch.full((5,), noise), std=np.full(5, noise), folder=folder, at=noise)
        data.again = data  # type: ignore[attr-defined]
        data.none = torch.empty(0, dtype=torch.long)  # type: ignore[attr-defined]
        return fingerprint(data, (), torch.tensor(3))

    assert seen(1.0, "/tmp/a") == seen(1.5, "/tmp/b")


class ReadOneByOne(list[int]):
    """A list that reads a sample for each element; `read` counts them."""

    read = 0

    def __getitem__(self, index: Any) -> Any:
        self.read += 1
        return super().__getitem__(index)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_cannot_be_looked_at_is_left() -> None:
    ragged = torch.nested.nested_tensor([torch.ones(2, dtype=torch.long), torch.ones(3).long()])
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    samples = ReadOneByOne([1, 2])
    for what in (ragged, samples, deep, torch.empty(3, device="meta").long()):
        assert fingerprint(Unread(held=what)) == fingerprint(Unread(held=what))
    assert samples.read == 0


def test_what_a_sampler_draws_is_looked_at_too() -> None:
    def seen(seed: int) -> int:
        sampler = SubsetRandomSampler(shuffled(seed)[:300])
        loader = DataLoader(Unread(), batch_size=8, sampler=sampler)
        return DataSource(loader).resolve(seed=0).fingerprint()

    assert seen(1) == seen(1)
    assert seen(1) != seen(2)


def of_a_split(tell: Callable[[Job], None], folder: Path | None = None) -> tuple[Job, list[Tensor]]:
    """Splits its data by chance, without a seed; returns how often it was told of that."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    x, split = torch.randn(COUNT, 4), np.random.default_rng().permutation(COUNT)
    samples = TensorDataset(x, (x.sum(1) > 0).long())
    data = Subset(samples, split[:300].tolist())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replicas, "warn", told.append)
        job = Job(model, optimizer, data=data, batch_size=15, epochs=3, folder=folder)
        for a, b in job.batches():
            job.backward(cross_entropy(model(a), b))
            if job.step():
                tell(job)
    return job, [torch.tensor([sum("not have the same data" in one for one in told)])]


def test_workers_with_other_data_train_and_one_says_so_once(tmp_path: Path) -> None:
    with Rehearsal(partial(Forked, of_a_split, tmp_path)) as stage:
        stage.start(0, 1)
        stage.entered(stage.regroup(0))
        stage.entered(stage.regroup(0, 1))
        stage.until(lambda: len(lines(tmp_path / "1.jsonl")) >= 3)
        stage.entered(stage.regroup(1, 0))
        let_end(tmp_path)
        assert stage.ended(0, 1) == [0, 0]
    losses, ends = read(tmp_path)
    assert sorted(losses) == list(range(1, 61))
    assert 1 <= sum(told for _, (told,) in ends) <= 2  # by one, and by another that led later
    assert all(told <= 1 for _, (told,) in ends)


def test_a_job_that_resumes_on_other_data_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_a_split(lambda job: None, tmp_path)
    assert "the data differ" not in capsys.readouterr().err
    of_a_split(lambda job: None, tmp_path)
    assert "the data differ from those when it was written" in capsys.readouterr().err
