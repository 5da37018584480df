"""A schedule that the job does not know of would be lost when it resumes: it is told at once."""

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.optim.lr_scheduler import SequentialLR, StepLR

from dovetail.train import Job


def job_of(**more: Any) -> Job:
    """Returns a job whose optimizer has a scheduler; `more` is made of the model and that."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = StepLR(optimizer, 3)
    given = {name: make(model, steps) for name, make in more.items()}
    return Job(model, optimizer, data=(torch.ones(8, 2),), batch_size=4, environment={}, **given)


class Stages:
    """What somebody wrote around schedulers."""

    def __init__(self, steps: StepLR) -> None:
        self.stages = [steps]

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.stages[0].state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.stages[0].load_state_dict(state["steps"])


class InTurn(Stages):
    """The same, deeper inside."""

    def __init__(self, steps: StepLR) -> None:
        super().__init__(steps)
        self.by_name, self.stages = {"main": Stages(steps)}, []

    def state_dict(self) -> dict[str, Any]:
        return self.by_name["main"].state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.by_name["main"].load_state_dict(state)


def scaler(*_: object) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu")


def mean(model: nn.Module, _: StepLR) -> dict[str, Any]:
    return {"mean": torch.optim.swa_utils.AveragedModel(model)}


@pytest.mark.parametrize("more", [{}, {"scaler": scaler}, {"keep": mean}])
def test_a_scheduler_that_was_not_given_is_told_whatever_else_was(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a scheduler that the Job was not given"):
        job_of(**more).batches()


@pytest.mark.parametrize(
    "more",
    [
        {"scheduler": lambda _, steps: steps, "scaler": scaler},
        {"keep": lambda _, steps: {"warmup": steps}},
        {"keep": lambda _, steps: {"stages": Stages(steps)}},
        {"keep": lambda _, steps: {"stages": InTurn(steps)}},
        {
            "scheduler": lambda _, steps: SequentialLR(
                steps.optimizer, [StepLR(steps.optimizer, 1), steps], [4]
            )
        },
    ],
)
def test_one_that_was_given_is_fine_however(more: dict[str, Any]) -> None:
    assert len(list(_of_all(job_of(**more)))) == 2


def _of_all(job: Job) -> Any:
    for (x,) in job.batches():
        job.backward(job._parts.model(x).mean())
        job.step()
        yield x
