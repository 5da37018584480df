"""Pairs of jobs on one GPU: by turns of the driver, under MPS, and under limits of MPS.

The same matrix as `benchmarks.colocation` measures on slots, in the same files. On the CPU there is
no MPS, so pairs share one core freely: that shows that the steps run, and nothing of a GPU.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import combinations_with_replacement
from pathlib import Path

from benchmarks.colocation_profile import ALONE, FREE, LIMIT, MPS, joined, tables
from benchmarks.colocation_sets import (
    LIMITS,
    Cell,
    JobSet,
    Member,
    Way,
    keep,
    mean,
    measured,
    missing,
)

ROOT = Path(__file__).resolve().parent.parent
CONTROL = "nvidia-cuda-mps-control"
LOADERS = 2
STARTS_WITHIN_S = 300.0


def job_sets(kinds: Sequence[str]) -> Iterator[JobSet]:
    yield from (JobSet((kind,), LOADERS) for kind in kinds)
    yield from (JobSet(pair, LOADERS) for pair in combinations_with_replacement(kinds, 2))


def ways(job_set: JobSet, *, has_mps: bool) -> Iterator[Way]:
    """Yields how a set shares a GPU; limits are of MPS."""
    alone = len(job_set.kinds) == 1
    yield Way(ALONE if alone else FREE)
    if has_mps:
        if not alone:
            yield Way(MPS)
        for member in range(len(set(job_set.kinds))):
            yield from (Way(LIMIT, member, share) for share in LIMITS)


def why_no_mps(device: str) -> str:
    if device != "cuda":
        return "it is of CUDA"
    return "" if shutil.which(CONTROL) else f"{CONTROL} is not installed"


@contextmanager
def mps() -> Iterator[dict[str, str]]:
    """Gives the environment of an MPS daemon of our own, which ends afterwards."""
    with tempfile.TemporaryDirectory(prefix="dvm", ignore_cleanup_errors=True) as place:
        environment = {"CUDA_MPS_PIPE_DIRECTORY": place, "CUDA_MPS_LOG_DIRECTORY": place}
        here = {**os.environ, **environment}
        subprocess.run([CONTROL, "-d"], env=here, check=True)
        try:
            yield environment
        finally:
            subprocess.run([CONTROL], input="quit\n", text=True, env=here, check=False)


def colocation(
    device: str,
    place: Mapping[str, str],
    folder: Path,
    seconds: float,
    *,
    kinds: Sequence[str],
    part: int,
) -> None:
    """Measures what is missing in a folder, and prints all that is there.

    Models are `part` times as narrow as on a GPU, and their batches as small.
    """
    folder.mkdir(parents=True, exist_ok=True)
    why = why_no_mps(device)
    print(f"\npairs on one device ({device}), {seconds:g} s each, into {folder}")
    if why:
        print(f"(MPS is not measured: {why})")
    sets = list(job_sets(kinds))
    cells = [(0, each, way) for each in sets for way in ways(each, has_mps=not why)]
    with ExitStack() as stack:
        served: dict[str, str] | None = None
        for repetition, job_set, way in missing(folder, cells):
            if way.name in (MPS, LIMIT) and served is None:
                served = stack.enter_context(mps())
            environment = {**place, **(served or {})} if way.name in (MPS, LIMIT) else place
            members = play(job_set, way, device, environment, seconds, part)
            cell = Cell(way, repetition, (), tuple(members))
            keep(folder, job_set, [*measured(folder, job_set), cell])
            rates = " and ".join(f"{member.rate_per_s:.1f}" for member in members)
            print(f"  {' + '.join(job_set.kinds)}, {way.name}: {rates} iterations/s", flush=True)
    profile = joined(folder, [each.file_name for each in sets], {"device": device})
    print("\n".join(tables(profile)))


def play(
    job_set: JobSet, way: Way, device: str, place: Mapping[str, str], seconds: float, part: int
) -> list[Member]:
    """Returns what the jobs did in one window, which begins when all are warm."""
    with tempfile.TemporaryDirectory(prefix="dvg") as here:
        window = Path(here) / "window"
        running = []
        for number, kind in enumerate(job_set.kinds):
            words = ["--device", device, "--loaders", str(LOADERS), "--part", str(part)]
            words += ["--window", str(window), "--ready", f"{here}/ready{number}"]
            environment = {**os.environ, **place}
            if number == way.limited:
                environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{100 * way.share:.0f}"
            running.append(
                subprocess.Popen(
                    [sys.executable, "-m", "benchmarks.gpu_member", kind, *words],
                    cwd=ROOT,
                    env=environment,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        try:
            wait_for([Path(here) / f"ready{n}" for n in range(len(running))], running)
            from_s = time.monotonic() + 0.1 * seconds
            fresh = Path(here) / "fresh"
            fresh.write_text(json.dumps([from_s, from_s + seconds]))
            fresh.replace(window)
            told = [json.loads(job.communicate(timeout=STARTS_WITHIN_S)[0]) for job in running]
        finally:
            for job in running:
                job.kill()
                job.communicate()
    return [member_of(each, seconds) for each in told]


def wait_for(files: Sequence[Path], jobs: Sequence[subprocess.Popen[str]]) -> None:
    """Waits until all files are there. Raises RuntimeError if a job ends before, TimeoutError."""
    ends_s = time.monotonic() + STARTS_WITHIN_S
    while not all(file.exists() for file in files):
        if any(job.poll() is not None for job in jobs):
            raise RuntimeError(f"jobs ended with {[job.poll() for job in jobs]}")
        if time.monotonic() > ends_s:
            raise TimeoutError("a job does not train")
        time.sleep(0.02)


def member_of(told: Mapping[str, list[float]], seconds: float) -> Member:
    """Returns the rate, the seconds that an iteration waited for input, and the rest of it."""
    ends_s = told["ends_s"]
    if len(ends_s) < 2:
        raise RuntimeError(f"no two iterations ended in {seconds:g} s")
    iteration_s = (ends_s[-1] - ends_s[0]) / (len(ends_s) - 1)
    input_s = mean(told["waited_s"])
    used_s = (0.0, input_s, round(iteration_s - input_s, 6), 0.0)
    return Member(round(1 / iteration_s, 4), len(ends_s), used_s, (0.0,) * 4, ())
