"""The files of `deploy/` fit what they are for: systemd, Kubernetes and our own command."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from dovetail.cli.main import cli
from ssh_machines import DOVETAIL

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNIT = DEPLOY / "dovetail-agent.service"
OF_USERS = DEPLOY / "dovetail-agent-of-users.service"
MANIFEST = DEPLOY / "kubernetes-agents.yaml"


def options_of_agent(words: list[str]) -> dict[str, object]:
    """Returns the options of a command line of `dovetail agent`, parsed as the program does."""
    assert Path(words[0]).name == "dovetail" and words[1] == "agent"
    agent = cli.get_command(click.Context(cli), "agent")
    assert agent is not None
    return agent.make_context("agent", words[2:]).params


@pytest.mark.parametrize("file", [UNIT, OF_USERS], ids=lambda file: file.stem)
def test_systemd_takes_the_unit_of_an_agent(tmp_path: Path, file: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze is installed (Debian: systemd)")
    text = file.read_text()
    assert "ExecStart=/usr/local/bin/dovetail " in text
    assert ("User=dovetail" in text) is (file is UNIT), "the agent of several users is root's"
    unit = tmp_path / file.name
    # Program and user exist where an operator has made them.
    text = text.replace("/usr/local/bin/dovetail", str(DOVETAIL)).replace("User=dovetail\n", "")
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True
    )
    assert (done.returncode, [x for x in done.stderr.splitlines() if file.name in x]) == (0, [])
    unit.write_text(text.replace("KillMode=process", "KillMode=proces"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True
    )
    assert "kill mode" in done.stderr, "it does read the unit"


def test_the_unit_runs_an_agent_whose_workers_outlive_it() -> None:
    lines = UNIT.read_text().splitlines()
    (start,) = (line.partition("=")[2] for line in lines if line.startswith("ExecStart="))
    options = options_of_agent(shlex.split(start))
    assert (str(options["folder"]), options["daemon"]) == ("/var/lib/dovetail", False)
    assert "KillMode=process" in lines and "StateDirectory=dovetail" in lines


def test_the_unit_and_the_command_of_a_node_of_several_users_go_by_the_same_file() -> None:
    unit = OF_USERS.read_text().splitlines()
    (start,) = (line.partition("=")[2] for line in unit if line.startswith("ExecStart="))
    of_unit = options_of_agent(shlex.split(start))
    script = (DEPLOY / "dovetail-node").read_text()
    words = shlex.split(script[script.index("exec ") :].replace("\\\n", ""))[1:]
    of_command = options_of_agent(words)
    for name in ("users", "folder"):
        assert of_unit[name] == of_command[name]
    assert (str(of_command["word"]), of_command["daemon"]) == ("-", True)
    assert "KillMode=process" in unit and "StateDirectoryMode=0711" in unit


def test_sudo_lets_the_controllers_account_start_the_agent_and_nothing_else() -> None:
    rule = (DEPLOY / "dovetail.sudoers").read_text().splitlines()[-1]
    assert rule == 'dovetail ALL=(root) NOPASSWD: /usr/local/sbin/dovetail-node ""'
    if shutil.which("visudo", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("no visudo is installed (Debian: sudo)")
    done = subprocess.run(
        ["/usr/sbin/visudo", "-cf", str(DEPLOY / "dovetail.sudoers")], capture_output=True
    )
    assert done.returncode == 0, done.stderr


def test_the_manifest_of_agents_fits_the_schema_of_kubernetes() -> None:
    schemas = pytest.importorskip("kubernetes_validate")
    manifest = yaml.safe_load(MANIFEST.read_text())
    for version in ("1.30", schemas.latest_version()):
        schemas.validate(manifest, version, strict=True)
    manifest["spec"]["template"]["spec"]["containers"][0]["comand"] = []
    with pytest.raises(schemas.ValidationError):
        schemas.validate(manifest, "1.30", strict=True)


def test_the_manifest_runs_agents_that_see_one_word_and_hold_the_gpus() -> None:
    pod = yaml.safe_load(MANIFEST.read_text())["spec"]["template"]["spec"]
    (agent,) = pod["containers"]
    *shell, loop = agent["command"]
    assert shell == ["sh", "-c"]
    line = loop.removeprefix("while :; do ").partition(";")[0]
    options = options_of_agent(shlex.split(line))
    mounts = {mount["name"]: mount["mountPath"] for mount in agent["volumeMounts"]}
    assert str(options["word"]) == f"{mounts['word']}/join"
    assert str(options["folder"]).startswith(mounts["agent"])
    assert "words" not in mounts, "the secrets of other nodes"
    assert agent["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert pod["shareProcessNamespace"] is True
