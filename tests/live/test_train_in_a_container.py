"""`dovetail.train` in containers on a real cluster: two workers, an agent that is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import dovetail
from dovetail.live.client.client import Client
from dovetail.live.engines.local_engine import is_running
from patience import PATIENCE_S, until
from podman_here import MOUNTS, containers, podman_here

PATIENT = Path(__file__).parents[1] / "patient_dovetail.py"
EXAMPLE = Path(__file__).parents[2] / "examples" / "train" / "tiny_transformer.py"


@pytest.fixture
def home() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="dv"))
    yield path
    said(path, "down")
    shutil.rmtree(path / "nodes", ignore_errors=True)
    # Agents whose folder is gone end their workers and themselves.
    until(lambda: not is_running(path))
    shutil.rmtree(path, ignore_errors=True)


def said(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PATIENT), words[0], "--home", str(home), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE_S)


def agent(home: Path) -> int:
    """Returns the process of the agents."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"local-agents" in words and os.fsencode(home) in words:
                return int(entry.name)
    return 0


@pytest.mark.slow
def test_workers_in_containers_train_on_while_their_agent_is_replaced(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    rootfs = podman_here(tmp_path, monkeypatch)
    mounted = {mount.destination for mount in MOUNTS}
    python = (sys.prefix, *sys.path, str(Path(dovetail.__file__).parents[1]), str(EXAMPLE.parent))
    mounted |= {str(Path(path).resolve()) for path in python if path and Path(path).exists()}
    up = said(
        home, "up", "--engine", "local:2", "--policy", "fifo", "--container-runtime", "podman"
    )
    assert up.returncode == 0, up.stderr
    words = (
        "--gpus",
        "2",
        "--trains",
        "--container-image",
        str(rootfs),
        "--json",
        "--container-mounts",
    )
    paths = ",".join(f"{path}:{path}:ro" for path in sorted(mounted))
    job = said(home, "submit", *words, paths, "--", sys.executable, str(EXAMPLE), "4")
    assert job.returncode == 0, job.stderr
    (number,) = json.loads(job.stdout)["jobs"]
    client = Client(home, patience_s=PATIENCE_S)
    log = home / "jobs" / str(number) / "output.log"

    def told() -> str:
        output = log.read_text() if log.exists() else ""
        return f"{client.show(str(number))}\n{output}\n{(home / 'nodes/agent.log').read_text()}"

    until(lambda: len(containers()) == 2, told)
    until(lambda: client.show(str(number)).iteration_s > 0, told)
    os.kill(agent(home), signal.SIGKILL)
    (end,) = client.wait(number, timeout_s=PATIENCE_S)
    assert end.state == "COMPLETED", told()
    assert client.show(str(number)).stops == 0, "the same workers trained on"
    assert containers() == []
