"""A short run before a live cluster opens, so that its first decision costs no more than others.

Caches are filled here, above all with machine code, which a fresh install compiles for many
seconds. Here no job waits for that, and the limit of a decision does not count.
"""

from __future__ import annotations

import gc
import logging
from dataclasses import replace
from time import perf_counter

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.job import JobRequest, JobTable
from dovetail.core.trace import Trace
from dovetail.live.controller.watchdog import DecisionTimeout, Watchdog
from dovetail.live.serving.virtual_live import play
from dovetail.study.option_texts import OptionTexts

LOG = logging.getLogger(__name__)
JOBS = 12
LENGTH_S = 60.0
MODELS = ("resnet50", "bert", "")
NODES = 2
CONTENDED_GPUS = 4
"""With fewer of a kind some policies have nothing to compare, and compile that only later."""
PLAY_S = 600.0
"""In virtual time; long enough for all jobs, except under policies that hold them back."""
LIMIT_S = 120.0
NOTICED_S = 1.0


def warm_up(policy: str, cluster: Cluster, texts: OptionTexts, limit_s: float = LIMIT_S) -> None:
    """Runs the policy over a dozen jobs of all kinds in virtual time; stores nothing.

    A policy that fails here is only logged: it is refused later, when it matters.
    """
    began, stage = perf_counter(), _small(cluster)
    with Watchdog(limit_s) as watchdog:
        try:
            watchdog.arm()
            try:
                play(warm_up_trace(stage), policy, stage, texts, until_s=PLAY_S)
            finally:
                watchdog.disarm()
        except DecisionTimeout:
            watchdog.disarm()
            LOG.warning("%s did not finish its warm-up within %g s", policy, limit_s)
        except Exception:
            LOG.warning("%s failed in its warm-up", policy, exc_info=True)
    took_s = perf_counter() - began
    if took_s > NOTICED_S:
        LOG.info("%s was warmed up in %.1f s", policy, took_s)


def freeze_what_stays() -> None:
    """Takes all objects that there are off what the garbage collector looks through from now on.

    NOTE: programs and machine code are some 170,000 objects, which it looked through for 80 ms in
    every sixth decision at 2,000 jobs; then for 1 ms.
    """
    gc.unfreeze()  # those of an earlier controller of this process
    gc.collect()
    gc.freeze()


def warm_up_trace(cluster: Cluster) -> Trace:
    """Returns jobs that want more than the cluster has: fixed and elastic, with and without models.

    All of them may share their GPUs.
    """
    total = cluster.gpus
    jobs = JobTable.build([], np.empty(0), np.empty(0, np.int64))
    jobs.append([_job(number, total) for number in range(JOBS)])
    return Trace.of(jobs, np.full(JOBS, LENGTH_S), "warm-up")


def _small(cluster: Cluster) -> Cluster:
    """Returns a cluster with a few nodes of each kind; more do not compile other code.

    There are more nodes than in the real one if its GPUs are too few to be contended for.
    """
    groups = tuple(
        replace(group, nodes=max(min(NODES, group.nodes), -(-CONTENDED_GPUS // per_node)))
        for group in cluster.groups
        if (per_node := group.gpus_per_node) and group.nodes
    )
    return replace(cluster, groups=groups, states=())


def _job(number: int, total_gpus: int) -> JobRequest:
    gpus = max(1, total_gpus // (4 if number % 3 else 2))
    most = min(total_gpus, 2 * gpus) if number % 2 else gpus
    model = MODELS[number % len(MODELS)]
    return JobRequest(
        job_id=str(number),
        submit_s=float(number // 4),
        gpus=gpus,
        min_gpus=1 if number % 2 else gpus,
        max_gpus=most,
        user="warm-up",
        model=model,
        batch_size=32 * gpus if model else 0,
        elastic=number % 2 == 1 and most > 1,
        shareable=True,
    )
