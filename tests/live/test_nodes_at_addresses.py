"""Jobs over nodes with addresses of their own: real agents, real programs, on loopback addresses.

All of 127.0.0.0/8 reaches this machine, so three nodes can have three addresses on any. A worker
that listened on another node's address, or on 127.0.0.1, would be seen.
"""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.live.client.client import Client
from dovetail.live.engines.local_engine import is_running
from dovetail.live.jobs.lifecycle import State
from dovetail.wire.spec import JobSpec
from patience import until

pytest.importorskip("torch")
HERE = Path(__file__).parents[1]
ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")

TRAINS = """
import json, os, sys
import torch
from torch import nn
from dovetail.train import Job

torch.manual_seed(3)
data = (torch.randn(96, 8, dtype=torch.float64), torch.randn(96, 1, dtype=torch.float64))
model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)).double()
sgd = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
job = Job(model, sgd, data=data, batch_size=24, epochs=3)
for x, y in job.batches():
    loss = nn.functional.mse_loss(model(x), y)
    job.backward(loss)
    job.step()
weights = [round(w, 9) for p in model.parameters() for w in p.detach().flatten().tolist()]
host = os.environ.get("DOVETAIL_HOST", "")
with open(os.path.join(sys.argv[1], host or "alone"), "w") as out:
    json.dump([job.steps_done, weights], out)
"""
MEETS = """
import os, socket, sys

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(place) as server:
        total = sum(server.accept()[0].recv(1)[0] for _ in range(size - 1))
else:
    total = rank
    while True:
        try:
            socket.create_connection(place).sendall(bytes([rank]))
            break
        except ConnectionRefusedError:
            pass
names = "SLURM_JOB_NODELIST SLURM_TASKS_PER_NODE SLURM_NODEID GROUP_RANK LOCAL_RANK"
said = [os.environ[name] for name in names.split()]
with open(os.path.join(sys.argv[1], str(rank)), "w") as out:
    print(total, place[0], *said, file=out)
"""


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """The folder of a cluster with a node at each address; it is taken down afterwards."""
    path = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
    words = ["--home", str(path), "--engine", "local:3x1"]
    agents = [sys.executable, str(HERE / "agents_at_addresses.py"), ",".join(ADDRESSES)]
    subprocess.run([*agents, *words, "--daemon"], check=True, timeout=240)
    patient = [sys.executable, str(HERE / "patient_dovetail.py")]
    subprocess.run([*patient, "up", *words, "--policy", "fifo"], check=True, timeout=240)
    (path / "said").mkdir()
    yield path
    waiting = [row.job for row in Client(path).jobs().jobs]
    if waiting:
        Client(path).cancel(*waiting)
    subprocess.run([*patient, "down", "--drain", "--home", str(path)], check=True, timeout=240)
    until(lambda: not is_running(path))
    shutil.rmtree(path)


def runs(home: Path, source: str, **spec: object) -> None:
    script = home / "program.py"
    script.write_text(source)
    command = (sys.executable, str(script), str(home / "said"))
    client = Client(home)
    (job,) = client.submit(JobSpec("a", command, str(home), **spec))  # type: ignore[arg-type]
    (end,) = client.wait(job, timeout_s=240.0)
    text = "".join(piece.text for piece in client.logs(job))
    assert end.state == State.COMPLETED, text


def test_an_elastic_job_trains_over_three_addresses_as_it_does_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(home, TRAINS, gpus=3, min_gpus=3, max_gpus=3, trains=True)
    each = {path.name: json.loads(path.read_text()) for path in (home / "said").iterdir()}
    assert sorted(each) == list(ADDRESSES)
    monkeypatch.setattr(sys, "argv", ["program.py", str(home / "said")])
    runpy.run_path(str(home / "program.py"))
    steps, weights = json.loads((home / "said" / "alone").read_text())
    for found_steps, found in each.values():
        assert found_steps == steps == 12
        assert found == pytest.approx(weights, abs=1e-8)


def test_the_tasks_of_a_plain_program_meet_at_a_port_of_the_first_node(home: Path) -> None:
    runs(home, MEETS, gpus=3, min_gpus=3, max_gpus=3, ntasks=3, slurm_variables=True)
    lines = [(home / "said" / str(rank)).read_text().split() for rank in range(3)]
    total, names = ("3", "1", "2"), "127.0.0.[2-4]"
    assert lines == [
        [total[node], "127.0.0.2", names, "1(x3)", str(node), str(node), "0"] for node in range(3)
    ]
