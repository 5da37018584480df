"""Agents are started by a real ssh; what it starts is a script that says what it was given."""

from __future__ import annotations

import logging
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.engines.joined_engine import JoinSettings
from dovetail.live.engines.node_file import NodeEntry, read_node_file
from dovetail.live.engines.shared_engine import engine_of_users
from dovetail.live.engines.starters.none import NoStarter
from dovetail.live.engines.starters.ssh import SshStarter, folder_of, start_script
from dovetail.live.join.word import JoinWord
from dovetail.version import __version__
from patience import UNHURRIED_S
from ssh_machines import SshMachines

PRINT, SECRET = "ab" * 32, "5ec2e7" * 10 + "5ec2"
FAKE = """#!/bin/sh
if [ "$1" = --version ]; then echo "dovetail, version {version}"; exit 0; fi
echo "$@" >>{place}/given
cat {place}/there/join >{place}/word
cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' >{place}/seen
env >{place}/env
{then}
"""


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshMachines]:
    machines = SshMachines(tmp_path_factory.mktemp("ssh"), ["127.0.0.2"])
    yield machines
    machines.close()


class Scene:
    """A starter of one node, whose `dovetail` is a script."""

    def __init__(self, place: Path, machines: SshMachines) -> None:
        self.place, self.port = place, machines.port
        self.word = place / "word.n1"
        JoinWord("127.0.0.1", 7077, PRINT, "n1", SECRET).write(self.word)
        self.fields = {
            "address": "127.0.0.2", "port": machines.port, "folder": str(place / "there"),
            "command": str(place / "dovetail"),
        }  # fmt: skip
        self.installs()

    def installs(self, version: str = __version__, then: str = "exit 0") -> None:
        command = self.place / "dovetail"
        command.write_text(FAKE.format(version=version, place=self.place, then=then))
        command.chmod(0o700)

    def starter(self, **changes: str | int) -> SshStarter:
        fields = self.fields | changes
        lines = [f"{key} = {value!r}" for key, value in fields.items() if value != ""]
        file = self.place / "nodes.toml"
        file.write_text("\n".join(["[[node]]", 'name = "n1"', *lines]))
        return SshStarter(file)

    def failure(self, **changes: str | int) -> str:
        with pytest.raises(DovetailError) as error:
            self.starter(**changes).start("n1", self.word)
        return str(error.value)


@pytest.fixture
def scene(tmp_path: Path, machines: SshMachines, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("PATH", machines.path)
    return Scene(tmp_path, machines)


def test_an_agent_gets_its_word_in_a_file_of_its_own_and_nowhere_else(scene: Scene) -> None:
    scene.starter(slots=3, host="127.0.0.2").start("n1", scene.word)
    folder = scene.place / "there"
    options = f"--join {folder}/join --folder {folder} --slots 3 --host 127.0.0.2 --daemon"
    assert (scene.place / "given").read_text() == f"agent {options}\n"
    assert (scene.place / "word").read_text() == scene.word.read_text()
    assert stat.S_IMODE((folder / "join").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    seen = (scene.place / "seen").read_text(errors="replace")
    assert PRINT in seen, "the script itself is seen, with the fingerprint"
    assert SECRET not in seen
    assert "SSH_CONNECTION" not in (scene.place / "env").read_text()


def test_what_is_missing_there_is_said(scene: Scene) -> None:
    assert scene.failure(command="no-such-dovetail") == (
        f"127.0.0.2, port {scene.port}: no-such-dovetail is not found; install dovetail "
        f"{__version__} there, or give its path as command"
    )
    scene.installs(then="echo 'Error: No such option: --join' >&2; exit 2", version="0.0.7")
    assert scene.failure() == (
        f"127.0.0.2, port {scene.port}: Error: No such option: --join "
        f"(dovetail 0.0.7 is there, and {__version__} here)"
    )
    (scene.place / "file").touch()
    assert "the folder" in scene.failure(folder=str(scene.place / "file" / "below"))


def test_another_version_that_runs_is_told_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.installs(version="0.0.7")
    starter = scene.starter()
    with caplog.at_level(logging.WARNING):
        starter.start("n1", scene.word)
        starter.start("n1", scene.word)
    assert caplog.text.count("node n1 has dovetail 0.0.7") == 1


def test_why_ssh_fails_is_said(scene: Scene, machines: SshMachines) -> None:
    assert "ssh nobody-there.invalid: ssh: Could not resolve" in scene.failure(
        address="nobody-there.invalid", port=""
    )
    assert "Connection refused" in scene.failure(address="127.0.0.9")
    known = machines.root / "known_hosts"
    text = known.read_text()
    try:
        known.write_text("")
        said = scene.failure()
    finally:
        known.write_text(text)
    assert said.endswith(
        "Host key verification failed.; log in once to check its key: ssh 127.0.0.2"
    )
    said = scene.failure(user="no-such-user")
    assert "Permission denied" in said
    assert said.endswith("password: ssh -o BatchMode=yes no-such-user@127.0.0.2 true")
    assert not (scene.place / "given").exists()


def test_the_agent_of_another_cluster_keeps_its_folder(scene: Scene) -> None:
    folder = scene.place / "there"
    folder.mkdir(mode=0o700)
    JoinWord("127.0.0.1", 7077, "cd" * 32, "n1", SECRET).write(folder / "join")
    assert "has the agent of another cluster" in scene.failure()
    assert "cd" * 32 in (folder / "join").read_text()


def test_an_agent_that_runs_already_gets_the_new_word(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.installs(then="echo 'dovetail: there: agents run here already' >&2; exit 2")
    folder = scene.place / "there"
    folder.mkdir(mode=0o700)
    JoinWord("127.0.0.1", 6000, PRINT, "n1", SECRET).write(folder / "join")
    scene.starter().start("n1", scene.word)
    assert "7077" in (folder / "join").read_text(), "the controller's new address"
    assert "has not joined" in caplog.text


def test_no_word_and_no_agent_is_left_at_the_end(scene: Scene) -> None:
    starter = scene.starter()
    starter.start("n1", scene.word)
    agent = subprocess.Popen(["sh", "-c", "sleep 3600; true", "x", "agent", "--join", "x"])
    (scene.place / "there" / "agent.lock").write_text(f"{agent.pid}\n")
    starter.close(end=False)
    assert agent.poll() is None
    starter.close(end=True)
    agent.wait(UNHURRIED_S)
    assert not (scene.place / "there" / "join").exists()
    # Another process may have its number by now.
    other = subprocess.Popen(["sleep", "3600"])
    (scene.place / "there" / "agent.lock").write_text(f"{other.pid}\n")
    scene.word.replace(scene.place / "there" / "join")
    starter.close(end=True)
    assert not (scene.place / "there" / "join").exists()
    assert other.poll() is None
    other.kill()
    other.wait()


@pytest.mark.parametrize("folder", ["", "~/in home", "a b/it's", "-x", "/{root}/$HOME"])
def test_folders_are_those_of_the_machine_there(tmp_path: Path, folder: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    command = tmp_path / "dovetail"
    command.write_text(f'#!/bin/sh\necho "$3" >>{tmp_path}/given\n')
    command.chmod(0o700)
    folder = folder.replace("/{root}", str(tmp_path))
    node = NodeEntry("n1", folder=folder, command=str(command))
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-c", start_script(node, PRINT)],
        input=b"the word\n", cwd=home, env=environment, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    there = home / folder_of(node, PRINT)
    assert (there / "join").read_text() == "the word\n"
    said = Path((tmp_path / "given").read_text().splitlines()[-1])
    assert (home / said).resolve() == (there / "join").resolve()


def test_a_word_goes_through_no_link_that_another_user_made(tmp_path: Path) -> None:
    trap, folder = tmp_path / "trap", tmp_path / "there"
    folder.mkdir()
    (folder / "join.new").symlink_to(trap)
    (folder / "join").symlink_to(trap)
    node = NodeEntry("n1", folder=str(folder), command="/bin/true")
    script = start_script(node, PRINT)
    subprocess.run(["sh", "-c", script], input=b"the word\n", cwd=tmp_path, check=True)
    assert not trap.exists()
    assert not (folder / "join").is_symlink()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('address = "-oProxyCommand=x"', "address is '-oProxyCommand=x' (user and port have"),
        ('address = "me@n1"', "address is 'me@n1' (user and port have own fields)"),
        ('user = "-l"', "user is '-l'"),
        ("port = 65536", "port is 65536 (give 1 to 65535)"),
        ("slots = 0", "slots is 0 (give 1 to 1024)"),
        ('folder = ""', "folder is '' (give a path on that machine)"),
        ('command = "a\\nb"', "command is 'a\\nb'"),
        ("prot = 22", "unknown field 'prot' ("),
        ('port = "22"', "port is '22' (give a value of type int)"),
    ],
)
def test_a_field_that_no_machine_has_is_refused(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "nodes.toml"
    file.write_text(f'[[node]]\nname = "n1"\n{line}\n')
    with pytest.raises(InputError) as error:
        read_node_file(file)
    assert f"{file}, node 1: {said}" in str(error.value)


def test_fields_of_ssh_are_refused_where_nothing_is_started(tmp_path: Path) -> None:
    file = tmp_path / "nodes.toml"
    file.write_text('[[node]]\nname = "n1"\naddress = "10.0.0.1"\n')
    with pytest.raises(InputError, match="started with --engine ssh:FILE"):
        NoStarter(file)


def test_a_command_of_the_nodes_own_starts_its_agent_with_the_word_on_its_input(
    scene: Scene,
) -> None:
    own = scene.place / "dovetail-node"
    own.write_text(f'#!/bin/sh\ncat >{scene.place}/got\necho "$#" >{scene.place}/words\n')
    own.chmod(0o700)
    starter = scene.starter(folder="", command="", start=str(own))
    starter.start("n1", scene.word)
    assert (scene.place / "got").read_text() == scene.word.read_text()
    assert (scene.place / "words").read_text() == "0\n", "what it does is the node's own word"
    own.write_text("#!/bin/sh\necho 'a password is required' >&2; exit 1\n")
    assert "a password is required" in scene.failure(folder="", command="", start=str(own))
    starter.close(end=True)
    with pytest.raises(InputError, match="leave out folder, command"):
        scene.starter(start=str(own))


def test_agents_of_several_users_are_not_started_as_whom_the_controller_logs_in_as(
    scene: Scene, tmp_path: Path
) -> None:
    scene.starter()
    with pytest.raises(InputError, match="node 1: the agent of several users is root's"):
        engine_of_users(f"ssh:{scene.place / 'nodes.toml'}", tmp_path, JoinSettings())
    for engine in ("slurm", "ray:10.0.0.1:6379"):
        with pytest.raises(InputError, match="serves its owner"):
            engine_of_users(engine, tmp_path, JoinSettings())
