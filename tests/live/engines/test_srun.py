"""The starter of a Slurm allocation, against commands of Slurm that are played here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from time import sleep

import pytest

from dovetail.cli.main import run
from dovetail.core.errors import DovetailError, InputError
from dovetail.live.engines.engine_spec import EngineSpec
from dovetail.live.engines.starters import srun
from dovetail.live.engines.starters.srun import SrunStarter, node_records

SHOWN = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=16 State=MIXED+DRAIN NodeAddr=127.0.0.1 NodeHostName=n1 \
Reason=a new State=DOWN [root@2026-11-23T12:00:00]
NodeName=n2 State={n2} ThreadsPerCore=1 NodeAddr=127.0.0.1 Reason={reason}
NodeName=n3 State=IDLE+CLOUD+POWERED_DOWN NodeAddr=127.0.0.1
"""


class Site:
    """Slurm's commands as scripts, which answer what files say."""

    def __init__(self, root: Path, *, squeue: str = "RUNNING", job: str = "7") -> None:
        self.root, self.home = root, root / "home"
        (self.home / "nodes").mkdir(parents=True, exist_ok=True)
        (root / "bin").mkdir(exist_ok=True)
        self.says("squeue", squeue)
        self.says("scontrol", SHOWN.format(n2="DOWN*", reason="Not responding"))
        self.plays("srun", f'echo "$@" >> {root}/steps; env > {root}/environment; cat')
        path = f"{root}/bin:{os.environ['PATH']}"
        self.environ = {
            "PATH": path, "SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": "n[1-3]",
            "SLURM_PROCID": "0", "SLURM_CONF": "/etc/slurm.conf", "HOME": "/",
        }  # fmt: skip

    def plays(self, command: str, script: str) -> None:
        file = self.root / "bin" / command
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def says(self, command: str, text: str, code: int = 0) -> None:
        (self.root / command).write_text(text)
        to = ">&2" if code else ""
        self.plays(command, f"cat {self.root / command} {to}; exit {code}")

    def starter(self, slots: int = 0) -> SrunStarter:
        return SrunStarter(self.home, slots, self.environ)

    def in_job(self, job: str, nodes: str) -> None:
        self.environ |= {"SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": nodes}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"SLURM_JOB_ID": ""}, "this is no Slurm allocation"),
        ({"SLURM_JOB_NODELIST": ""}, "this is no Slurm allocation"),
        ({"SLURM_JOB_ID": "../x"}, "which is no number"),
        ({"SLURM_JOB_NODELIST": "n[1-"}, "cannot be read"),
        ({"SLURM_JOB_NODELIST": "-rf"}, "is no name of a node"),
        ({"PATH": ""}, "srun is not on the PATH"),
    ],
)
def test_it_is_refused_outside_of_an_allocation(
    site: Site, changed: Mapping[str, str], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        SrunStarter(site.home, 0, {**site.environ, **changed})


def test_a_user_outside_of_an_allocation_reads_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert run(["up", "--engine", "slurm", "--home", str(tmp_path / "home")]) == 2
    said = capsys.readouterr().err
    assert "this is no Slurm allocation" in said and "sbatch" in said


@pytest.mark.parametrize("text", ["slurm:", "slurm:x", "slurm:0", "slurm:9999"])
def test_slots_of_each_node_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=text):
        EngineSpec.parse(text)
    assert EngineSpec.parse("slurm").joins
    assert EngineSpec.parse("slurm:4").slots == 4


def test_a_step_runs_the_agent_of_one_node_and_reads_the_word_from_its_input(site: Site) -> None:
    starter = site.starter(slots=2)
    assert starter.nodes() == ("n1", "n2", "n3")
    word = site.root / "word"
    word.write_text("the word\n")
    starter.start("n2", word)
    starter.close(end=True)
    (step,) = (site.root / "steps").read_text().splitlines()
    assert step.startswith("--jobid=7 --overlap --nodelist=n2 --nodes=1 --ntasks=1 ")
    assert f"-m dovetail agent --join - --transient --folder {starter.folder('n2')}" in step
    assert step.endswith(" --slots 2") and sys.executable in step
    assert "the word" not in step
    assert (site.home / "nodes" / "n2.log").read_text() == "the word\n"
    seen = dict(line.split("=", 1) for line in (site.root / "environment").read_text().splitlines())
    # It is a step of the allocation by its options: variables would describe another step.
    assert [name for name in seen if name.startswith("SLURM")] == ["SLURM_CONF"]


def test_a_step_that_begins_is_waited_for_and_one_that_ended_is_replaced(site: Site) -> None:
    site.plays("srun", f"echo x >> {site.root}/steps; exec sleep $(cat {site.root}/lasts)")
    steps, lasts = site.root / "steps", site.root / "lasts"
    word = site.root / "word"
    word.touch()
    lasts.write_text("0")
    starter = site.starter()
    starter.start("n1", word)
    starter.close(end=True)
    lasts.write_text("3600")
    starter.start("n1", word)
    while len(steps.read_text().splitlines()) < 2:
        sleep(0.01)
    starter.start("n1", word)
    assert len(steps.read_text().splitlines()) == 2
    (process, _) = starter._steps["n1"]
    process.kill()
    process.wait()


def test_agents_of_a_controller_before_have_time_to_call_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = site.root / "word"
    word.touch()
    first = site.starter()
    first.start("n1", word)
    first.close(end=True)
    steps = site.root / "steps"
    assert len(steps.read_text().splitlines()) == 1
    after = site.starter()
    after.start("n1", word)
    after.close(end=True)
    assert len(steps.read_text().splitlines()) == 1, "its agent may run"
    monkeypatch.setattr(srun, "BACK_WITHIN_S", 0.0)
    after.start("n1", word)
    after.close(end=True)
    assert len(steps.read_text().splitlines()) == 2


def test_only_nodes_without_power_or_started_anew_are_gone(site: Site) -> None:
    starter = site.starter()
    assert starter.gone() == ["n3"], "a node that is only DOWN may be cut off, and its jobs live"
    site.says("scontrol", SHOWN.format(n2="DOWN", reason="Node unexpectedly rebooted [slurm@now]"))
    assert starter.gone() == ["n2", "n3"]
    site.says("scontrol", SHOWN.format(n2="IDLE", reason="Node unexpectedly rebooted [slurm@now]"))
    assert starter.gone() == ["n3"], "it was put back since"
    site.says("scontrol", "slurm_load_node error: Unable to contact slurm controller", code=1)
    assert starter.gone() == []


def test_a_reason_may_have_any_words() -> None:
    first = node_records(SHOWN)[0]
    assert (first.name, first.address) == ("n1", "127.0.0.1")
    assert first.states == {"MIXED", "DRAIN"} and not first.is_gone


def test_a_cluster_is_in_one_allocation_at_a_time(site: Site) -> None:
    word = site.root / "word"
    word.touch()
    first = site.starter()
    first.start("n1", word)
    first.close(end=True)
    site.starter(), "a controller that is started again in the same allocation"
    site.in_job("8", "n[3-4]")
    with pytest.raises(InputError, match="runs in job 7 of Slurm, which is RUNNING"):
        site.starter()
    site.says("squeue", "slurm_load_jobs error: Unable to contact slurm controller", code=1)
    with pytest.raises(DovetailError, match="squeue does not say"):
        site.starter()
    site.says("squeue", "COMPLETING")
    after = site.starter()
    assert after.gone() == ["n3"], "on nodes of the last allocation something may live"
    after.start("n4", word)
    after.close(end=True)
    again = site.starter()
    assert again.gone() == ["n3"], "nor does a controller that is started anew forget that"
    site.says("squeue", "slurm_load_jobs error: Invalid job id specified", code=1)
    assert again.gone() == ["n1", "n3"], "job 7 is over, but on n2, which is DOWN, it may live"
    site.says("scontrol", SHOWN.format(n2="IDLE", reason="none"))
    assert again.gone() == ["n1", "n2", "n3"]
    assert json.loads((site.home / "nodes" / "allocation.json").read_text()) == {
        "jobs": ["7", "8"],
        "nodes": ["n1", "n2", "n3", "n4"],
    }


def test_agents_call_the_address_by_which_their_nodes_are_reached(site: Site) -> None:
    assert site.starter().gate_host == "", "an address of loopback is of no use to other nodes"
