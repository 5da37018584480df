"""The starter of a Ray cluster, against a module `ray` that is played here."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.engines.engine_spec import EngineSpec
from dovetail.live.engines.starters import ray as ray_module
from dovetail.live.engines.starters.ray import RayStarter, named
from dovetail.live.engines.starters.ray_actor import agent_environment, agent_folder
from dovetail.live.engines.starters.ray_connection import RayNode
from dovetail.live.join.word import JoinWord
from patience import until

PLAYED = {
    "ray/__init__.py": """
import json, os
from pathlib import Path
from types import SimpleNamespace
from ray import exceptions, util
site = Path(os.environ["PLAYED_RAY"])
def state(): return json.loads((site / "state").read_text())
def note(*what):
    with open(site / "calls", "a") as file: file.write(json.dumps(what) + "\\n")
def init(**options):
    note("init", options["address"], os.environ["RAY_AUTH_MODE"], os.getpid())
    if "init" in state(): raise ConnectionError(state()["init"])
def nodes(): return state()["nodes"]
def shutdown(): note("shutdown")
def get(value, timeout): return value
def wait(values, num_returns, timeout): pass
def kill(actor): note("kill", actor.name)
def get_actor(name): return Actor(name)
class Actor:
    def __init__(self, name): self.name = name
    def __getattr__(self, method):
        def call(*arguments):
            note("call", self.name, method, *arguments)
            if "raises" in state(): raise RuntimeError(state()["raises"])
            return state().get(method)
        return SimpleNamespace(remote=call)
def remote(kind):
    def options(**given):
        given["scheduling_strategy"] = vars(given["scheduling_strategy"])
        def made():
            note("options", kind.__name__, given)
            return Actor(given["name"])
        return SimpleNamespace(remote=made)
    return SimpleNamespace(options=options)
""",
    "ray/exceptions.py": """
class AuthenticationError(Exception): pass
class GetTimeoutError(Exception): pass
""",
    "ray/_raylet.py": """
import os, ray
class GcsClient:
    def __init__(self, address):
        mode = os.environ["RAY_AUTH_MODE"]
        token = os.environ.get("RAY_AUTH_TOKEN") if mode == "token" else None
        if not ray.state()["open"] and token != "right":
            raise ray.exceptions.AuthenticationError("refused")
    def internal_kv_keys(self, prefix, namespace, timeout): return []
class AuthenticationTokenLoader:
    @staticmethod
    def instance(): return AuthenticationTokenLoader()
    def has_token(self, ignore_auth_mode): return bool(os.environ.get("RAY_AUTH_TOKEN"))
""",
    "ray/util/__init__.py": """
import ray
def get_node_ip_address(): return "10.0.0.9"
def list_named_actors(): return ray.state()["named"]
""",
    "ray/util/scheduling_strategies.py": """
class NodeAffinitySchedulingStrategy:
    def __init__(self, node_id, soft): self.node_id, self.soft = node_id, soft
""",
    "ray-2.60.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: ray\nVersion: 2.60.0\n",
}
WORD = JoinWord("10.0.0.9", 7077, "ab" * 32, "n1", "cd" * 32)


class Site:
    """A Ray that answers what a file says, at a port that listens."""

    def __init__(self, root: Path, listener: socket.socket) -> None:
        self.root, self.home = root, root / "home"
        self.home.mkdir()
        self.word = root / "word"
        WORD.write(self.word)
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        self.state: dict[str, object] = {
            "open": False,
            "nodes": [node_row("1", "n1", "10.0.0.1", 2), node_row("2", "n2", "10.0.0.2", 4)],
            "named": [f"dovetail-{'ab' * 6}-1", "dovetail-others-1", "theirs"],
            "start": ["started", ""],
        }
        self.says()

    def says(self, **changes: object) -> None:
        self.state |= changes
        written = self.root / "state.new"
        written.write_text(json.dumps(self.state))
        written.replace(self.root / "state")

    def calls(self, kind: str) -> list[list[object]]:
        path = self.root / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [call[1:] for call in map(json.loads, lines) if call[0] == kind]


def node_row(number: str, name: str, address: str, gpus: int) -> dict[str, object]:
    resources = {"CPU": 8.0, **({"GPU": float(gpus)} if gpus else {})}
    return {
        "NodeID": number, "Alive": True, "alive": True, "NodeName": name, "Resources": resources,
        "NodeManagerAddress": address, "NodeManagerHostname": f"host{number}",
    }  # fmt: skip


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    played = tmp_path / "played"
    for name, text in PLAYED.items():
        (played / name).parent.mkdir(parents=True, exist_ok=True)
        (played / name).write_text(text)
    monkeypatch.syspath_prepend(str(played))
    path = os.pathsep.join([str(played), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path.rstrip(os.pathsep))
    monkeypatch.setenv("PLAYED_RAY", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_TOKEN", "right")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Site(tmp_path, listener)


@pytest.fixture
def starter(site: Site) -> Iterator[RayStarter]:
    starter = RayStarter(site.address, site.home)
    yield starter
    starter.close(end=False)


def test_the_address_is_that_of_a_gcs() -> None:
    assert EngineSpec.parse("ray:10.0.0.1:6379").target == "10.0.0.1:6379"
    assert EngineSpec.parse("ray:[fd00::1]:6379").target == "[fd00::1]:6379"
    texts = ("ray", "ray:", "ray:head", "ray:ray://head:10001", "ray:head:0", "ray:fd00::1:6379")
    for text in texts:
        with pytest.raises(InputError, match="names no address of a Ray cluster"):
            EngineSpec.parse(text)


def test_without_ray_the_extra_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise ray_module.PackageNotFoundError(name)

    monkeypatch.setattr(ray_module, "version", missing)
    with pytest.raises(InputError, match=r"not installed.*pip install 'dovetail\[ray\]'"):
        RayStarter(site.address, site.home)


def test_a_ray_that_knows_no_authentication_is_too_old(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_module, "version", lambda name: "2.51.2")
    with pytest.raises(InputError, match=r"Ray 2\.51\.2.*2\.52 is the first"):
        RayStarter(site.address, site.home)


def test_a_ray_that_answers_without_a_token_is_refused(site: Site, starter: RayStarter) -> None:
    site.says(open=True)
    with pytest.raises(InputError, match=r"no token authentication.*RAY_AUTH_MODE=token"):
        starter.nodes()
    assert not site.calls("init"), "no driver was started"


def test_a_wrong_token_and_a_missing_one_are_told_apart(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for token, said in (("wrong", "refuses the token"), ("", "this user has none")):
        monkeypatch.setenv("RAY_AUTH_TOKEN", token)
        with pytest.raises(InputError, match=said + ".*auth_token"):
            RayStarter(site.address, site.home).nodes()


def test_where_nothing_listens_that_is_said(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(InputError, match=r"Connection refused.*ray start --head"):
        RayStarter(address, site.home).nodes()


def test_a_machine_without_a_raylet_is_told_to_start_one(site: Site, starter: RayStarter) -> None:
    site.says(init="no raylet")
    with pytest.raises(InputError, match=r"no node of it runs on this machine.*--num-cpus 0"):
        starter.nodes()


def test_an_agent_is_started_by_a_detached_actor_that_holds_the_gpus(
    site: Site, starter: RayStarter
) -> None:
    assert starter.nodes() == ("n1", "n2")
    assert starter.gate_host == "10.0.0.9"
    starter.start("n1", site.word)
    ((kind, options),) = site.calls("options")
    assert kind == "AgentStarter" and isinstance(options, dict)
    assert options["scheduling_strategy"] == {"node_id": "1", "soft": False}
    assert (options["num_cpus"], options["num_gpus"], options["lifetime"]) == (0, 2, "detached")
    assert options["name"] == f"dovetail-{'ab' * 6}-1"
    assert WORD.secret not in json.dumps(options), "the word goes to a method alone"
    assert site.calls("call")[-1][1:] == ["start", WORD.text, "n1", 0]
    ((_, mode, _),) = site.calls("init")
    assert mode == "token", "whatever the user's environment says"


def test_why_an_agent_cannot_be_started_is_said(site: Site, starter: RayStarter) -> None:
    starter.nodes()
    site.says(start=["failed", "the disk is full"])
    with pytest.raises(DovetailError, match="the disk is full"):
        starter.start("n1", site.word)
    site.says(raises="died: No module named 'dovetail'")
    with pytest.raises(DovetailError, match="Python of Ray there has no dovetail: install"):
        starter.start("n1", site.word)


def test_a_driver_that_ray_ends_takes_no_node_away(site: Site, starter: RayStarter) -> None:
    starter.nodes()
    ((_, _, process),) = site.calls("init")
    os.kill(int(str(process)), signal.SIGKILL)

    def refused() -> bool:
        try:
            starter.start("n1", site.word)
        except DovetailError:
            return True
        return False

    until(refused)
    assert starter.nodes() == ("n1", "n2")
    assert starter.gone() == (), "its machine may be alive"


def test_the_end_of_a_cluster_ends_its_actors_and_no_others(
    site: Site, starter: RayStarter
) -> None:
    starter.nodes()
    starter.start("n1", site.word)
    starter.close(end=True)
    assert site.calls("kill") == [[f"dovetail-{'ab' * 6}-1"]]
    assert [call[1] for call in site.calls("call")] == ["ping", "start", "end"]


def node(number: str, name: str, address: str, gpus: float = 0.0, cpus: float = 4.0) -> RayNode:
    return RayNode(number, name, f"host{number}", address, gpus, cpus)


def test_names_are_those_given_to_ray_or_of_hosts() -> None:
    found = [
        node("1", "10.0.0.1", "10.0.0.1"),
        node("2", "gpu-box", "10.0.0.2"),
        node("3", "no name!", "10.0.0.3"),
        node("4", "head", "10.0.0.4", cpus=0.0),
    ]
    nodes, notes = named(found, {})
    assert list(nodes) == ["host1", "gpu-box", "10-0-0-3"] and not notes


def test_where_nodes_have_gpus_those_without_are_not_ours() -> None:
    found = [node("1", "head", "10.0.0.1"), node("2", "box", "10.0.0.2", gpus=8.0)]
    assert list(named(found, {})[0]) == ["box"]


def test_of_two_machines_with_one_name_the_first_to_have_it_keeps_it() -> None:
    one, other = node("1", "box", "10.0.0.1"), node("2", "box", "10.0.0.2")
    assert named([one, other], {})[0] == {"box": one}
    nodes, notes = named([one, other], {"box": other})
    assert nodes == {"box": other}
    assert "10.0.0.1 of Ray is left out" in notes[0] and "--node-name" in notes[0]
    again = node("3", "box", "10.0.0.1")
    assert not named([one, again], {})[1], "a raylet that was started anew is the same machine"


def test_an_agent_finds_nothing_of_ray_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not [name for name in agent_environment() if name.startswith("RAY_")]
    folder = agent_folder({"HOME": str(tmp_path)}, "ab" * 32, "n1")
    assert folder == tmp_path / ".dovetail-agents" / ("ab" * 6) / "n1"
