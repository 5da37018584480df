"""A job moves between nodes that share no folder: its script, output and checkpoints travel."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.cli.main import run
from dovetail.live.client.client import Client
from dovetail.wire.spec import JobSpec
from joined_cluster import JoinedCluster
from patience import PATIENCE_S

pytest.importorskip("torch")
pytest.importorskip("cryptography")
pytestmark = pytest.mark.slow
SCRIPT = f"""#!{sys.executable}
import os, sys, time
import torch
from torch import nn
from dovetail.train import Job

torch.manual_seed(0)
data = (torch.randn(96, 4), torch.randint(0, 2, (96,)))
model = nn.Linear(4, 2)
job = Job(model, torch.optim.SGD(model.parameters(), 0.1), data=data, batch_size=12, epochs=9999)
for x, y in job.batches():
    loss = nn.functional.cross_entropy(model(x), y)
    job.backward(loss)
    job.step()
    print("step", job.steps_done, f"{{loss.item():.12f}}", os.environ["DOVETAIL_FOLDER"])
    if job.steps_done >= int(sys.argv[1]) or os.path.exists(sys.argv[3]):
        break
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def cluster() -> Iterator[JoinedCluster]:
    made = JoinedCluster(Path(tempfile.mkdtemp(dir="/tmp", prefix="df")), {"n1": 1, "n2": 1})
    yield made
    made.close()
    shutil.rmtree(made.root, ignore_errors=True)


def submit(cluster: JoinedCluster, steps: int, pause_s: float) -> int:
    words = (str(steps), str(pause_s), str(cluster.root / "moves.go"))
    spec = JobSpec("moves", words, "/tmp", script=SCRIPT, trains=True, duration_s=3600.0)
    return cluster.client.submit(spec)[0]


def log(client: Client, job: int) -> list[list[str]]:
    text = "".join(reply.text for reply in client.logs(job, follow=False))
    return [line.split() for line in text.splitlines() if line.startswith("step ")]


def test_a_job_moves_by_its_shipped_checkpoint_and_learns_as_if_it_had_not(
    cluster: JoinedCluster,
) -> None:
    home = ["--home", str(cluster.home)]
    cluster.start("--policy", "fifo", "--jobs", "none")
    cluster.join("n1")
    cluster.join("n2")
    cluster.until(cluster.answers, "a controller answers")
    cluster.until(lambda: cluster.states() == {"n1": "up", "n2": "up"}, "both nodes are up")
    remote = Client(cluster.home / "client", patience_s=PATIENCE_S)
    job = submit(cluster, 1 << 30, 0.05)

    def places() -> list[str]:
        names = [Path(row[3]).relative_to(cluster.root).parts[0] for row in log(remote, job)]
        return list(dict.fromkeys(names))

    cluster.until(places, "its output is read on another machine")
    (first,) = places()
    second = "n2" if first == "n1" else "n1"
    assert run(["drain", first, "--reason", "fan", *home]) == 0
    assert run(["requeue", str(job), *home]) == 0
    cluster.until(lambda: places() == [first, second], "it goes on, on the other node")
    # The agent that has the checkpoint, and the controller, die while the job is to move back.
    assert run(["drain", first, "--undo", *home]) == 0
    assert run(["drain", second, "--reason", "fan", *home]) == 0
    before = len(log(remote, job))
    assert run(["requeue", str(job), *home]) == 0
    cluster.kill()
    cluster.signal(second, signal.SIGKILL)
    cluster.start("--policy", "fifo")
    cluster.join(second)
    cluster.until(cluster.answers, "another controller answers")
    cluster.until(lambda: len(log(remote, job)) > before + 1, "it goes on again")
    cluster.until(lambda: log(remote, job)[-1][3].startswith(str(cluster.root / first)), "back")
    cluster.go_on("moves")
    (end,) = cluster.client.wait(job, timeout_s=4 * PATIENCE_S)
    assert end.state == "COMPLETED", cluster.said()
    moved = [(int(row[1]), row[2]) for row in log(remote, job)]
    steps = max(step for step, _ in moved)
    assert dict(moved).keys() == set(range(1, steps + 1)), "every step is in the log"
    assert list((cluster.home / "jobs" / str(job)).glob("checkpoint-*.pt")), "they are kept"

    (cluster.root / "moves.go").unlink()
    other = submit(cluster, steps, 0.0)
    (end,) = cluster.client.wait(other, timeout_s=4 * PATIENCE_S)
    assert end.state == "COMPLETED", cluster.said()
    alone = [(int(row[1]), row[2]) for row in log(remote, other)]
    assert alone == sorted(set(moved)), "the same losses, step by step"
    folders = [cluster.root / name / "jobs" / str(job) for name in cluster.slots]
    cluster.until(lambda: not any(f.exists() for f in folders), "nodes keep no files of ended jobs")
