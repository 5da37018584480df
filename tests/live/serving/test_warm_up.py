"""Before a cluster opens its policy plays a dozen jobs: what is slow but once is done then."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from dovetail.core.cluster import Cluster
from dovetail.core.policy import Decision
from dovetail.core.view import View
from dovetail.live.controller.watchdog import Watchdog
from dovetail.live.serving import warm_up as module
from dovetail.live.serving.warm_up import warm_up, warm_up_trace
from dovetail.policies.fifo import Fifo
from patience import UNHURRIED_S

FOUR = Cluster.uniform(1, 4)


@pytest.mark.parametrize("cluster", [Cluster.uniform(1, 1), FOUR, Cluster.uniform(2, 8)])
def test_its_jobs_are_of_all_kinds_and_want_more_than_there_is(cluster: Cluster) -> None:
    jobs = warm_up_trace(cluster).jobs
    assert int(jobs.gpus.sum()) > cluster.gpus >= jobs.widest_gpus
    assert jobs.shareable.all() and {jobs.job(row).model for row in range(3)} > {""}
    assert bool(jobs.elastic.any()) == (cluster.gpus > 1) and not jobs.elastic.all()


def test_no_decision_after_it_compiles(tmp_path: Path) -> None:
    """The files that numba keeps are all there before the first decision of a real cluster."""
    told = (
        "import sys, pathlib\n"
        "from numba.core.event import install_recorder\n"
        "from dovetail.core.cluster import Cluster\n"
        "from dovetail.live.serving.warm_up import warm_up, warm_up_trace\n"
        "from dovetail.live.serving.virtual_live import play\n"
        "kept = lambda: len(list(pathlib.Path(sys.argv[1]).rglob('*.nbc')))\n"
        f"warm_up('afs-p', Cluster.uniform(1, 4), {{}}, {UNHURRIED_S})\n"
        "before, four = kept(), Cluster.uniform(4, 4)\n"
        "with install_recorder('numba:compile') as compiled:\n"
        "    play(warm_up_trace(four), 'afs-p', four, {})\n"
        "print(before, kept(), len(compiled.buffer))\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", told, str(tmp_path)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=UNHURRIED_S,
    ).stdout.split()
    assert int(said[0]) == int(said[1]) > 0
    assert int(said[2]) == 0


def test_what_weighs_jobs_up_is_there_though_a_cluster_is_small() -> None:
    """On a busy machine the watchdog cut an import off that came later, and broke what it left."""
    told = (
        "import sys\n"
        "from dovetail.core.cluster import Cluster\n"
        "from dovetail.live.serving.warm_up import warm_up\n"
        "for shape in ((1, 1), (1, 2), (2, 1)):\n"
        "    sys.modules.pop('dovetail.algorithms.afs', None)\n"
        f"    warm_up('afs-p', Cluster.uniform(*shape), {{}}, {UNHURRIED_S})\n"
        "    assert 'dovetail.algorithms.afs' in sys.modules, shape\n"
    )
    subprocess.run([sys.executable, "-c", told], check=True, timeout=UNHURRIED_S)


def broken(policy: Fifo, view: View, memory: object) -> Decision:
    raise ValueError("no")


class Late(Watchdog):
    """Counts from when the policy decides: what is before that may take longer here."""

    armed: ClassVar[list[Watchdog]] = []

    def arm(self) -> None:
        self.armed.append(self)


def endless(policy: Fifo, view: View, memory: object) -> Decision:
    Watchdog.arm(Late.armed.pop())
    while True:
        pass


def test_a_policy_that_is_broken_does_not_keep_the_cluster_down(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fifo, "decide", broken)
    warm_up("fifo", FOUR, {})
    assert not [said for said in caplog.records if said.levelno >= logging.WARNING]
    monkeypatch.setattr(Fifo, "decide", endless)
    monkeypatch.setattr(module, "Watchdog", Late)
    with caplog.at_level(logging.WARNING):
        warm_up("fifo", FOUR, {}, limit_s=0.1)
    assert "did not finish its warm-up" in caplog.text
