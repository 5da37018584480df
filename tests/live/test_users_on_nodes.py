"""Several users on nodes that join: real accounts, root's agents, a controller without rights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from accounts import Accounts, accounts
from dovetail.wire.spec import JobSpec
from users_cluster import UP, UsersCluster, users_cluster

pytest.importorskip("cryptography")

WHO = """#!/bin/sh
umask 077
echo "$(id -u) $(id -g) $(id -G) $(stat -c '%u %a' "$0" "$(dirname "$0")" | tr '\\n' ' ')"
grep -E '^(CapEff|CapPrm)' /proc/self/status
test ! -e "$HOLD" || sleep 3600
"""


@pytest.fixture(scope="module")
def people() -> Iterator[Accounts]:
    with accounts() as made:
        yield made


@pytest.fixture
def cluster(people: Accounts) -> Iterator[UsersCluster]:
    with users_cluster(people) as made:
        yield made


def test_each_job_runs_as_its_submitter_on_both_nodes(cluster: UsersCluster) -> None:
    ann, bob, eve = (cluster.people.ann, cluster.people.bob, cluster.people.eve)
    cluster.start("--policy", "fifo", "--jobs", "none")
    for name in UP:
        cluster.join_as_root(name)
    cluster.until(cluster.answers, "a controller answers")
    cluster.until(lambda: cluster.states() == UP, "both nodes are up")
    spec = JobSpec("who", (), "/tmp", script=WHO, gpus=4, min_gpus=4, max_gpus=4, ntasks=2)
    jobs = {user: cluster.submit(user, spec) for user in (ann, bob)}
    for user, job in jobs.items():
        state, text = cluster.end_of(user, job)
        assert state == "COMPLETED", f"{text}\n{cluster.said()}"
        print(text)
    print(cluster.ask(bob, lambda c: [*c.logs(jobs[ann])]))
    print(cluster.ask(eve, lambda c: "".join(p.text for p in c.logs(jobs[ann]))))
