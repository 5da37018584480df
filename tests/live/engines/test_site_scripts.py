"""A site's scripts on a node, as real processes: its health check, prolog and epilog."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.live.engines.site_scripts import FILE, HealthScript, JobScripts, write_site
from dovetail.live.node.launcher import BY_NODE, LaunchError
from dovetail.wire.agent import CHECK, StartWorker
from dovetail.wire.site import SiteSettings
from patience import until

ORDER = StartWorker(7, 0, 1, 1, ("program",), "/job", "/job/out", "/work", user="ann")
Script = Callable[[str, str], str]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    def written(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return written


def scripts_of(folder: Path, **words: str | float) -> Path:
    write_site(SiteSettings(**words), folder / FILE)  # type: ignore[arg-type]
    return folder / FILE


def jobs(tmp_path: Path) -> JobScripts:
    return JobScripts(tmp_path / FILE, tmp_path / "node" / "jobs", ("slot-0", "slot-1"))


def ended(scripts: JobScripts) -> bool:
    scripts.tick()
    return not list((scripts._folder).glob("*.json"))


def started(scripts: JobScripts, order: StartWorker = ORDER) -> None:
    until(lambda: scripts.must_wait(order) == "")
    scripts.started(order.job, order.worker)


def test_without_scripts_nothing_runs_and_nothing_waits(tmp_path: Path) -> None:
    scripts = jobs(tmp_path)
    assert scripts.must_wait(ORDER) == ""
    scripts.started(7, 0)
    scripts.ended(7, 0)
    assert not (tmp_path / "node").exists()
    check = HealthScript(tmp_path / FILE, tmp_path / "node")
    check.tick()
    assert not check.ran and check.fault is None


def test_a_job_has_its_prolog_before_its_first_worker_and_its_epilog_after_its_last(
    tmp_path: Path, script: Script
) -> None:
    says = 'echo "$0 $DOVETAIL_JOB $DOVETAIL_USER $DOVETAIL_GPUS" >> '
    log = tmp_path / "log"
    scripts_of(
        tmp_path,
        prolog=script("prolog", f"sleep 0.1\n{says}{log}"),
        epilog=script("epilog", f"sleep 0.1\n{says}{log}"),
    )
    scripts = jobs(tmp_path)
    assert scripts.must_wait(ORDER) == "the prolog runs"
    started(scripts)
    second = StartWorker(7, 1, 1, 0, ("program",), "/job", "/job/out", "/work")
    assert scripts.must_wait(second) == "", "once for a job"
    scripts.started(7, 1)
    scripts.ended(7, 0)
    assert scripts.must_wait(ORDER) == ""
    scripts.ended(7, 1)
    other = StartWorker(8, 0, 1, 1, ("program",), "/job", "/job/out", "/work")
    assert scripts.must_wait(other) == "the epilog of job 7 runs"
    until(lambda: ended(scripts))
    lines = [line.split(" ", 1) for line in log.read_text().splitlines()]
    assert [(Path(name).name, said) for name, said in lines] == [
        ("prolog", "7 ann slot-1"),
        ("epilog", "7 ann slot-1"),
    ]
    assert scripts.faults == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo; echo 'no  scratch disk'; echo more; exit 3", "no  scratch disk"),
        ("exit 3", "ended with exit code 3"),
        ("sleep 60 & sleep 60", "took longer than 1 s"),
    ],
)
def test_a_prolog_that_fails_is_the_nodes_fault(
    tmp_path: Path, script: Script, text: str, why: str
) -> None:
    scripts_of(tmp_path, prolog=script("prolog", text), script_limit_s=1.0)
    scripts = jobs(tmp_path)
    with pytest.raises(LaunchError) as refused:
        until(lambda: scripts.must_wait(ORDER) == "")
    assert str(refused.value).startswith(f"{BY_NODE}: prolog: ") and why in str(refused.value)
    (fault,) = scripts.faults
    assert (fault.gpu, fault.source) == (-1, "prolog") and why in fault.what


def test_an_epilog_that_fails_is_the_nodes_fault_and_frees_its_gpus(
    tmp_path: Path, script: Script
) -> None:
    scripts_of(tmp_path, epilog=script("epilog", "echo disk is full; exit 1"))
    scripts = jobs(tmp_path)
    started(scripts)
    scripts.ended(7, 0)
    until(lambda: ended(scripts))
    assert [fault.what for fault in scripts.faults] == ["epilog of job 7: disk is full"]
    assert scripts.must_wait(ORDER) == ""


def test_a_later_agent_ends_what_an_earlier_one_began(tmp_path: Path, script: Script) -> None:
    log = tmp_path / "log"
    scripts_of(tmp_path, epilog=script("epilog", f'echo "$DOVETAIL_JOB" >> {log}'))
    first = jobs(tmp_path)
    for order in (ORDER, StartWorker(8, 0, 1, 0, ("program",), "/job", "/job/out", "/work")):
        started(first, order)
    later = jobs(tmp_path)
    later.started(8, 0)  # Adopted. The worker of job 7 has ended meanwhile.
    later.finish_adopting()
    until(lambda: later.tick() is None and log.exists() and log.read_text() == "7\n")
    later.ended(8, 0)
    until(lambda: ended(later))
    assert log.read_text() == "7\n8\n"


def test_a_check_drains_while_it_fails_and_only_then(tmp_path: Path, script: Script) -> None:
    bad = tmp_path / "bad"
    file = scripts_of(
        tmp_path, health_check=script("check", f"cat {bad} 2>/dev/null && exit 1 || exit 0")
    )
    now = [0.0]
    check = HealthScript(file, tmp_path / "node", lambda: now[0])

    def run() -> str:
        now[0] += 60.0
        check.tick()
        assert check._run is not None
        until(lambda: check.tick() is None and check._run is None)
        return "" if check.fault is None else check.fault.what

    check.tick()
    assert check.is_first
    until(lambda: check.tick() is None and check.ran)
    assert check.fault is None
    bad.write_text("/scratch is read-only")
    assert run() == "health check: /scratch is read-only"
    assert check.fault is not None and check.fault.source == CHECK
    os.unlink(bad)
    assert run() == ""


def test_a_check_that_is_not_there_is_told(tmp_path: Path) -> None:
    check = HealthScript(scripts_of(tmp_path, health_check="/nowhere/check"), tmp_path / "node")
    check.tick()
    until(lambda: check.tick() is None and check.ran)
    assert check.fault is not None and "/nowhere/check cannot be run" in check.fault.what


def test_a_script_that_every_user_can_change_is_not_run(tmp_path: Path, script: Script) -> None:
    path = script("prolog", f"touch {tmp_path}/ran")
    Path(path).chmod(0o757)
    scripts_of(tmp_path, prolog=path)
    scripts = jobs(tmp_path)
    with pytest.raises(LaunchError, match="can be changed by every user"):
        until(lambda: scripts.must_wait(ORDER) == "")
    assert not (tmp_path / "ran").exists()
