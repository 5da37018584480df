"""The shadow beside a real slurmctld: it sees what was submitted, and its order is Slurm's."""

import json
import os
import shutil
from collections.abc import Iterator

import pytest

from dovetail.cli.main import run
from tests.shadow.slurm_scene import set_scene
from tests.slurm_cluster import SBIN, SlurmCluster, reason_to_skip
from tests.slurm_site import SITE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(reason_to_skip()), reason=f"no Slurm here: {reason_to_skip()}"),
]


@pytest.fixture(scope="module")
def busy() -> Iterator[tuple[SlurmCluster, dict[str, int]]]:
    with SlurmCluster(SITE) as cluster:
        yield cluster, set_scene(cluster)


@pytest.fixture(autouse=True)
def _asks_it(busy: tuple[SlurmCluster, dict[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", busy[0].environment["SLURM_CONF"])
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{SBIN}")


def advice(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, list[str]]:
    assert run(["shadow", "slurm", "--json", *options]) == 0
    found: dict[str, list[str]] = json.loads(capsys.readouterr().out)
    return found


def by_priority(cluster: SlurmCluster) -> list[str]:
    """Returns the waiting jobs that may start, in Slurm's order."""
    lines = cluster.run("sprio", "--noheader", "--sort=-y", "--format", "%i %Y").splitlines()
    return [line.split()[0] for line in lines]


def test_a_shadow_sees_the_jobs_and_hands_its_order_to_slurm_and_takes_it_back(
    busy: tuple[SlurmCluster, dict[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, jobs = busy
    tasks, big, small = (str(jobs[name]) for name in ("tasks", "big", "small"))
    seen = advice(capsys, "--policy", "sjf")
    assert sorted(seen["slurm_order"]) == sorted([f"{tasks}_2", big, small])
    assert seen["order"][0] == small != seen["slurm_order"][0] == big
    assert run(["shadow", "slurm", "--policy", "sjf", "--act", "order"]) == 0
    assert "with --yes" in capsys.readouterr().out
    before = by_priority(cluster)
    assert before[0] == big
    assert run(["shadow", "slurm", "--policy", "sjf", "--act", "order", "--yes"]) == 0
    assert by_priority(cluster)[:3] == [job.partition("_")[0] for job in seen["order"]]
    capsys.readouterr()
    assert advice(capsys, "--policy", "sjf")["slurm_order"] == seen["order"]
    assert run(["shadow", "slurm", "--policy", "sjf", "--act", "none", "--yes"]) == 0
    assert by_priority(cluster)[0] == big


def test_a_user_may_look_and_may_not_act(
    busy: tuple[SlurmCluster, dict[str, int]],
) -> None:
    cluster, jobs = busy
    update = ("scontrol", "update", f"jobid={jobs['big']}", "sitefactor=1000")
    # The owner of `big`.
    as_user = ("setpriv", "--reuid=uucp", "--regid=uucp", "--clear-groups")
    assert "nodes" in json.loads(cluster.run(*as_user, "sinfo", "--json"))
    with pytest.raises(RuntimeError, match="Access/permission denied"):
        cluster.run(*as_user, *update)


def test_a_dead_slurmctld_is_one_clear_error(
    busy: tuple[SlurmCluster, dict[str, int]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster, _ = busy
    conf = cluster.path / "dead" / "slurm.conf"
    conf.parent.mkdir()
    shutil.copy(cluster.path / "gres.conf", conf.parent)
    text = (cluster.path / "slurm.conf").read_text()
    port = next(line for line in text.splitlines() if line.startswith("SlurmctldPort="))
    settings = "SlurmctldPort=1\nMessageTimeout=2"
    conf.write_text(text.replace(port, settings))
    monkeypatch.setenv("SLURM_CONF", str(conf))
    assert run(["shadow", "slurm", "--policy", "fifo"]) == 2
    assert "slurm" in capsys.readouterr().err.lower()
