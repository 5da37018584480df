"""Streams, memory and stage times on a GPU, which is played at torch's edge."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from dovetail.train import Job, iterations
from dovetail.train.data.samples import BatchSplit
from dovetail.train.dry_run import DryRun
from dovetail.train.measure import stages
from dovetail.train.process import device
from dovetail.train.process.device import OUTSIDE_BYTES_MAX, CopyStream, DeviceMemory, synchronize
from dovetail.train.state.state import TrainingState
from dovetail.train.sync import state_transfer as transfer
from dovetail.train.sync.process_group import WaitPolicy
from dovetail.train.sync.state_transfer import StateSender
from dovetail.wire.worker import Entered, FromWorker, Regroup

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
GIB = 1 << 30


class PlayedStream:
    def __init__(self, name: str, done: list[str]) -> None:
        self.name, self._done = name, done

    def record_event(self) -> str:
        self._done.append(f"{self.name} notes")
        return f"what {self.name} had"

    def wait_event(self, event: str) -> None:
        self._done.append(f"{self.name} waits for {event}")

    def synchronize(self) -> None:
        self._done.append(f"{self.name} is through")


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gives what is asked of the GPU's streams."""
    told: list[str] = []

    @contextmanager
    def on(stream: PlayedStream) -> Iterator[None]:
        told.append(f"on {stream.name}")
        yield
        told.append("off")

    loop = PlayedStream("the loop's", told)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: PlayedStream("another", told))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: loop)
    monkeypatch.setattr(torch.cuda, "stream", on)
    return told


COPIED = ["on another", "another waits for what the loop's had", "copy", "off"]


def test_copies_go_beside_the_loop_after_what_it_gave_and_are_complete(done: list[str]) -> None:
    beside = CopyStream(GPU)
    beside.begin()
    with beside.copying():
        done.append("copy")
    assert done == ["the loop's notes", *COPIED, "another is through"]


def test_a_cpu_needs_no_streams(done: list[str]) -> None:
    beside = CopyStream(CPU)
    beside.begin()
    with beside.copying():
        done.append("copy")
    synchronize(CPU)
    assert done == ["copy"]


def test_the_loop_is_waited_for_where_its_time_is_taken(done: list[str]) -> None:
    synchronize(GPU)
    assert done == ["the loop's is through"]


def test_state_is_read_for_joiners_beside_the_loop(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Linear(2, 1)
    parts = TrainingState(model, torch.optim.SGD(model.parameters(), lr=0.1))
    sent: list[int] = []

    def send(tensor: torch.Tensor, to: int, tag: int) -> Any:
        sent.append(tag)
        return SimpleNamespace(wait=lambda: None)

    patience = WaitPolicy(gives_up=lambda: None, stalls=lambda what: None, stall_s=60)
    monkeypatch.setattr(transfer, "CopyStream", lambda device: CopyStream(GPU))
    giving = StateSender(SimpleNamespace(send=send, patience=patience), [1], parts)  # type: ignore[arg-type]
    giving.begin()
    giving.end()
    assert giving.complete and len(sent) > 2
    assert done == ["the loop's notes", *(w for w in COPIED if w != "copy"), "another is through"]


class PlayedGpu:
    """The memory of a GPU, as torch tells of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.peak = self.reserved = 2 * GIB
        self.in_use = 5 * GIB // 2
        self.fraction = -1.0
        about = SimpleNamespace(total_memory=80 * GIB)
        plays: dict[str, Any] = {
            "max_memory_reserved": lambda device: self.peak,
            "memory_reserved": lambda device: self.reserved,
            "mem_get_info": lambda device: (80 * GIB - self.in_use, 80 * GIB),
            "get_device_properties": lambda device: about,
            "empty_cache": self.empty,
            "reset_peak_memory_stats": self.reset,
            "set_per_process_memory_fraction": self.limit,
        }
        for name, play in plays.items():
            monkeypatch.setattr(torch.cuda, name, play)

    def empty(self) -> None:
        self.in_use -= self.reserved - GIB
        self.reserved = GIB

    def reset(self, device: torch.device) -> None:
        self.peak = self.reserved

    def limit(self, fraction: float, device: torch.device) -> None:
        assert 0 <= fraction <= 1
        self.fraction = fraction


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> PlayedGpu:
    return PlayedGpu(monkeypatch)


def test_what_a_process_holds_beside_its_tensors_counts(gpu: PlayedGpu) -> None:
    memory = DeviceMemory(GPU)
    assert memory.held_bytes() == 2.5 * GIB
    gpu.in_use += 30 * GIB  # a neighbour
    assert memory.held_bytes() == 2.5 * GIB, "seen alone, it is known"
    assert DeviceMemory(GPU).held_bytes() == 2 * GIB + OUTSIDE_BYTES_MAX


def test_memory_that_smaller_micro_batches_do_not_need_goes_back(gpu: PlayedGpu) -> None:
    memory = DeviceMemory(GPU)
    memory.renew()
    assert gpu.reserved == GIB and memory.held_bytes() == 1.5 * GIB


def test_tensors_are_bounded_so_that_the_process_stays_within_its_bound(gpu: PlayedGpu) -> None:
    memory = DeviceMemory(GPU)
    memory.bound(40 * GIB)
    assert gpu.fraction == 39.5 / 80
    memory.bound(GIB // 2)
    assert gpu.fraction == 0.25 / 80, "however small, half is for tensors"
    memory.bound(0)
    assert gpu.fraction == 1.0
    memory.bound(90 * GIB)
    assert gpu.fraction == 1.0


def test_what_torch_keeps_unused_goes_back_where_a_bound_leaves_it_no_room(gpu: PlayedGpu) -> None:
    memory = DeviceMemory(GPU)
    memory.bound(3 * GIB)
    assert gpu.reserved == 2 * GIB, "it is within the bound"
    memory.bound(2 * GIB)
    assert gpu.fraction == 1.5 / 80 and gpu.reserved == GIB
    gpu.fraction = -1.0
    memory.bound(2 * GIB)
    assert gpu.fraction == -1.0, "it is bound so already"
    memory.bound(0)
    assert gpu.fraction == 1.0


def test_a_worker_is_within_a_new_bound_before_it_says_that_it_trains_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[int | str] = []

    def send(self: Job, message: FromWorker) -> None:
        if isinstance(message, Entered):
            done.append(f"entered {message.generation}")

    monkeypatch.setattr(Job, "_send", send)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job = Job(model, optimizer, data=(torch.ones(64, 2),), batch_size=2, environment={})
    monkeypatch.setattr(job._memory, "bound", done.append)
    for (x,) in job.batches():
        if job.steps_done in (4, 8):
            generation = job.steps_done // 4
            bound = GIB if generation == 1 else 0
            job._mailbox.receive(Regroup(generation, (0,), memory_bytes=bound))
            give_up_s = time.monotonic() + 300.0
            while not job._mailbox.generations.is_ready(generation):
                assert time.monotonic() < give_up_s
                time.sleep(0.001)
        job.backward(model(x).mean())
        job.step()
    assert done == [0, "entered 0", GIB, "entered 1", 0, "entered 2"]


def test_on_a_cpu_the_process_counts_and_nothing_is_bounded_here(gpu: PlayedGpu) -> None:
    memory = DeviceMemory(CPU)
    memory.bound(GIB)
    memory.renew()
    assert gpu.fraction == -1.0 and gpu.reserved == 2 * GIB
    assert memory.held_bytes() > device.resource.getpagesize()


def test_waiting_for_the_gpu_is_computing_and_not_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(stages.time, "perf_counter", lambda: now_s[0])
    monkeypatch.setattr(
        iterations, "synchronize", lambda device: now_s.__setitem__(0, now_s[0] + 5.0)
    )
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job = Job(model, optimizer, data=(torch.ones(4, 2),), batch_size=2, environment={})
    for (x,) in job.batches():
        job.backward(model(x).mean())
        job.step()
    assert job._timer.stage_s[stages.COMPUTE] == 5.0 and job._timer.stage_s[stages.NETWORK] == 0.0


def test_alone_the_loop_waits_for_the_gpu_in_few_iterations_and_times_those(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[torch.device] = []
    monkeypatch.setattr(iterations, "synchronize", waits.append)
    monkeypatch.setattr(iterations.TrainingLoop, "_runs_ahead", property(lambda self: True))
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = stages.TIMED_FIRST + 4 * stages.TIMED_EVERY
    job = Job(model, optimizer, data=(torch.ones(4, 2),), batch_size=2, steps=steps, environment={})
    for (x,) in job.batches():
        job.backward(model(x).mean())
        job.step()
    timed = stages.TIMED_FIRST + 4
    assert len(job._timer._iterations) == timed
    assert len(waits) == 2 * timed, "before each that is timed, and at its end"


def test_memory_is_given_back_when_micro_batches_get_another_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job = Job(model, optimizer, data=(torch.ones(64, 2),), batch_size=16, environment={})
    renewed: list[int] = []
    monkeypatch.setattr(job._memory, "renew", lambda: renewed.append(job._largest))
    for steps, count in ((1, 1), (1, 1), (4, 2), (4, 2), (2, 3)):
        job._membership.batch_split = BatchSplit(16, steps=steps)
        job._fit_memory()
        assert len(renewed) == count


@pytest.mark.parametrize(
    ("steps", "was_cut", "bound", "pieces"),
    [(1, False, 0, [16]), (1, True, 0, [8, 8]), (1, False, GIB, [8, 8]), (2, False, 0, [4] * 4)],
)
def test_who_computes_for_a_joiner_does_so_at_once_where_the_gpu_is_its_own(
    steps: int, was_cut: bool, bound: int, pieces: list[int]
) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job = Job(model, optimizer, data=(torch.ones(64, 2),), batch_size=16, environment={})
    job._mailbox.receive(Regroup(1, (0, 1), memory_bytes=bound))
    job._was_cut = was_cut
    job._membership.batch_split = BatchSplit(16, members=2, steps=steps)
    job._membership.group.rank, job._membership.learning = 0, (False, True)
    assert [len(m) for m in job._share(0)] == pieces


def test_a_dry_run_begins_with_the_smallest_for_what_was_held_never_falls(
    gpu: PlayedGpu, tmp_path: Path
) -> None:
    run = DryRun(1, tmp_path / "said", batch_size=4, at_least=1, model="M")
    watch, memory = stages.StageTimer(0), DeviceMemory(GPU)
    tried = []
    while not run.is_over:
        tried.append(run.next_split().steps)
        gpu.peak = max(gpu.peak, (4 // run.next_split().steps) * GIB)
        watch.begin()
        watch.end()
        watch._iterations.append(1.0)
        run.record_iteration(watch, memory)
    run.report(3, CPU)
    said = json.loads((tmp_path / "said").read_text())["sub_batches"]
    assert tried == sorted(tried, reverse=True) and set(tried) == {1, 2, 4}
    assert [row["steps"] for row in said] == [1, 2, 4]
    assert [row["memory_bytes"] / GIB for row in said] == [4.5, 2.5, 1.5]
