"""What arrives after a generation was given up changes nothing."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("torch")

import torch
from train_scene import Scene

from dovetail.train.sync import state_transfer as transfer
from dovetail.train.sync.process_group import (
    COMPLETED,
    GroupBroken,
    Operation,
    WaitPolicy,
    WorkerGroup,
)


class Late(WorkerGroup):
    """A group in which slices arrive only when `come` is set; nobody has patience for them."""

    def __init__(self) -> None:
        super().__init__(1, 1, 2)
        self.come = threading.Event()

        def at_once() -> str:
            return "abandoned"

        self.patience = WaitPolicy(gives_up=at_once, stalls=lambda what: None, stall_s=60.0)

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Operation:
        if tag != transfer.TAG_SLICE:
            tensor.zero_()
            return COMPLETED
        tensor.fill_(1)
        return self

    def wait(self) -> None:
        assert self.come.wait(300.0)


def test_a_slice_that_comes_after_giving_up_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, group = Scene(), Late()
    given = scene.parts(init=1).skeleton()
    monkeypatch.setattr(transfer, "receive_skeleton", lambda *_: given)
    mine = scene.parts(init=2)
    learning = transfer.StateReceiver(group, 0, mine)
    before = mine.digest()
    learning.begin()
    call = learning._call
    assert call is not None
    with pytest.raises(GroupBroken, match="abandoned"):
        learning.end()
    group.come.set()
    call.result(300.0)
    assert mine.digest() == before and not learning.complete
