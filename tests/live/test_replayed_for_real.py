"""Real controllers, killed at random moments: the log they leave is replayed without a difference.

The thousand orderings are played in virtual time (`test_stories_replayed.py`).
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from time import sleep

import pytest
from test_killed_for_real import Ground

from dovetail.core.errors import DovetailError
from dovetail.core.messages import RECOVERING, ControllerChanged
from dovetail.live.client.client import Client
from dovetail.replaying.decisions import read_recording, replay
from dovetail.replaying.live_log import exported
from dovetail.replaying.predicted import predict
from dovetail.wire.spec import JobSpec
from patience import PATIENCE_S

SpecOf = Callable[[Ground, int, Random], JobSpec]


def plain(ground: Ground, number: int, rng: Random) -> JobSpec:
    """Returns a short program; some are killed at first, by no fault of their own, and retried."""
    flag = ground.home / f"tried{number}"
    fails = f"[ -e {flag} ] || {{ touch {flag}; kill -9 $$; }}" if rng.random() < 0.3 else "true"
    command = ("/bin/sh", "-c", f"sleep {rng.uniform(0.05, 0.5):.2f}; {fails}")
    return JobSpec(f"job{number}", command, str(ground.home))


def paced(ground: Ground, number: int, rng: Random) -> JobSpec:
    """Returns a clock of many GPUs."""
    gpus, seconds = rng.choice((1, 2, 4, 8)), rng.uniform(20.0, 600.0)
    return JobSpec(
        f"job{number}",
        (),
        str(ground.home),
        gpus=gpus,
        min_gpus=gpus,
        max_gpus=8,
        duration_s=seconds,
        paced=True,
    )


def short(ground: Ground, number: int, rng: Random) -> JobSpec:
    """Returns a short clock of one GPU."""
    seconds = rng.uniform(10.0, 300.0)
    return JobSpec(f"job{number}", (), str(ground.home), duration_s=seconds, paced=True)


SCENES: dict[str, tuple[str, SpecOf]] = {
    "local": ("local:2", plain),
    "emulated": ("emulated:4x8@200", paced),
    "short": ("emulated:4x8@200", short),
}


@contextmanager
def ground_of(engine: str) -> Iterator[Ground]:
    ground = Ground(Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp")), engine)
    try:
        yield ground
    finally:
        ground.end()


def submit_all(ground: Ground, specs: list[JobSpec], told: list[int]) -> None:
    """Submits jobs one after another, each until a controller answers."""
    client = Client(ground.home, patience_s=PATIENCE_S)
    for spec in specs:
        while True:
            with suppress(DovetailError, OSError):
                told.extend(client.submit(spec, key=spec.name))
                break


def hold_to_the_log(scene: str, kills: int, jobs: int, seed: int) -> None:
    rng = Random(seed)
    engine, spec_of = SCENES[scene]
    with ground_of(engine) as ground:
        specs = [spec_of(ground, number, rng) for number in range(jobs)]
        told: list[int] = []
        user = threading.Thread(target=submit_all, args=(ground, specs, told))
        ground.up()
        user.start()
        for _ in range(kills):
            sleep(rng.uniform(0.0, 1.0))
            ground.kill()
            ground.up()
        user.join()
        ends = ground.client.wait(*told, timeout_s=2 * PATIENCE_S + jobs)
        assert {end.state for end in ends} == {"COMPLETED"}
        with exported(ground.home) as log:
            found, recording = replay(log), read_recording(log)
            assert len(predict(log).jobs) == jobs
        starts = [fact for fact in recording.facts if isinstance(fact, ControllerChanged)]
        epochs = [fact.epoch for fact in starts if fact.state == RECOVERING]
        # A controller that was killed before its first instant was durable is not on record.
        assert epochs[-1] == kills + 1 and epochs == sorted(set(epochs))
        assert found.unexplained == () and found.decisions >= kills


def test_a_cluster_whose_controller_was_killed_is_replayed() -> None:
    hold_to_the_log("local", kills=2, jobs=10, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(7))
@pytest.mark.parametrize("scene", SCENES)
def test_scenes_of_many_kills_are_replayed(scene: str, seed: int) -> None:
    hold_to_the_log(scene, kills=5, jobs=40, seed=100 + seed)
