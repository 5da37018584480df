"""All that can be measured on a GPU only, by one command: run it first where there is one.

    python -m benchmarks.gpu [--only devices|pauses|pair|pairs|resume|profile]

It shows the devices found; how long training stands still as workers come, go and are killed (by
NCCL with a GPU for each, by gloo where they must share one); two jobs on one GPU against one, with
and without MPS; all pairs of six kinds of jobs, by turns of the driver, under MPS and under its
limits (`--folder` keeps them, and goes on where they stopped); state taken from GPU to CPU and
back; and `dovetail profile` of a script. With `--device cpu` the same is played on the CPU. Without
a GPU it says so, and measures nothing. It takes some ten minutes, and the pairs half an hour;
`--only`, fewer `--megabytes` and `--seconds` less. What fails does not stop the rest.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import gpu_colocation
from benchmarks.elastic import lines, longest_of_next, milliseconds, some_steps, steps
from benchmarks.gpu_member import GPU_KINDS
from dovetail.live.engines.nvml import VISIBLE, gpus
from dovetail.train.rehearsal import Rehearsal, RehearsalProcess

WORKER = Path(__file__).with_name("gpu_worker.py")
PARTS = ("devices", "pauses", "pair", "pairs", "resume", "profile")
CPU_PART = 16
"""On a CPU the models of pairs are so many times as narrow, and their batches as small."""
AGAIN_WITHIN_S = 120.0
ENDS_WITHIN_S = 300.0
"""A process, beside what it was asked to take: it imports, and may hang on a device."""
FAILURES = (RuntimeError, TimeoutError, AssertionError, LookupError, subprocess.SubprocessError)


class Bench(NamedTuple):
    """Where and how much is measured: the environment of a worker on each device."""

    device: str
    places: tuple[Mapping[str, str], ...]
    sizes_mb: tuple[float, ...]
    rounds: int
    seconds: float
    words: tuple[str, ...]
    folder: Path | None
    kinds: tuple[str, ...]

    def command(self, *words: str) -> list[str]:
        """Returns the command of a worker."""
        return [sys.executable, str(WORKER), "--device", self.device, *self.words, *words]


def devices() -> str:
    """Prints what the driver and torch show; returns why nothing can be measured, if so."""
    import torch

    found = gpus()
    for note in found.notes:
        print(f"note: {note}")
    if found.devices is None:
        return found.notes[-1] if found.notes else "the driver shows none"
    have = found.devices
    print(f"{len(have.names)} x {have.gpu_type}, {have.memory_bytes / 2**30:.1f} GiB each")
    for name in have.names:
        print(f"  {name}")
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees none (built for CUDA {torch.version.cuda})"
    nccl = ".".join(str(n) for n in torch.cuda.nccl.version())
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, NCCL {nccl}")
    return ""


# Pauses.


@contextmanager
def stage(bench: Bench, *words: str) -> Iterator[tuple[Rehearsal, Path]]:
    """Gives a rehearsal whose workers are on devices of their own, as far as there are any."""
    with tempfile.TemporaryDirectory(prefix="dvg") as place:
        log = Path(place)

        def started(environment: dict[str, str]) -> RehearsalProcess:
            number = int(environment["DOVETAIL_WORKER"].rpartition("/")[2])
            # Number 0 stays; of the others only the newest few train at a time.
            slot = 0 if number == 0 else 1 + (number - 1) % max(1, len(bench.places) - 1)
            here = {**os.environ, **bench.places[slot % len(bench.places)], **environment}
            return subprocess.Popen(bench.command(*words, "--log", str(log)), env=here)

        with Rehearsal(started) as rehearsal:
            yield rehearsal, log


def pauses(bench: Bench) -> None:
    count = 4 if len(bench.places) >= 4 else 2
    by = "NCCL" if bench.device == "cuda" and len(bench.places) > 1 else "gloo"
    print(f"\n{bench.rounds} rounds of 1 -> {count} -> 1 workers, gradients by {by}; in ms:")
    print("median / 90th percentile / most")
    head = ("parameters", "growing", "shrinking", "longest step after growing", "a step")
    print("| " + " | ".join((*head, "from a kill to training on")) + " |")
    print("| --- " * (len(head) + 1) + "|")
    for size_mb in bench.sizes_mb:
        print(f"| {size_mb:g} MB | {pauses_of(bench, size_mb, count)} |", flush=True)


def pauses_of(bench: Bench, size_mb: float, count: int) -> str:
    grown: list[float] = []
    shrunk: list[float] = []
    after: list[float] = []
    killed: list[float] = []
    with stage(bench, "--megabytes", str(size_mb)) as (job, log):
        job.start(0)
        job.entered(job.regroup(0), ENDS_WITHIN_S)
        for round_ in range(2 * bench.rounds):
            fresh = tuple(range(1 + (count - 1) * round_, count + (count - 1) * round_))
            job.start(*fresh)
            job.until(lambda new=fresh: all(job.workers[n].peer for n in new), ENDS_WITHIN_S)
            grown += switched(job, log, (0, *fresh))
            after.append(longest_of_next(job, log, 8))
            if round_ % 2 == 0:
                shrunk += switched(job, log, (0,))
            else:
                killed.append(on_after_a_kill(job, log, fresh))
        told = steps(log, 0)
    assert [s["step"] for s in told] == list(range(1, len(told) + 1)), "a step was lost"
    usual_s = statistics.median(s["to_s"] - s["from_s"] for s in told)
    cells = (grown, shrunk, after, [usual_s], killed)
    return " | ".join(milliseconds(cell) for cell in cells)


def switched(job: Rehearsal, log: Path, members: tuple[int, ...]) -> list[float]:
    """Returns the pause of the first, which trained before, once a few steps were made after it."""
    entered = job.entered(job.regroup(*members), AGAIN_WITHIN_S)
    some_steps(job, log, 4)
    return [entered[0].pause_s]


def on_after_a_kill(job: Rehearsal, log: Path, gone: Sequence[int]) -> float:
    """Kills all but the first in the middle of a step, as a machine would; returns the seconds."""
    began_s = time.time()
    for number in gone:
        job.workers[number].process.kill()
    job.abandon()
    job.entered(job.regroup(0), AGAIN_WITHIN_S)
    some_steps(job, log, 2)
    return next(s["to_s"] for s in reversed(steps(log, 0)[:-1])) - began_s


# Two jobs on one device.


class Run(NamedTuple):
    """What one job told at its end."""

    rate: float
    held_bytes: float


def together(bench: Bench, jobs: int, environment: Mapping[str, str]) -> list[Run]:
    """Returns what so many jobs at once on the first device did."""
    with tempfile.TemporaryDirectory(prefix="dvg") as place:
        logs = [Path(place) / str(n) for n in range(jobs)]
        running = []
        for log in logs:
            log.mkdir()
            words = bench.command("--seconds", str(bench.seconds), "--log", str(log))
            here = {**os.environ, **bench.places[0], **environment}
            running.append(subprocess.Popen(words, env=here))
        try:
            codes = [process.wait(bench.seconds + ENDS_WITHIN_S) for process in running]
        finally:
            for process in running:
                process.kill()
        if any(codes):
            raise RuntimeError(f"jobs ended with {codes}")
        ends = [lines(log, 0)[-1] for log in logs]
    return [Run(end["rate"], end["held_bytes"]) for end in ends]


def pair(bench: Bench) -> None:
    print(f"\nthe same job alone and twice on one device, {bench.seconds:g} s")
    print("| how | samples/s of each | of one alone, all in all | held by each |")
    print("| --- | --- | --- | --- |")
    (alone,) = together(bench, 1, {})
    row("alone", [alone], alone)
    row("two", together(bench, 2, {}), alone)
    if bench.device != "cuda":
        return
    if why := gpu_colocation.why_no_mps(bench.device):
        print(f"(MPS is not measured: {why})")
        return
    try:
        with gpu_colocation.mps() as environment:
            row("two under MPS", together(bench, 2, environment), alone)
            half = {**environment, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
            row("two under MPS, half each", together(bench, 2, half), alone)
    except FAILURES as error:
        print(f"(MPS does not work here: {error})")


def row(how: str, runs: Sequence[Run], alone: Run) -> None:
    rates = " and ".join(f"{run.rate:.0f}" for run in runs)
    held = " and ".join(f"{run.held_bytes / 2**20:.0f} MiB" for run in runs)
    total = sum(run.rate for run in runs) / alone.rate
    print(f"| {how} | {rates} | {total:.2f} | {held} |", flush=True)


def pairs(bench: Bench) -> None:
    with ExitStack() as stack:
        folder = bench.folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dvg")))
        gpu_colocation.colocation(
            bench.device,
            bench.places[0],
            folder,
            bench.seconds,
            kinds=bench.kinds,
            part=1 if bench.device == "cuda" else CPU_PART,
        )


# State from device to device.


def resume(bench: Bench) -> None:
    """Saves on the device, loads on the CPU, trains and saves there, and loads on the device."""
    print("\na checkpoint from device to device: checksum as saved, as loaded")
    saved = ""
    with tempfile.TemporaryDirectory(prefix="dvg") as place:
        for number, device in enumerate((bench.device, "cpu", bench.device)):
            log = Path(place) / str(number)
            log.mkdir()
            words = ["--steps", "6", "--folder", f"{place}/job", "--log", str(log)]
            words = [*bench.command(*words), "--device", device]
            here = {**os.environ, **bench.places[0]}
            subprocess.run(words, env=here, check=True, timeout=ENDS_WITHIN_S)
            told = lines(log, 0)
            print(f"  {device}: {saved or 'none'} {told[0]['digest_at_first']}")
            assert not saved or told[0]["digest_at_first"] == saved, "the state is another one"
            saved = str(told[-1]["digest"])


def profile(bench: Bench) -> None:
    """Runs `dovetail profile` on the worker."""
    print("\ndovetail profile", flush=True)
    with tempfile.TemporaryDirectory(prefix="dvg") as place:
        words = [sys.executable, "-m", "dovetail", "profile", "-o", f"{place}/made.toml"]
        words += ["--iterations", "5", str(WORKER), "--device", bench.device, *bench.words]
        here = {**os.environ} if bench.device == "cuda" else {**os.environ, VISIBLE: ""}
        subprocess.run(words, env=here, check=True, timeout=4 * ENDS_WITHIN_S)


def bench_of(options: argparse.Namespace) -> Bench:
    found = gpus().devices if options.device == "cuda" else None
    if found is not None:
        places: tuple[Mapping[str, str], ...] = tuple({VISIBLE: name} for name in found.names)
    else:
        places = ({VISIBLE: "", "OMP_NUM_THREADS": "1"},)
    sizes = tuple(float(size) for size in options.megabytes.split(","))
    return Bench(
        options.device,
        places,
        sizes,
        options.rounds,
        options.seconds,
        tuple(options.words.split()),
        options.folder,
        tuple(options.kinds.split(",")),
    )


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--megabytes", default="2,20,100,1000", help="of parameters, for pauses")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run of a pair")
    parser.add_argument("--words", default="", help="further words for the worker")
    parser.add_argument("--kinds", default=",".join(GPU_KINDS), help="of jobs in pairs")
    parser.add_argument("--folder", type=Path, help="of pairs, which then go on where they stopped")
    options = parser.parse_args(words)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    if options.device == "cuda" and (why := devices()):
        print(f"no GPU to measure on: {why}")
        return
    bench = bench_of(options)
    parts: dict[str, Callable[[Bench], None]] = {
        "pauses": pauses,
        "pair": pair,
        "pairs": pairs,
        "resume": resume,
        "profile": profile,
    }
    failed = []
    for name, part in parts.items():
        if options.only not in (None, name):
            continue
        try:
            part(bench)
        except FAILURES as error:
            print(f"{name} failed: {type(error).__name__}: {error}")
            failed.append(name)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
