"""Several users on nodes that join: real accounts, root's agents, a controller without rights."""

from __future__ import annotations

import re
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from accounts import Accounts, accounts
from dovetail.live.access.user_entry import UserEntry
from dovetail.wire.spec import JobSpec
from interactive_client import InTerminal
from patience import is_there
from users_cluster import PATH, UP, UsersCluster, users_cluster

pytest.importorskip("cryptography")

WHO = """#!/bin/sh
umask 077
echo "ids $(id -u) $(id -g) $(id -G)"
stat -c 'file %u %a' "$0" "$(dirname "$0")" "$(dirname "$0")/output.log"
grep -E '^Cap(Eff|Prm)' /proc/self/status
"""
TRAINS = """#!{python}
import os, time
import torch
from torch import nn
from dovetail.train import Job

torch.manual_seed(0)
data = (torch.randn(96, 4), torch.randint(0, 2, (96,)))
model = nn.Linear(4, 2)
job = Job(model, torch.optim.SGD(model.parameters(), 0.1), data=data, batch_size=12, epochs=9999)
for x, y in job.batches():
    job.backward(nn.functional.cross_entropy(model(x), y))
    job.step()
    ids = (*os.getresuid(), *os.getresgid(), *os.getgroups())
    row = ("step", job.steps_done, 12 // len(x), os.getpid(), *ids, "end\\n")
    os.write(1, " ".join(map(str, row)).encode())
    if os.path.exists("{go}"):
        break
    time.sleep(0.02 * len(x))
"""
ATTACKS = """#!{python}
import ctypes, os
for pid in {pids}:
    for act in (
        lambda: os.kill(pid, 9),
        lambda: open(f"/proc/{{pid}}/environ").read(),
        lambda: open(f"/proc/{{pid}}/mem", "r+b"),
        lambda: os.listdir({folder!r}),
    ):
        try:
            act()
            print("done")
        except OSError as error:
            print(error.strerror)
    libc = ctypes.CDLL(None, use_errno=True)
    print("done" if libc.ptrace(16, pid, 0, 0) == 0 else os.strerror(ctypes.get_errno()))
"""
BASH = ("bash", "--norc", "--noprofile", "--noediting", "-i")
REFUSED = "only they and operators may do that"


@pytest.fixture(scope="module")
def people() -> Iterator[Accounts]:
    with accounts() as made:
        yield made


@pytest.fixture
def cluster(people: Accounts) -> Iterator[UsersCluster]:
    with users_cluster(people) as made:
        yield made


def up(cluster: UsersCluster, *words: str) -> None:
    cluster.start(*words)
    for name in UP:
        cluster.join_as_root(name)
    cluster.until(cluster.answers, "a controller answers")
    cluster.until(lambda: cluster.states() == UP, "both nodes are up")


def test_each_job_runs_as_its_submitter_and_nobody_else_reads_or_ends_it(
    cluster: UsersCluster,
) -> None:
    ann, bob, eve = cluster.people.ann, cluster.people.bob, cluster.people.eve
    cluster.write_users(cluster.users, more="max_submitted_jobs = 2\n")
    up(cluster, "--policy", "fifo", "--jobs", "none")
    both = JobSpec("who", (), "/tmp", script=WHO, gpus=4, min_gpus=4, max_gpus=4, ntasks=2)
    jobs = {user: cluster.submit(user, both) for user in (ann, bob)}
    for user, job in jobs.items():
        state, text = cluster.end_of(user, job)
        assert state == "COMPLETED", f"{text}\n{cluster.said()}"
        lines = text.splitlines()
        ids = f"ids {user.uid} {user.gid} {' '.join(map(str, user.groups))}"
        assert lines.count(ids) == 2, "on each node as its submitter"
        for mode in ("700", "700", "640"):
            assert f"file {user.uid} {mode}" in lines
        assert {line.split()[1] for line in lines if line.startswith("Cap")} == {"0" * 16}
        kept = cluster.home / "controller" / "jobs" / str(job) / "output.log"
        seen = kept.stat()
        assert (seen.st_uid, stat.S_IMODE(seen.st_mode)) == (cluster.people.service.uid, 0o600)

    waits = JobSpec("waits", ("/bin/sleep", "3600"), "/tmp", gpus=1, hold=True)
    held = cluster.submit(ann, waits)
    assert REFUSED in cluster.ask(bob, lambda c: [*c.logs(jobs[ann])])
    assert REFUSED in cluster.ask(bob, lambda c: c.cancel(held))
    assert f"refused: user {bob.name}, cancel" in cluster.said()
    assert f"refused: user {bob.name}, logs" in cluster.said()
    cluster.submit(ann, waits)
    assert f"would be 3 jobs of user {ann.name}" in cluster.ask(ann, lambda c: c.submit(waits))
    assert "travel" not in cluster.ask(bob, lambda c: c.submit(waits)), "bob has room of his own"
    path = JobSpec("path", ("/bin/true",), "/tmp", gpus=1, output=f"{cluster.root}/x")
    assert "writes for nobody else" in cluster.ask(bob, lambda c: c.submit(path))
    assert "not in" in cluster.ask(cluster.people.mal, lambda c: c.submit(waits))
    assert str(ann.uid) in cluster.ask(eve, lambda c: "".join(p.text for p in c.logs(jobs[ann])))
    assert cluster.ask(eve, lambda c: c.cancel(held)) == f"({held},)"


def test_a_shell_on_a_node_is_its_submitters_and_outlives_controller_and_agents(
    cluster: UsersCluster,
) -> None:
    ann, bob = cluster.people.ann, cluster.people.bob
    options = ("--policy", "fifo", "--jobs", "none")
    up(cluster, *options)
    shell = InTerminal(cluster.home, *BASH, size=(25, 90), run=cluster.runs_as(ann))
    try:
        job = shell.job()
        assert shell.says("stty size; kept=yes") == "25 90"
        assert shell.says("id -u; id -g; id -G").split() == [
            *map(str, (ann.uid, ann.gid, *ann.groups))
        ]
        assert shell.says("stat -c '%u %a' $(tty)") == f"{ann.uid} 600"
        pid = shell.says("echo $$")
        assert REFUSED in cluster.ask(bob, lambda c: c.cancel(job))
        for name in UP:
            cluster.signal(name, signal.SIGKILL)
            cluster.join_as_root(name)
        cluster.kill()
        shell.expect("trying again (Ctrl-C gives up)\r\n")
        cluster.start(*options)
        shell.expect("connected again\r\n")
        assert shell.says("echo $$ $kept") == f"{pid} yes"
        shell.type("exit 5\n")
        assert shell.end() == 5, cluster.said()
    finally:
        shell.close()


def steps(cluster: UsersCluster, user: UserEntry, job: int) -> list[list[int]]:
    """Returns what the workers of a job wrote of each step."""
    text = cluster.ask(user, lambda c: "".join(p.text for p in c.logs(job)))
    rows = re.findall(r"^step ([\d ]+) end$", text, re.MULTILINE)
    return [[int(word) for word in row.split()] for row in rows]


def trains_on(cluster: UsersCluster, user: UserEntry, job: int, workers: int) -> set[int]:
    """Waits for new steps of a job with so many workers; returns their processes."""
    before, found = len(steps(cluster, user, job)), set[int]()

    def all_train() -> bool:
        rows = [row for row in steps(cluster, user, job)[before:] if row[1] == workers]
        found.clear()
        found.update(row[2] for row in rows[-2 * workers :])
        return len(found) == workers

    try:
        cluster.until(all_train, f"job {job} trains on {workers}")
    except AssertionError as never:
        said = cluster.ask(user, lambda c: [c.why(job), *list(c.logs(job))[-20:]])
        raise AssertionError(f"{never}\n{said}") from None
    own = [*[user.uid] * 3, *[user.gid] * 3, *user.groups]
    assert all(row[3:] == own for row in steps(cluster, user, job))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("files", ["travel", "are shared"])
def test_elastic_jobs_of_two_users_survive_agent_and_controller(
    cluster: UsersCluster, files: str
) -> None:
    pytest.importorskip("torch")
    ann, bob = cluster.people.ann, cluster.people.bob
    jobs = "none"
    if files == "are shared":
        (cluster.root / "jobs").mkdir()
        jobs = str(cluster.root / "jobs")
    options = ("--policy", "max-min", "--jobs", jobs)
    up(cluster, *options)

    def train(user: UserEntry) -> int:
        script = TRAINS.format(python=cluster.python, go=cluster.root / f"{user.uid}.go")
        path = (("PYTHONPATH", PATH),)
        spec = JobSpec(
            *("trains", (), "/tmp"),
            script=script, environment=path, trains=True, duration_s=3600.0,
            gpus=1, min_gpus=1, max_gpus=4,
        )  # fmt: skip
        return cluster.submit(user, spec)

    of_ann = train(ann)
    trains_on(cluster, ann, of_ann, 4)
    of_bob = train(bob)
    first = trains_on(cluster, bob, of_bob, 2), trains_on(cluster, ann, of_ann, 2)

    # Neither reaches what the other runs, from within a job.
    where = str(cluster.root / "n1" / "jobs" / str(of_ann))
    where = where if files == "travel" else f"{jobs}/{of_ann}"
    script = ATTACKS.format(python=cluster.python, pids=sorted(first[1]), folder=where)
    attack = cluster.submit(bob, JobSpec("attacks", (), "/tmp", script=script, gpus=1))
    state, text = cluster.end_of(bob, attack)
    assert state == "COMPLETED" and text.splitlines(), text
    assert set(text.splitlines()) <= {"Operation not permitted", "Permission denied"}, text
    first = trains_on(cluster, bob, of_bob, 2), trains_on(cluster, ann, of_ann, 2)

    for name in UP:
        cluster.signal(name, signal.SIGKILL)
        cluster.join_as_root(name)
    cluster.kill()
    cluster.start(*options)
    cluster.until(cluster.answers, "another controller answers")
    cluster.until(lambda: cluster.states() == UP, "both nodes are up")
    again = trains_on(cluster, bob, of_bob, 2), trains_on(cluster, ann, of_ann, 2)
    assert again == first, "the same processes, and still of the right users"
    for user, pids in ((bob, first[0]), (ann, first[1])):
        for pid in pids:
            status = Path(f"/proc/{pid}/status").read_text()
            assert f"Uid:\t{user.uid}\t{user.uid}\t{user.uid}\t{user.uid}" in status

    # A job that saves and starts anew goes on from its own checkpoint, wherever that is kept.
    assert cluster.ask(ann, lambda c: c.requeue(of_ann)) == f"({of_ann},)"
    cluster.until(lambda: not any(map(is_there, first[1])), "it has saved and left")
    trains_on(cluster, ann, of_ann, 2)
    folder = cluster.home / "controller" / "jobs" if files == "travel" else Path(jobs)
    owner = cluster.people.service if files == "travel" else ann
    saved = list((folder / str(of_ann)).glob("checkpoint-*.pt"))
    assert saved and {path.stat().st_uid for path in saved} == {owner.uid}

    for user, job in ((ann, of_ann), (bob, of_bob)):
        (cluster.root / f"{user.uid}.go").touch()
        assert cluster.end_of(user, job)[0] == "COMPLETED", cluster.said()
        rows = steps(cluster, user, job)
        assert {row[0] for row in rows} == set(range(1, max(row[0] for row in rows) + 1))
        begun = [row[0] for row in rows].count(1)
        assert begun <= 4, "it never began from nothing again"
    if files == "travel":
        own = [cluster.root / name / "jobs" for name in UP]
        cluster.until(lambda: not any(p for o in own for p in o.iterdir()), "nodes keep no files")
