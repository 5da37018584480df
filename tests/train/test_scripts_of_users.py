"""Scripts as people write them: what they leave in the loop, give as data, keep and break off."""

import copy
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from small_job import data, in_pieces, parts
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from dovetail.train import Job
from dovetail.train.data.loader import to_device
from dovetail.train.sync.process_group import COMPLETED, CompletedOperation, WorkerGroup

COUNT, SIZE = 50, 8


def job_of(**more: Any) -> tuple[Job, nn.Module]:
    model, optimizer = parts()
    given: dict[str, Any] = {"data": data(COUNT), "batch_size": SIZE, "environment": {}}
    return Job(model, optimizer, **{**given, **more}), model


def trained(job: Job, model: nn.Module) -> list[float]:
    losses = []
    for x, y in job.batches():
        job.backward(cross_entropy(model(x), y))
        if job.step():
            losses.append(job.loss)
    return losses


def nothing() -> None:
    """Is not left in the loop."""


def loop(job: Job, model: nn.Module, *, left: Any = nothing, after: Any = nothing) -> None:
    for x, y in job.batches():
        job.backward(cross_entropy(model(x), y))
        left()
        job.step()
        after()


# Lines of the old loop.


@pytest.mark.parametrize("steps", [1, 3])
def test_a_zero_grad_that_was_left_in_the_loop_does_no_harm(steps: int) -> None:
    clean, model = job_of()
    trained(clean, model)
    job, model = job_of()
    in_pieces(job, steps, SIZE)
    for x, y in job.batches():
        job._parts.optimizer.zero_grad()
        job.backward(cross_entropy(model(x), y))
        job.step()
    for mine, theirs in zip(job._parts.tensors(), clean._parts.tensors(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_an_optimizer_step_that_was_left_in_the_loop_is_told() -> None:
    job, model = job_of()
    with pytest.raises(RuntimeError, match=r"take optimizer\.step\(\) out"):
        loop(job, model, left=job._parts.optimizer.step)


def test_clipping_that_was_left_in_the_loop_is_told() -> None:
    job, model = job_of()
    with pytest.raises(RuntimeError, match="gradients were changed"):
        loop(job, model, left=lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0))


def test_a_scheduler_that_the_script_steps_too_is_told() -> None:
    model, optimizer = parts()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    job = Job(
        model, optimizer, data=data(COUNT), batch_size=SIZE, scheduler=scheduler, environment={}
    )  # fmt: skip
    with pytest.raises(RuntimeError, match=r"take scheduler\.step\(\) out"):
        loop(job, model, after=scheduler.step)


def test_a_scheduler_that_the_job_was_not_given_is_told() -> None:
    model, optimizer = parts()
    torch.optim.lr_scheduler.StepLR(optimizer, 3)
    job = Job(model, optimizer, data=data(COUNT), batch_size=SIZE, environment={})
    with pytest.raises(ValueError, match="not given"):
        job.batches()


def test_parameters_that_are_unfrozen_too_late_are_told() -> None:
    model, optimizer = parts()
    model[0].requires_grad_(False)  # type: ignore[index]
    job = Job(model, optimizer, data=data(COUNT), batch_size=SIZE, environment={})
    with pytest.raises(RuntimeError, match="unfrozen"):
        loop(job, model, after=model.requires_grad_)


def test_parameters_may_be_frozen_for_a_while() -> None:
    job, model = job_of()
    before = model[0].weight.detach().clone()  # type: ignore[index]
    for x, y in job.batches():
        model[0].requires_grad_(job.steps_done >= 5)  # type: ignore[index]
        job.backward(cross_entropy(model(x), y))
        job.step()
        unchanged = torch.equal(before, model[0].weight)  # type: ignore[index]
        assert unchanged == (job.steps_done <= 5)


# What is given.


class Own(Sampler[int]):
    """A sampler with a generator of its own."""

    def __init__(self) -> None:
        self._draw = np.random.default_rng(3)

    def __len__(self) -> int:
        return COUNT

    def __iter__(self) -> Any:
        return iter(self._draw.integers(0, COUNT, COUNT).tolist())


def rows(samples: list[Any]) -> list[Any]:
    return samples


def order_of(sampler: Any, passes: int, folder: Path | None = None, breaks_at: int = -1) -> Any:
    loader = DataLoader(list(range(COUNT)), batch_size=SIZE, sampler=sampler, collate_fn=rows)  # type: ignore[arg-type]
    model, optimizer = parts()
    job = Job(model, optimizer, data=loader, epochs=passes, folder=folder, environment={})
    seen = []
    for samples in job.batches():
        job.backward(model(torch.ones(1, 4, dtype=torch.float64)).sum())
        job.step()
        seen += samples
        if job.steps_done == breaks_at:
            break
    assert job.steps_done == breaks_at or breaks_at < 0
    return seen


def test_a_sampler_draws_as_in_an_ordinary_loop_also_when_resumed(tmp_path: Path) -> None:
    whole = order_of(Own(), 3)
    plain = Own()
    assert whole == [i for _ in range(3) for i in plain]
    first = order_of(Own(), 3, tmp_path, breaks_at=10)
    assert first + order_of(Own(), 3, tmp_path) == whole


def test_samplers_of_torch_draw_anew_in_each_pass_and_the_same_on_every_worker() -> None:
    weights = [1.0] * 10 + [0.0] * (COUNT - 10)

    def drawn(noise: int) -> list[int]:
        generator = torch.Generator().manual_seed(4)
        torch.manual_seed(noise)
        return order_of(WeightedRandomSampler(weights, 30, generator=generator), 2)  # type: ignore[no-any-return]

    one = drawn(1)
    assert one == drawn(2)
    assert max(one) < 10
    assert one[:30] != one[30:]
    assert sorted(order_of(RandomSampler(range(COUNT)), 1)) == list(range(COUNT))
    assert order_of(SequentialSampler(range(COUNT)), 1) == list(range(COUNT))


def test_a_data_loader_says_how_it_is_read() -> None:
    loader = DataLoader(TensorDataset(*data(COUNT)), batch_size=SIZE, shuffle=True, drop_last=True)
    job, model = job_of(data=loader, batch_size=None, epochs=2)
    with_arguments, other = job_of(drop_last=True, epochs=2)
    assert trained(job, model) == trained(with_arguments, other)
    assert job.steps_done == 2 * (COUNT // SIZE)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))

    def __len__(self) -> int:
        return 3


ROWS = TensorDataset(*data(COUNT))
LOADED = DataLoader(ROWS, batch_size=4)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"data": Stream()}, "a stream"),
        ({"data": DataLoader(Stream()), "batch_size": None}, "a stream"),
        ({"data": LOADED}, "already specifies"),
        ({"data": DataLoader(ROWS, batch_sampler=LOADED.batch_sampler), "batch_size": None}, "own"),
        ({"data": (np.ones(3), np.ones(3))}, "must be tensors"),
        ({"batch_size": None}, "specify batch_size"),
        ({"steps": 0}, "at least 1"),
        ({"keep": {"mean": 3.0}}, "state_dict"),
    ],
)
def test_data_and_arguments_that_cannot_be_are_told(more: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        job_of(**more)


def test_optimizers_and_schedulers_that_cannot_be_are_told() -> None:
    model, optimizer = parts()
    plateau: Any = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    two: Any = [optimizer]
    for trains, scheduler, says in (
        (torch.optim.LBFGS(model.parameters()), None, "LBFGS"),
        (torch.optim.SparseAdam(model.parameters()), None, "sparse"),
        (two, None, "parameter groups"),
        (optimizer, plateau, "plateau"),
    ):
        with pytest.raises(ValueError, match=says):
            Job(
                model,
                trains,
                data=data(COUNT),
                batch_size=SIZE,
                scheduler=scheduler,
                environment={},
            )


class Pair(NamedTuple):
    x: Tensor
    y: list[Tensor]


@dataclass(frozen=True)
class Sized:
    x: Tensor
    count: int


class Named(dict[str, Tensor]):
    """As the batches of some libraries."""

    @property
    def x(self) -> Tensor:
        return self["x"]


def test_batches_are_moved_however_they_are_nested() -> None:
    x, meta = torch.ones(2), torch.device("meta")
    pair = to_device(Pair(x, [x]), meta)
    assert isinstance(pair, Pair)
    assert pair.x.device == pair.y[0].device == meta
    assert to_device(Sized(x, 3), meta).x.device == meta
    assert to_device({"a": (x, "b")}, meta)["a"][0].device == meta
    assert to_device(Named(x=x), meta).x.device == meta
    assert x.device == torch.device("cpu")


def test_training_ends_after_so_many_steps() -> None:
    job, model = job_of(steps=10)
    whole, other = job_of(epochs=5)
    assert trained(job, model) == trained(whole, other)[:10]
    assert (job.steps_done, job.samples_done) == (10, COUNT + 3 * SIZE)


def test_no_micro_batch_is_larger_than_the_script_allows() -> None:
    job, model = job_of(micro_batch=3)
    whole, other = job_of()
    sizes, losses = [], []
    for x, y in job.batches():
        sizes.append(len(x))
        job.backward(cross_entropy(model(x), y))
        if job.step():
            losses.append(job.loss)
    assert max(sizes) == 3
    assert losses == pytest.approx(trained(whole, other))


# Passes, ends, and what is kept.


def test_passes_are_gone_through_one_by_one_and_resumed_where_they_were(tmp_path: Path) -> None:
    def run(folder: Path, until: int) -> tuple[list[int], int]:
        model, optimizer = parts()
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
        job = Job(
            model, optimizer, data=data(COUNT), batch_size=SIZE, epochs=5, folder=folder,
            keep={"plateau": plateau}, environment={},
        )  # fmt: skip
        after = []
        for epoch in job.epochs():
            for x, y in job.batches():
                job.backward(cross_entropy(model(x), y))
                job.step()
                if epoch == until and job.steps_done % 7 == 0:
                    assert job._saving.save(at_once=True)  # in the last step of the pass
                    return after, -1
            plateau.step(np.float64(1.0))  # type: ignore[arg-type]
            after.append(epoch)
        return after, int(-math.log2(optimizer.param_groups[0]["lr"] / 0.1))

    assert run(tmp_path / "whole", -1) == ([0, 1, 2, 3, 4], 4)
    assert run(tmp_path / "parts", 2) == ([0, 1], -1)
    assert run(tmp_path / "parts", -1) == ([2, 3, 4], 4)


def test_who_learned_the_state_over_the_end_of_a_pass_goes_on_in_the_next() -> None:
    """What is done after a pass was done by the others, and its result came with the state."""
    job, _ = job_of(epochs=3)
    p, after = job._progress, []
    for samples, passes, found in ((0, 0, 0), (SIZE, 0, 0), (COUNT, 0, 0), (COUNT, 1, 1)):
        p.samples, p.passes = samples, passes
        job._find_pass()
        after.append(p.passes == found)
    p.samples, p.passes = COUNT + SIZE, 0
    job._find_pass()
    assert p.passes == 1
    assert all(after)


def test_passes_end_with_steps_in_the_middle_of_one() -> None:
    job, model = job_of(steps=10)
    seen = []
    for epoch in job.epochs():
        for x, y in job.batches():
            job.backward(cross_entropy(model(x), y))
            job.step()
        seen.append((epoch, job.steps_done))
    assert seen == [(0, 7), (1, 10)]


def test_a_pass_that_is_not_gone_through_is_told() -> None:
    job, _ = job_of(epochs=2)
    with pytest.raises(RuntimeError, match=r"all of job\.batches"):
        for _epoch in job.epochs():
            pass


@pytest.mark.parametrize("after_step", [True, False])
def test_a_loop_that_is_broken_off_is_the_end_and_is_saved(
    tmp_path: Path, after_step: bool
) -> None:
    job, model = job_of(epochs=3, folder=tmp_path)
    for x, y in job.batches():
        if job.steps_done == 5:
            break
        job.backward(cross_entropy(model(x), y))
        job.step()
        if after_step and job.steps_done == 5:
            break
    loss = job.loss
    assert job.steps_done == 5
    resumed, _ = job_of(epochs=3, folder=tmp_path)
    assert (resumed.steps_done, resumed.loss) == (5, loss)


def test_what_a_script_keeps_is_saved(tmp_path: Path) -> None:
    def run() -> tuple[Job, nn.Module]:
        model, optimizer = parts()
        mean = copy.deepcopy(model)
        optimizer.register_step_post_hook(
            lambda *_: [a.data.lerp_(b, 0.1) for a, b in zip(mean.parameters(), model.parameters())]  # noqa: B905
        )
        job = Job(
            model,
            optimizer,
            data=data(COUNT),
            batch_size=SIZE,
            folder=tmp_path,
            keep={"mean": mean},
            environment={},
        )
        trained(job, model)
        return job, mean

    _, mean = run()
    again, restored = run()
    assert math.isfinite(again.loss)
    for a, b in zip(mean.parameters(), restored.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_loss_is_not_known_before_the_first_iteration() -> None:
    assert math.isnan(job_of()[0].loss)


@pytest.mark.parametrize(
    "buffer", [torch.ones(3, 1).expand(3, 4), torch.ones(4, 4)[:, :2], torch.eye(3).to_sparse()]
)
def test_a_model_that_could_not_be_sent_is_told_at_once(buffer: Tensor) -> None:
    model, optimizer = parts()
    model.register_buffer("mask", buffer)
    with pytest.raises(ValueError, match="mask is expanded"):
        Job(model, optimizer, data=data(COUNT), batch_size=SIZE, environment={})


class Strange(nn.Linear):
    def get_extra_state(self) -> Path:
        return Path()


def test_state_that_could_not_be_read_back_is_told_at_once() -> None:
    """A checkpoint with it would be refused, after all the training."""
    model = nn.Sequential(Strange(4, 2)).double()
    with pytest.raises(ValueError, match="the state of the model must be plain"):
        Job(
            model,
            torch.optim.SGD(model.parameters()),
            data=data(COUNT),
            batch_size=SIZE,
            environment={},
        )


def test_who_waits_for_a_checkpoint_before_leaving_does_not_complain() -> None:
    job, _ = job_of()
    group, seen = WorkerGroup(1, 0, 1), []

    def seen_in_between(values: Tensor) -> CompletedOperation:
        seen.append(group.patience.stall_s)
        return COMPLETED

    next(job.batches())
    job._membership.group = group
    group.sum_control = seen_in_between  # type: ignore[method-assign,assignment]
    assert job._membership.agree_all_well(True)
    assert seen == [math.inf]
    assert math.isfinite(group.patience.stall_s)
