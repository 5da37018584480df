"""What torchft makes of the switches that `benchmarks.elastic` measures, beside our own.

    python -m benchmarks.torchft_switches [--only torchft|ours] [--rounds 4] [--megabytes 2]

Needs `pip install torchft`, which Dovetail does not depend on. Both train the same model over gloo
on loopback: rounds of 1, 2, 4, 2, 1 workers, then four workers of which one is killed. Pause: the
longest time between two steps of worker 0 around a switch, less its median step; so it hides what
happens during a step, and wants steps that are short beside the heartbeat timeout. Of torchft 0.2.0
the survivors of a kill fail too: measure `torchft-nightly`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path

from benchmarks.elastic import FORKS, milliseconds, stage, steps

BATCH, SAMPLE_S = 32, 0.001
TIMEOUT = timedelta(seconds=30)
LEAVE = "leave"
ROUND = ((0,), (0, 1), (0, 1, 2, 3), (0, 1), (0,))


def torchft_worker(number: int, lighthouse: str, folder: Path, megabytes: float) -> None:
    """Trains as one replica group of torchft until its file says that it leaves."""
    import torch
    from torch.distributed import TCPStore
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

    from benchmarks.elastic_worker import Large

    torch.set_num_threads(1)
    model = Large(megabytes * 1e6)
    inner = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def load(state: dict[str, dict[str, object]]) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=TIMEOUT),
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()},
        min_replica_size=1,
        timeout=TIMEOUT,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=lighthouse,
        replica_id=f"worker{number}_",
        hostname="127.0.0.1",
    )
    parallel = DistributedDataParallel(manager, model)
    optimizer = Optimizer(manager, inner)
    workers = 1
    with (folder / f"{number}.jsonl").open("w", buffering=1) as log:
        while not (folder / f"{LEAVE}{number}").exists():
            from_s, before = time.time(), manager.current_step()
            optimizer.zero_grad()
            time.sleep(SAMPLE_S * BATCH / workers)
            parallel(torch.ones(BATCH // workers, 1)).backward()
            optimizer.step()
            workers = max(1, manager.num_participants())
            line = {"step": manager.current_step(), "from_s": from_s, "to_s": time.time()}
            line |= {"kept": manager.current_step() > before, "workers": workers}
            log.write(json.dumps(line) + "\n")
    manager.shutdown(wait=False)
    os._exit(0)


class Torchft:
    """A job of torchft with one lighthouse."""

    def __init__(self, folder: Path, megabytes: float) -> None:
        from torchft.coordination import LighthouseServer

        self.folder, self._megabytes = folder, megabytes
        self._lighthouse = LighthouseServer(
            bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=100, heartbeat_timeout_ms=1000
        )
        self._processes: dict[int, BaseProcess] = {}

    def train(self, *members: int) -> None:
        """Starts and ends workers, and waits until these train together."""
        for number in [n for n in self._processes if n not in members]:
            (self.folder / f"{LEAVE}{number}").touch()
            self._processes.pop(number).join()
        for number in [n for n in members if n not in self._processes]:
            (self.folder / f"{LEAVE}{number}").unlink(missing_ok=True)
            (self.folder / f"{number}.jsonl").unlink(missing_ok=True)
            words = (number, self._lighthouse.address(), self.folder, self._megabytes)
            self._processes[number] = FORKS.Process(target=torchft_worker, args=words)
            self._processes[number].start()
        self.settle(len(members))

    def kill(self, number: int) -> None:
        self._processes.pop(number).kill()
        self.settle(len(self._processes))

    def settle(self, count: int) -> None:
        """Waits for some steps of worker 0 with so many workers."""
        began_s, deadline_s = time.time(), time.monotonic() + 120
        while time.monotonic() < deadline_s:
            recent = [s for s in steps(self.folder, 0) if s["from_s"] > began_s and s["kept"]]
            if sum(s["workers"] == count for s in recent) >= 8:
                return
            time.sleep(0.02)
        raise TimeoutError(steps(self.folder, 0)[-5:])

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
        self._lighthouse.shutdown()


def gap_s(folder: Path, since_s: float) -> float:
    """Returns the longest wait between two kept steps of worker 0 since then."""
    kept = [s for s in steps(folder, 0) if s.get("kept", True)]
    usual_s = statistics.median(s["to_s"] - s["from_s"] for s in kept)
    ends = [s["to_s"] for s in kept if s["to_s"] > since_s - 2 * usual_s]
    return max(after - at for at, after in pairwise(ends)) - usual_s


def timed(folder: Path, change: Callable[[], object]) -> float:
    since_s = time.time()
    change()
    return gap_s(folder, since_s)


def measured(
    train: Callable[..., object], kill: Callable[[int], object], folder: Path, rounds: int
) -> str:
    """Returns the row of one way: pauses growing and shrinking, and after a kill."""
    grown: list[float] = []
    shrunk: list[float] = []
    killed: list[float] = []
    train(0)
    for _ in range(rounds):
        for before, after in pairwise(ROUND):
            pause_s = timed(folder, lambda: train(*after))  # noqa: B023
            (grown if len(after) > len(before) else shrunk).append(pause_s)
    for _ in range(rounds):
        train(0, 1, 2, 3)
        killed.append(timed(folder, lambda: kill(3)))
    told = steps(folder, 0)
    lost = sum(not s.get("kept", True) for s in told)
    row = " | ".join(milliseconds(values) for values in (grown, shrunk, killed))
    return f"{row} | {lost} of {len(told)}"


def of_torchft(rounds: int, megabytes: float) -> str:
    with tempfile.TemporaryDirectory(prefix="dvb") as place:
        job = Torchft(Path(place), megabytes)
        try:
            return measured(job.train, job.kill, job.folder, rounds)
        finally:
            job.close()


def of_ours(rounds: int, megabytes: float) -> str:
    words = ["--megabytes", str(megabytes), "--sample-s", str(SAMPLE_S), "--batch-size", str(BATCH)]
    with stage(*words, forks=True) as (job, folder):
        numbers = {0: 0}  # a place among the workers, to the number of who has it
        fresh = iter(range(1, 1 << 20))

        def train(*places: int) -> None:
            for place in [p for p in numbers if p not in places]:
                del numbers[place]
            started = [p for p in places if p not in numbers]
            for place in started:
                numbers[place] = next(fresh)
            job.start(*(numbers[p] for p in started))
            job.until(lambda: all(job.workers[numbers[p]].peer for p in started))
            regroup()

        def regroup() -> None:
            job.entered(job.regroup(*numbers.values()), 120)
            before = len(steps(folder, 0))
            job.until(lambda: len(steps(folder, 0)) >= before + 8, 120)

        def kill(place: int) -> None:
            process = job.workers[numbers.pop(place)].process
            process.kill()
            job.until(lambda: process.poll() is not None)
            job.abandon()
            regroup()

        job.start(0)
        return measured(train, kill, folder, rounds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=("torchft", "ours"))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--megabytes", type=float, default=2.0)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    preload = ["torch._dynamo", "benchmarks.elastic_worker"]
    FORKS.set_forkserver_preload(preload + ["torchft"] * (options.only != "ours"))
    head = "| growing, ms | shrinking, ms | a worker killed, ms | steps thrown away |"
    print(
        f"{options.megabytes:g} MB of parameters; median / 90th percentile / longest\n| how {head}"
    )
    print("| --- " * 5 + "|")
    for name, way in (("torchft", of_torchft), ("ours", of_ours)):
        if options.only in (None, name):
            row = way(options.rounds, options.megabytes)
            print(f"| {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
