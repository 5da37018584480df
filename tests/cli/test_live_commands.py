"""A live cluster as its user meets it: real controller, real agents, real programs."""

import json
import os
import random
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from command_runner import Said, Shell

from dovetail.cli import up
from dovetail.live.client.client import Client
from dovetail.live.engines.local_engine import is_running
from dovetail.live.store.folder import Folder
from patience import until

PATIENT = Path(__file__).parents[1] / "patient_dovetail.py"
"""`dovetail`, by which no job begins anew because its agent was kept from speaking."""
SPEED = 200


class Cluster:
    """A live cluster in a folder of its own, asked through the command line."""

    def __init__(self, shell: Shell, home: Path) -> None:
        self.shell = shell
        self.home = home
        self.folder = Folder(home)
        self.processes: list[int] = []

    def __call__(self, *words: object) -> Said:
        """Runs a command that must succeed."""
        return self.shell.ok(words[0], "--home", self.home, *words[1:])

    def refused(self, *words: object) -> str:
        """Runs a command that must be refused; returns the line it says."""
        return self.shell.refused(words[0], "--home", self.home, *words[1:])

    def up(self, *words: object) -> int:
        """Starts a controller; returns its process."""
        self.processes.append(int(self("up", *words, "--json").json["pid"]))
        return self.processes[-1]

    def submit(self, *words: object) -> int:
        """Submits one job; returns its number."""
        (job,) = self("submit", "--json", *words).json["jobs"]
        return int(job)

    def row(self, job: int) -> dict[str, Any]:
        """Returns the row of a job."""
        row: dict[str, Any] = self("show", job, "--json").json["row"]
        return row

    def state(self, job: int) -> str:
        """Returns the state of a job."""
        return str(self.row(job)["state"])

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Waits until something is true."""
        until(true, lambda: f"{what}\n{self('ls', '--all').out}{self.logs()}")

    def until_state(self, job: int, state: str) -> None:
        """Waits until a job is in a state."""
        self.until(lambda: self.state(job) == state, f"job {job} never was {state}")

    def logs(self) -> str:
        """Returns what controller and agents logged."""
        files = [self.folder.log, self.home / "nodes" / "agent.log"]
        return "\n".join(f.read_text() for f in files if f.exists())

    def end(self) -> None:
        """Leaves no process behind, whatever happened."""
        agents = re.findall(r"listen \(process (\d+)\)", self.logs())
        for process in (*self.processes, *map(int, agents)):
            if f"--home\0{self.home}".encode() in _command_line(process):
                with suppress(ProcessLookupError):  # It may be just ending by itself.
                    os.kill(process, signal.SIGKILL)
        shutil.rmtree(self.home, ignore_errors=True)


def _command_line(process: int) -> bytes:
    """Returns the words of a process, nothing if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


@pytest.fixture
def cluster(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Returns a cluster that is not up yet; all that it started is ended."""

    def start(words: list[str], **given: Any) -> subprocess.Popen[bytes]:
        usual = [sys.executable, "-m", "dovetail"]
        assert words[: len(usual)] == usual
        return subprocess.Popen([sys.executable, str(PATIENT), *words[len(usual) :]], **given)

    monkeypatch.setattr(up, "subprocess", SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL))
    made = Cluster(shell, Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp")))
    try:
        yield made
        _take_down(made)
    finally:
        made.end()


def _take_down(made: Cluster) -> None:
    """Takes a cluster down politely, which must leave nothing behind."""
    if (made.home / "api.sock").exists():
        running = [row["job"] for row in made("ls", "--json").json["jobs"]]
        if running:
            made("cancel", *running)
        made("down", "--drain")
    assert not is_running(made.home)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the folder of the user, with scripts that take as long as their argument says."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text(
        '#!/bin/sh\n#SBATCH --job-name=tell\necho "here is $1"\nsleep "$2"\necho done\nexit "$3"\n'
    )
    return tmp_path


def test_a_day_in_the_life_of_a_cluster(cluster: Cluster, work: Path) -> None:
    cluster.up("--engine", "local:2")
    quick = cluster.submit("job.sh", "quick", "0.3", "0")
    long = cluster.submit("job.sh", "long", "3600", "0")
    big = cluster.submit("job.sh", "big", "0", "0", "--gpus", "2")
    behind = cluster.submit("job.sh", "behind", "0", "0")

    followed = cluster("logs", "-f", quick)
    assert followed.out == "here is quick\ndone\n"
    cluster.until_state(quick, "COMPLETED")
    cluster.until_state(long, "RUNNING")

    # The big job is next but has no room; the small one stands behind it.
    def would_start() -> str:
        return str(cluster("why", big, "--json").json["would_start"])

    def ahead() -> list[int]:
        return list(cluster("why", behind, "--json").json["ahead"])

    # The picture that reasons are taken from is made a few times a second.
    cluster.until(lambda: "1 more GPU must become free" in would_start(), "no picture of it")
    why = cluster("why", big, "--json").json
    assert (why["state"], why["code"]) == ("PENDING", "Resources")
    cluster.until(lambda: ahead() == [big], "no picture of who is behind it")
    assert f"[{long}]" in cluster("top", "--once").out

    # Held, it lets the one behind pass; released, it waits again.
    cluster("hold", big)
    cluster.until_state(behind, "COMPLETED")
    assert cluster.row(big)["reason"] == "JobHeldUser"
    cluster("release", big)
    assert "is on GPUs" in cluster.refused("hold", long)

    # Cancelled, the long one is gone at once, and there is room.
    cluster("cancel", long)
    cluster.until_state(long, "CANCELLED")
    cluster.until_state(big, "COMPLETED")
    assert "cancelled by its owner" in cluster("why", long).out

    failed = cluster.submit("job.sh", "broken", "0", "3", "--set", "retries=0")
    cluster.until_state(failed, "FAILED")
    assert "exited with code 3" in cluster("why", failed).out
    cluster("requeue", failed)
    cluster.until(lambda: cluster("logs", failed).out.count("here is broken") == 2, "no second run")
    cluster.until_state(failed, "FAILED")

    # What never ran has no length, so it is no job of the trace.
    never = cluster.submit("job.sh", "never", "0", "0", "--hold")
    cluster("cancel", never)
    cluster.until_state(never, "CANCELLED")

    # What has been is told, as a table, as facts, and as files for the simulator.
    assert len(cluster("history", "--json").json["jobs"]) == 6
    facts = [json.loads(line)["e"] for line in cluster("history", quick, "--json").out.splitlines()]
    assert facts[0] == "submitted" and facts[-1] == "ended"
    cluster("history", "--export", work / "events.jsonl", "--trace", work / "jobs.csv")
    assert cluster.shell.ok("replay", work / "events.jsonl").out.startswith("fifo")
    trace = cluster.shell.ok(
        "simulate", work / "jobs.csv", "-p", "fifo", "--cluster", "1x2", "--json"
    )
    assert trace.json["jobs"] == 5
    cluster("down")
    assert "no controller runs" in cluster.shell("ls", "--home", cluster.home).err


def test_running_jobs_do_not_notice_that_the_controller_was_killed(
    cluster: Cluster, work: Path
) -> None:
    (work / "wait.sh").write_text(
        "#!/bin/sh\necho $$\nwhile [ ! -e go ]; do sleep 0.05; done\necho went\n"
    )
    first = cluster.up("--engine", "local:1")
    running = cluster.submit("wait.sh")
    waiting = cluster.submit("job.sh", "second", "0", "0", "--dependency", f"afterok:{running}")
    cluster.until(lambda: bool(cluster("logs", running).out), "it never began")
    cluster.until_state(running, "RUNNING")
    started = cluster.row(running)
    os.kill(first, signal.SIGKILL)
    cluster.until(lambda: not _command_line(first), "it lives on")

    second = cluster.up("--engine", "local:1")
    assert second != first
    cluster.until_state(running, "RUNNING")
    assert cluster.row(running)["start_s"] == started["start_s"]
    cluster.until(lambda: cluster.row(waiting)["reason"] == "Dependency", "nobody looked at it")
    said = cluster("down").out
    assert "1 job continues to run until the next dovetail up" in said
    (work / "go").touch()
    cluster.up("--engine", "local:1")
    cluster.until_state(waiting, "COMPLETED")
    log = cluster("logs", running).out.splitlines()
    assert len(log) == 2 and log[1] == "went", "it was started once"


def test_the_sites_scripts_run_on_each_node_and_drain_one_that_is_bad(
    cluster: Cluster, work: Path, tmp_path: Path
) -> None:
    def script(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def drains(node: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = cluster("nodes", "--json").json["nodes"][node]["drains"]
        return found

    bad, log = tmp_path / "bad", tmp_path / "log"
    check = script("check", f"test -e {bad} && echo no scratch && exit 1; exit 0")
    # The prolog of the first job fails, on whichever node that is.
    first = f"mkdir {tmp_path}/first 2>/dev/null && echo no module && exit 1"
    prolog = script("prolog", f'{first}\necho "prolog $DOVETAIL_JOB" >> {log}')
    epilog = script("epilog", f'echo "epilog $DOVETAIL_JOB" >> {log}')
    assert "is not an executable file" in cluster.refused("up", "--prolog", tmp_path)
    assert "run no scripts" in cluster.refused("up", "--engine", "emulated:1x1", "--prolog", prolog)
    words = ("--health-check", check, "--health-every", 1, "--prolog", prolog, "--epilog", epilog)
    cluster.up("--engine", "local:2x1", *words)
    job = cluster.submit("job.sh", "x", "0", "0")
    cluster.until_state(job, "COMPLETED")
    assert cluster.row(job)["retries"] == 0, "by no fault of its own"
    (failed,) = [node for node in (0, 1) if drains(node)]
    assert [(d["source"], d["reason"]) for d in drains(failed)] == [
        ("prolog", f"prolog of job {job}: no module")
    ]
    cluster.until(lambda: "epilog" in log.read_text(), "no epilog ran")
    assert log.read_text() == f"prolog {job}\nepilog {job}\n"
    bad.touch()
    cluster.until(
        lambda: len(drains(failed)) == 2 and bool(drains(1 - failed)), "the check drained nothing"
    )
    assert [d["reason"] for d in drains(1 - failed)] == ["health check: no scratch"]
    bad.unlink()
    cluster.until(lambda: drains(1 - failed) == [], "the node was not given back")
    assert "no module" in cluster("nodes").out
    cluster("drain", failed, "--undo")
    cluster.until(lambda: drains(failed) == [], "a user cannot undo it")


def test_a_job_that_writes_without_end_keeps_its_newest_output(
    cluster: Cluster, work: Path
) -> None:
    assert "--output-max" in cluster.refused("up", "--output-max", "1K")
    cluster.up("--engine", "local:1", "--output-max", "64K")
    (work / "wordy.sh").write_text("#!/bin/sh\nyes | head -c 300000\nexec sleep 60\n")
    job = cluster.submit("wordy.sh")
    chosen = cluster.home / "jobs" / str(job) / "output.log"
    marker = "[dovetail: the output exceeded 0.0625 MiB; "
    cluster.until(lambda: marker in cluster("logs", job).out, "the output was not bounded")
    assert chosen.with_name("output.log.1").stat().st_size <= 1 << 16


@pytest.mark.slow
def test_a_job_that_sleeps_is_warned_and_loses_its_slot_and_one_that_works_does_not(
    cluster: Cluster, work: Path
) -> None:
    assert "at least 60s" in cluster.refused("up", "--reclaim-idle", "1s")
    cluster.up("--engine", "local:2", "--reclaim-idle", "60s")
    (work / "sleeps.sh").write_text("#!/bin/sh\nsleep 600\n")
    (work / "works.sh").write_text("#!/bin/sh\nwhile true; do :; done\n")
    sleeps, works = cluster.submit("sleeps.sh"), cluster.submit("works.sh")
    cluster.until_state(sleeps, "CANCELLED")
    assert cluster.row(sleeps)["reason"] == "IdleLimit"
    assert "[dovetail: this job does not use its GPUs" in cluster("logs", sleeps).out
    assert cluster.state(works) == "RUNNING" and cluster("logs", works).out == ""
    assert "idle" not in cluster.row(works)["where"]
    cluster("cancel", works)


def test_arrays_drains_and_waiting_for_the_end(cluster: Cluster, work: Path) -> None:
    cluster.up("--engine", "local:2x1")
    cluster("drain", 1)
    first = cluster.submit("job.sh", "task", "0.1", "0", "--array", "0-3")
    cluster.until_state(first + 3, "COMPLETED")
    assert {n["state"] for n in cluster("nodes", "--json").json["nodes"]} == {"up", "draining"}
    facts = [json.loads(x) for x in cluster("history", "--events", "--json").out.splitlines()]
    assert {node for f in facts if f["e"] == "started" for node, _ in f["on"]} == {0}
    cluster("drain", 1, "--undo")
    both = cluster("submit", "job.sh", "x", "0", "0", "--gpus", "2", "--wait")
    assert both.out.endswith(f"job {first + 4} is COMPLETED (exit code 0)\n")
    failed = cluster.shell(
        "submit", "job.sh", "x", "0", "9", "--wait", "--json", "--home", cluster.home
    )
    assert failed.code == 1
    (ended,) = failed.json["ended"]
    assert (ended["job"], ended["state"], ended["exit_code"]) == (first + 5, "FAILED", 9)
    assert cluster("show", f"{first}_2", "--json").json["row"]["job"] == first + 2
    assert "is an array of 4" in cluster.refused("why", first)


def test_secrets_stay_where_they_are(cluster: Cluster, work: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    cluster.up("--engine", "local:1", "--listen", address)
    assert Client(cluster.home, address=address).ping().engine == "local:1"
    job = cluster.submit("--env", "KEY=hunter2", "--wait", "--", "sh", "-c", "echo $KEY")
    assert cluster("logs", job).out == "hunter2\n", "its own output is the user's business"
    token = cluster.folder.token()
    cluster("history", "--export", work / "events.jsonl")
    said = cluster.logs() + (work / "events.jsonl").read_text()
    for words in (("show", job), ("why", job), ("history", job), ("ls", "--all", "--json")):
        said += cluster(*words).out
    assert "hunter2" not in said
    assert token not in said
    with sqlite3.connect(cluster.folder.store) as db:
        assert token not in "\n".join(db.iterdump())
    db.close()
    for folder, folders, files in os.walk(cluster.home):
        for path in (Path(folder) / name for name in (*folders, *files)):
            with suppress(FileNotFoundError):  # Agents clear up meanwhile.
                assert not path.stat().st_mode & 0o077, path


def free_port() -> int:
    """Returns a port that nobody has, and that no program is given that asks for any."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_000, lowest)
        with suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port))
            return port


def test_an_emulated_cluster_keeps_the_time_of_the_simulator(cluster: Cluster, work: Path) -> None:
    (work / "jobs.yaml").write_text(
        "paced: yes\njobs:\n"
        + "".join(
            f"  - name: j{i}\n    gpus: {gpus}\n    duration: {seconds}s\n"
            for i, (gpus, seconds) in enumerate([(4, 300), (8, 200), (2, 600), (1, 100), (8, 150)])
        )
    )
    cluster.up("--engine", f"emulated:2x4@{SPEED}", "--policy", "sjf")
    began = monotonic()
    cluster("submit", "jobs.yaml", "--wait")
    took_s = monotonic() - began
    replayed = cluster.shell("replay", cluster.home, "--json").json
    live = replayed["live"]
    assert len(live["jobs"]) == 5
    assert replayed["differences"] == []
    # Of a busy machine more time passes between its steps, and never less in them.
    assert live["real_jct_s"] > 0.99 * live["predicted_jct_s"]
    assert 0.99 * live["predicted_makespan_s"] < live["real_makespan_s"] < SPEED * took_s


def test_what_cannot_be_is_said_before_anything_starts(cluster: Cluster, work: Path) -> None:
    asked = {
        ("--policy", "srtf", "--forecast", "unknown"): "it needs to know: length",
        ("--policy", "fife"): "did you mean 'fifo'?",
        ("--engine", "slurm"): "this is no Slurm allocation",
        ("--listen", "0.0.0.0:7077"): "only this machine may be listened to",
        ("--forecast", "known"): "--forecast",
    }
    for words, what in asked.items():
        assert what in cluster.refused("up", *words), words
    assert not (cluster.home / "api.sock").exists()
    cluster.up("--engine", "local:1")
    assert "a controller runs here already" in cluster.refused("up", "--engine", "local:1")
    assert "needs an emulated cluster" in cluster.refused(
        "submit", "--set", "paced=yes", "--set", "duration=5s", "--", "x"
    )
    assert "it needs 3 GPUs, the cluster has 1" in cluster.refused(
        "submit", "job.sh", "--gpus", "3"
    )
    assert "cannot be read" in cluster.refused("submit", "nothing.sh")
    cluster.submit("job.sh", "waits", "0", "0", "--hold")
    cluster("down")
    assert "belong to its engine local:1" in cluster.refused("up", "--engine", "emulated:1x1")


def test_a_controller_whose_folder_is_gone_ends_and_frees_the_nodes(
    cluster: Cluster, work: Path
) -> None:
    first = cluster.up("--engine", "local:1")
    job = cluster.submit("job.sh", "x", "3600", "0")
    cluster.until(lambda: bool(cluster("logs", job).out), "it never began")
    # Gone at once, whatever is just written in it.
    gone = cluster.home.rename(cluster.home.with_suffix(".gone"))
    shutil.rmtree(gone, ignore_errors=True)
    until(lambda: not _command_line(first))
    shutil.rmtree(gone, ignore_errors=True)
    cluster.home.mkdir(mode=0o700)
    cluster.up("--engine", "local:1")
    cluster("submit", "job.sh", "y", "0", "0", "--wait")
