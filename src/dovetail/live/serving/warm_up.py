"""A small play before a live cluster opens, so that its first real decision costs no more than any.

What is made at its first use (machine code above all, which a fresh install compiles for many
seconds) is made here, where no job waits for it and no watchdog counts.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from time import perf_counter

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.job import JobRequest, JobTable
from dovetail.core.trace import Trace
from dovetail.live.controller.watchdog import Overran, Watchdog
from dovetail.live.serving.virtual_live import play
from dovetail.study.option_texts import OptionTexts

LOG = logging.getLogger(__name__)
JOBS = 12
LENGTH_S = 60.0
MODELS = ("resnet50", "bert", "")
NODES = 2
CONTENDED_GPUS = 4
"""With fewer of a kind some policies have nothing to weigh up, and leave for later what does."""
PLAY_S = 600.0
"""In virtual time; long enough for all jobs but under policies that hold them back."""
LIMIT_S = 120.0
NOTICED_S = 1.0


def rehearse(policy: str, cluster: Cluster, given: OptionTexts, limit_s: float = LIMIT_S) -> None:
    """Lets the policy serve a dozen jobs of all kinds in virtual time; leaves nothing behind.

    Whatever a policy does wrong here it is refused for later, when that matters.
    """
    began, stage = perf_counter(), _small(cluster)
    with Watchdog(limit_s) as watchdog:
        try:
            watchdog.arm()
            try:
                play(rehearsal_trace(stage), policy, stage, given, until_s=PLAY_S)
            finally:
                watchdog.disarm()
        except Overran:
            watchdog.disarm()
            LOG.warning("%s did not finish its rehearsal within %g s", policy, limit_s)
        except Exception:
            LOG.warning("%s failed in its rehearsal", policy, exc_info=True)
    took_s = perf_counter() - began
    if took_s > NOTICED_S:
        LOG.info("%s was made ready in %.1f s", policy, took_s)


def rehearsal_trace(cluster: Cluster) -> Trace:
    """Returns jobs that want more than the cluster has: fixed and elastic, with and without models.

    All may share their GPUs.
    """
    total = cluster.gpus
    jobs = JobTable.build([], np.empty(0), np.empty(0, np.int64))
    jobs.append([_job(number, total) for number in range(JOBS)])
    return Trace.of(jobs, np.full(JOBS, LENGTH_S), "rehearsal")


def _small(cluster: Cluster) -> Cluster:
    """Returns a few nodes of each kind: what is made ready does not depend on how many.

    There are more than the real ones if those had too few GPUs to be contended for.
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
        user="rehearsal",
        model=model,
        batch_size=32 * gpus if model else 0,
        elastic=number % 2 == 1 and most > 1,
        shareable=True,
    )
