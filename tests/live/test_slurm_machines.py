"""The machines that other tests use: networks that can be cut, and a real Slurm on them."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from patience import until
from tests import machines, slurm_machines
from tests.machines import Machines
from tests.slurm_cluster import Node, Site
from tests.slurm_machines import SlurmMachines

CALLS = "import socket, sys; socket.create_connection((sys.argv[1], 7000), float(sys.argv[2]))"
ANSWERS = "import socket; s = socket.create_server(('', 7000)); print('up', flush=True)\nwhile s.accept(): pass"  # noqa: E501
SITE = Site(
    nodes=tuple(Node(f"n{number}", 4) for number in (1, 2, 3)),
    partitions=("gpu Nodes=n[1-3] Default=YES State=UP MaxTime=INFINITE",),
)


def reaches(here: Machines, one: str, other: str, seconds: str = "60") -> bool:
    words = [*here.enter(one), sys.executable, "-c", CALLS, here.address(other), seconds]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def test_a_machine_reaches_others_unless_its_network_is_cut() -> None:
    if why := machines.reason_to_skip():
        pytest.skip(why)
    with Machines(("n1", "n2")) as here:
        assert here.run("n1", "hostname").strip() == "n1" != socket.gethostname()
        words = [*here.enter("n2"), sys.executable, "-c", ANSWERS]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None and server.stdout.readline() == b"up\n"
            assert reaches(here, "n1", "n2")
            here.cut("n1")
            assert not reaches(here, "n1", "n2", "0.2")
            here.heal("n1")
            until(lambda: reaches(here, "n1", "n2", "1"))
            server.kill()


@pytest.mark.slow
def test_a_real_slurm_runs_steps_on_machines_that_may_be_cut_off_or_lose_power(
    tmp_path: Path,
) -> None:
    if why := slurm_machines.reason_to_skip():
        pytest.skip(why)
    with SlurmMachines(SITE) as slurm:
        options = ("-N3", "--ntasks-per-node=1", "--gres=gpu:4", "--no-kill")
        job = slurm.sbatch("echo begins; sleep 600", *options, output=tmp_path / "out")
        slurm.wait_for_state(job, "RUNNING")
        found = [slurm.srun(job, node, "hostname").strip() for node in ("n1", "n2", "n3")]
        assert found == ["n1", "n2", "n3"]
        slurm.machines.cut("n3")
        assert slurm.srun(job, "n2", "hostname").strip() == "n2"
        slurm.machines.heal("n3")
        assert slurm.srun(job, "n3", "hostname").strip() == "n3"
        slurm.power_off("n2")
        slurm.power_on("n2")
        slurm.scancel(job)
        slurm.wait_for_state(job, "CANCELLED")
        assert "begins" in (tmp_path / "out").read_text()
