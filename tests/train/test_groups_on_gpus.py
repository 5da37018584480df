"""What is asked of NCCL, and what becomes of the buffers: the device is played at torch's edge."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch.distributed import HashStore  # type: ignore[attr-defined]

from dovetail.train import Job
from dovetail.train.process import background as aside
from dovetail.train.sync import process_group as group
from dovetail.train.sync.gradients import Gradients
from dovetail.train.sync.process_group import (
    GroupBroken,
    OperationStuck,
    WaitPolicy,
    WorkerGroup,
    connect,
    have_separate_gpus,
    run_within,
)
from patience import PATIENCE_S

GPU = torch.device("cuda", 0)


class PlayedWork:
    """An operation: not complete until it is told; aborted ones look complete, as NCCL's do."""

    def __init__(self) -> None:
        self.complete = False
        self.waited = 0

    def is_completed(self) -> bool:
        return self.complete

    def wait(self, timeout: timedelta | None = None) -> bool:
        self.waited += 1
        if timeout is not None and not self.complete:
            raise RuntimeError("timed out")
        return True


class PlayedNccl:
    """A process group of NCCL: what it was made with, and what was done to it."""

    class Options:
        _timeout: timedelta

    made: ClassVar[list[Any]] = []

    def __init__(self, store: Any, rank: int, size: int, options: Any) -> None:
        self.given = (rank, size, options._timeout)
        self.environment = {k: v for k, v in os.environ.items() if k.startswith("TORCH_NCCL")}
        self.works: list[PlayedWork] = []
        self.device: torch.device | None = None
        self.aborted = threading.Event()
        PlayedNccl.made.append(self)

    def eager_connect_single_device(self, device: torch.device) -> None:
        self.device = device

    def allreduce(self, tensors: list[torch.Tensor]) -> PlayedWork:
        self.works.append(PlayedWork())
        return self.works[-1]

    def abort(self) -> None:
        for work in self.works:
            work.complete = True
        self.aborted.set()
        raise RuntimeError("abort took too long")


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> list[PlayedNccl]:
    """Gives the groups of NCCL that are made from now on."""
    monkeypatch.setattr(PlayedNccl, "made", [])
    monkeypatch.setattr(torch.distributed, "ProcessGroupNCCL", PlayedNccl, raising=False)
    monkeypatch.setattr(group, "gloo", lambda *_, **__: SimpleNamespace())
    for name in group.NCCL_ENVIRONMENT:
        monkeypatch.setenv(name, "1")
    aside.ready()
    return PlayedNccl.made


def on_bus(monkeypatch: pytest.MonkeyPatch, *bus: int) -> Callable[[str], HashStore]:
    """Plays the GPUs of the members on these places, this member's the last; gives their store."""
    store = HashStore()
    said = iter(bus)
    about = lambda device: SimpleNamespace(pci_bus_id=next(said), uuid="GPU")  # noqa: E731
    monkeypatch.setattr(torch.cuda, "get_device_properties", about)
    for rank in range(len(bus) - 1):
        store.set(str(rank), group.gpu_location(GPU))
    return lambda prefix: store


def a_group(gives_up: Callable[[], str | None] = lambda: None) -> tuple[WorkerGroup, PlayedNccl]:
    data = PlayedNccl(None, 0, 2, SimpleNamespace(_timeout=None))
    made = WorkerGroup(5, 0, 2, control=SimpleNamespace(), data=data, by_nccl=True)  # type: ignore[arg-type]
    made.patience = WaitPolicy(gives_up=gives_up, stalls=lambda what: None, stall_s=60)
    return made, data


def test_gradients_go_by_nccl_where_each_member_has_a_gpu_of_its_own(
    nccl: list[PlayedNccl], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = on_bus(monkeypatch, 1, 2)
    made = connect(store, generation=3, rank=1, size=2, host="127.0.0.1", device=GPU)
    (data,) = nccl
    assert data.given == (1, 2, group.OPERATION_TIMEOUT) and data.device == GPU
    assert set(data.environment.items()) >= set(group.NCCL_ENVIRONMENT.items())
    assert data.environment["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0", "or torch ends the process"
    assert isinstance(made.sum_control, object) and made.generation == 3


def test_two_members_on_one_gpu_use_gloo_since_nccl_refuses_that(
    nccl: list[PlayedNccl], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = on_bus(monkeypatch, 1, 1)
    made = connect(store, generation=3, rank=1, size=2, host="127.0.0.1", device=GPU)
    assert nccl == [] and made.size == 2


def test_all_members_answer_alike_whether_gpus_are_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group, "gpu_location", lambda device: f"host/{min(device.index, 1)}")

    def ask(said: dict[int, bool], store: Any, size: int, rank: int, index: int) -> None:
        said[rank] = have_separate_gpus(store, rank, size, torch.device("cuda", index))

    for places, so in (((0, 1), True), ((0, 1, 2), False)):
        said: dict[int, bool] = {}
        asking = partial(ask, said, HashStore(), len(places))
        threads = [threading.Thread(target=asking, args=one) for one in enumerate(places)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert said == dict.fromkeys(range(len(places)), so)


def test_a_gpu_is_known_by_its_place_or_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    about = SimpleNamespace(uuid="GPU-7")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: about)
    assert group.gpu_location(GPU).endswith("/GPU-7")
    about = SimpleNamespace(uuid="MIG-7", pci_domain_id=0, pci_bus_id=65, pci_device_id=0)
    assert group.gpu_location(GPU).endswith("/0/65/0"), "instances of one GPU share its place"


def test_connecting_is_given_up_when_nccl_does_not_return() -> None:
    held = threading.Event()
    with pytest.raises(RuntimeError, match=r"NCCL did not connect within 0\.01 s"):
        run_within(timedelta(seconds=0.01), held.wait)  # type: ignore[arg-type]
    held.set()

    def fails() -> None:
        raise RuntimeError("no link")

    with pytest.raises(RuntimeError, match="no link"):
        run_within(timedelta(minutes=5), fails)


def test_an_aborted_operation_looks_complete_and_is_not_taken_for_a_gradient() -> None:
    abandoned = False
    made, data = a_group(lambda: "abandoned" if abandoned else None)
    sent = made.sum_gradients(torch.ones(2))
    abandoned = True
    data.works[0].complete = True
    with pytest.raises(GroupBroken, match="abandoned"):
        sent.wait()
    abandoned = False
    sent.wait()


def test_the_loop_is_freed_from_another_thread(nccl: list[PlayedNccl]) -> None:
    made, data = a_group()
    made.abandon()
    assert data.aborted.wait(PATIENCE_S), "though the loop itself sits in CUDA"
    made.discard(broken=True)
    made.abandon()


@pytest.mark.parametrize("broken", [True, False])
def test_what_nccl_holds_on_the_gpu_is_given_up_with_its_group(
    nccl: list[PlayedNccl], broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[float] = []
    dispose = group.dispose
    monkeypatch.setattr(
        group, "dispose", lambda *args, after_s=0.0: (dropped.append(after_s), dispose(*args))
    )
    made, data = a_group()
    made.discard(broken=broken)
    assert data.aborted.wait(PATIENCE_S)
    assert dropped == [0.0 if broken else group.DISCARD_DELAY_S]


def gradients() -> tuple[Gradients, nn.Module]:
    model = nn.Linear(2, 1, bias=False)
    return Gradients(model, torch.optim.SGD(model.parameters(), lr=0.1)), model


def an_iteration(ours: Gradients, model: nn.Module, made: WorkerGroup) -> None:
    ours.begin(made)
    loss = model(torch.ones(1, 2)).mean()
    ours.backward(loss, part=1.0, weight=None, scale=lambda x: x, last=True)


def test_an_operation_that_cannot_be_ended_keeps_its_buffer_and_the_loop_takes_another() -> None:
    made, data = a_group()
    made._by_nccl = False
    ours, model = gradients()
    an_iteration(ours, model, made)
    late = model.weight.grad
    ours.roll_back()
    an_iteration(ours, model, made)
    assert late is not None and model.weight.grad is not None
    late.fill_(1e9)  # what a slow member sends arrives after all
    assert model.weight.grad.tolist() == [[1.0, 1.0]]
    data.works[1].complete = True
    kept = model.weight.grad
    ours.roll_back()
    an_iteration(ours, model, made)
    assert model.weight.grad.data_ptr() == kept.data_ptr(), "one that ended leaves its buffer"


def test_after_an_abort_the_gpu_is_waited_for_before_its_buffers_are_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, data = a_group()
    ours, model = gradients()
    an_iteration(ours, model, made)
    before = model.weight.grad
    monkeypatch.setattr(group, "RELEASE_TIMEOUT_S", PATIENCE_S)
    timer = threading.Timer(0.05, data.works[0].__setattr__, ("complete", True))
    timer.start()
    ours.roll_back()
    assert data.works[0].complete
    an_iteration(ours, model, made)
    assert model.weight.grad.data_ptr() == before.data_ptr()  # type: ignore[union-attr]
    monkeypatch.setattr(group, "RELEASE_TIMEOUT_S", 0.01)
    with pytest.raises(OperationStuck, match="NCCL did not end"):
        ours.roll_back()


def test_a_worker_that_joins_can_step_with_a_scaler_before_its_first_loss() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    job = Job(model, optimizer, data=(torch.ones(4, 2),), batch_size=2, scaler=scaler,
              environment={})  # fmt: skip
    for p in model.parameters():
        p.grad = torch.full_like(p, scaler.get_scale())
    before = model.bias.item()
    job._update.make(optimizer, list(model.parameters()))
    assert model.bias.item() == pytest.approx(before - 0.1)


def test_dropped_things_wait_for_their_time() -> None:
    done: list[float] = []
    began = time.monotonic()
    ended = threading.Event()
    aside.ready()
    aside.dispose([], lambda: (done.append(time.monotonic() - began), ended.set())[0], after_s=0.02)
    assert ended.wait(PATIENCE_S) and done[0] >= 0.02


def test_no_room_on_the_gpu_has_an_exit_code_of_its_own() -> None:
    for raised, code in (("torch.OutOfMemoryError('full')", 5), ("RuntimeError('else')", 1)):
        text = "import torch\nfrom dovetail.train import out_of_memory\n"
        text += f"out_of_memory.watch()\nraise {raised}"
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, check=False)
        assert done.returncode == code, done.stderr
        assert b"Traceback" in done.stderr, "the user sees it too"
