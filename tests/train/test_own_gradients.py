"""Scripts that compute gradients themselves too, as an ordinary loop lets them."""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from small_job import data, in_pieces, parts
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dovetail.train import Job
from dovetail.train.data.samples import permutation

COUNT, SIZE = 48, 8
Clear = Callable[[nn.Module, torch.optim.Optimizer], None]


def job_of(pieces: int = 1, **more: Any) -> tuple[Job, nn.Module]:
    """Returns a job that computes its batches in so many micro-batches, as a policy may order."""
    model, optimizer = parts()
    job = Job(model, optimizer, data=data(COUNT), batch_size=SIZE, environment={}, **more)
    in_pieces(job, pieces, SIZE)
    return job, model


def clear_to_none(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()


def clear_to_zero(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad(set_to_none=False)


def clear_by_hand(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for p in model.parameters():
        if p.grad is not None:
            p.grad.data.zero_()


def attacked(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Returns samples moved to where the loss is larger, by a backward pass of its own."""
    x = x.clone().requires_grad_()
    cross_entropy(model(x), y).backward()
    assert x.grad is not None
    return (x + 0.1 * x.grad.sign()).detach()


def attacked_plainly(clear: Clear) -> nn.Module:
    model, optimizer = parts()
    x, y = data(COUNT)
    for epoch in range(2):
        for at in torch.from_numpy(permutation(0, epoch, COUNT)).split(SIZE):
            moved = attacked(model, x[at], y[at])
            clear(model, optimizer)
            cross_entropy(model(moved), y[at]).backward()
            optimizer.step()
            clear(model, optimizer)
    return model


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("clear", [clear_to_none, clear_to_zero, clear_by_hand])
def test_gradients_that_were_cleared_do_not_count(clear: Clear, pieces: int) -> None:
    """Adversarial training: the gradients of the attack are not those of training."""
    job, model = job_of(pieces, epochs=2)
    for x, y in job.batches():
        moved = attacked(model, x, y)
        clear(model, job._parts.optimizer)
        job.backward(cross_entropy(model(moved), y))
        job.step()
    plain = attacked_plainly(clear)
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        if pieces == 1:
            assert torch.equal(mine, theirs)
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


def test_a_loss_beside_that_of_the_job_is_told() -> None:
    """With several workers it would count as often as there are workers."""
    job, model = job_of()
    batches = job.batches()
    x, y = next(batches)
    cross_entropy(model(x), y).backward()
    with pytest.raises(RuntimeError, match=r"calls backward\(\) itself"):
        job.backward(cross_entropy(model(x), y))


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("clear", [clear_to_none, clear_to_zero, clear_by_hand])
def test_clearing_gradients_anywhere_but_before_the_step_does_no_harm(
    clear: Clear, pieces: int
) -> None:
    clean, other = job_of(pieces)
    for x, y in clean.batches():
        clean.backward(cross_entropy(other(x), y))
        clean.step()
    job, model = job_of(pieces)
    for x, y in job.batches():
        clear(model, job._parts.optimizer)
        loss = cross_entropy(model(x), y)
        clear(model, job._parts.optimizer)
        job.backward(loss)
        job.step()
        clear(model, job._parts.optimizer)
    assert job.digest() == clean.digest()


def test_what_is_tried_by_gradients_after_a_pass_and_at_the_end_changes_nothing() -> None:
    def run(tries: bool) -> str:
        job, model = job_of(epochs=2)
        for _epoch in job.epochs():
            for x, y in job.batches():
                job.backward(cross_entropy(model(x), y))
                job.step()
            if tries:
                assert attacked(model, *data(COUNT)).shape == (COUNT, 4)
        if tries:
            attacked(model, *data(COUNT))
            assert all(p.grad is not None for p in model.parameters())
        return job.digest()

    assert run(True) == run(False)


def test_gradients_that_were_replaced_before_the_step_are_told() -> None:
    job, model = job_of()
    batches = job.batches()
    x, y = next(batches)
    job.backward(cross_entropy(model(x), y))
    for p in model.parameters():
        assert p.grad is not None
        p.grad = p.grad / 2
    with pytest.raises(RuntimeError, match="gradients were changed"):
        job.step()


def test_weights_for_some_batches_of_an_iteration_alone_are_told() -> None:
    job, model = job_of(2)
    batches = job.batches()
    for weight in (4.0, None):
        x, y = next(batches)
        job.backward(cross_entropy(model(x), y), weight=weight)
        if weight is not None:
            job.step()
    with pytest.raises(RuntimeError, match="a weight for some batches"):
        job.step()


def test_a_batch_may_be_left_out_and_the_others_count() -> None:
    job, model = job_of(2, steps=1)
    before = [p.detach().clone() for p in model.parameters()]
    plain, _ = parts()
    kept = torch.from_numpy(permutation(0, 0, COUNT))[SIZE // 2 : SIZE]
    cross_entropy(plain(data(COUNT)[0][kept]), data(COUNT)[1][kept]).backward()
    for i, (x, y) in enumerate(job.batches()):
        loss = cross_entropy(model(x), y)
        job.backward(loss if i else loss * math.nan, weight=None if i else 0)
        job.step()
    for old, new, other in zip(before, model.parameters(), plain.parameters(), strict=True):
        assert other.grad is not None
        torch.testing.assert_close(new.detach(), old - 0.1 * other.grad, rtol=1e-9, atol=1e-12)


def test_a_loop_that_goes_on_after_an_error_in_a_step_is_told() -> None:
    """Half a step may have been made, and others may have made the whole of it."""
    job, model = job_of()

    def fails(*_: object) -> None:
        raise MemoryError

    job._parts.optimizer.register_step_pre_hook(fails)

    def goes_on() -> None:
        for _, (x, y) in zip(range(3), job.batches(), strict=False):
            with suppress(MemoryError):
                job.backward(cross_entropy(model(x), y))
                job.step()

    with pytest.raises(RuntimeError, match="none may fail"):
        goes_on()
