"""Held by reading the source: no shell, no pickle, nothing of a user's that becomes code."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "dovetail"
PARTS = ("live", "train", "wire", "cli")
FILES = sorted(p for part in PARTS for p in (SOURCE / part).rglob("*.py"))
UNSAFE_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "telnetlib", "pty"}
UNSAFE_CALLS = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "subprocess.getoutput",
    "subprocess.getstatusoutput", "yaml.load", "yaml.unsafe_load", "yaml.full_load",
    "dist.all_gather_object", "dist.broadcast_object_list", "dist.send_object_list",
}  # fmt: skip
PICKLES_UNLESS_TOLD = {"torch.load"}


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def keyword(call: ast.Call, name: str) -> object:
    for given in call.keywords:
        if given.arg == name:
            return given.value.value if isinstance(given.value, ast.Constant) else given.value
    return None


def test_there_is_something_to_look_at() -> None:
    assert {p.parent.name for p in FILES} >= {"live", "wire", "cli", "engines"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_nothing_is_unpickled_evaluated_or_given_to_a_shell(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert name.split(".")[0] not in UNSAFE_MODULES, f"{path.name}:{node.lineno}"
    for name, call in calls(path):
        where = f"{path.name}:{call.lineno}"
        assert name not in UNSAFE_CALLS, where
        assert keyword(call, "shell") in (None, False), where
        assert keyword(call, "allow_pickle") in (None, False), where
        if name in PICKLES_UNLESS_TOLD:
            assert keyword(call, "weights_only") is True, where


def test_only_the_server_and_the_training_side_listen() -> None:
    """Whoever binds a socket of the network says so here, with what keeps it on this machine."""
    binds = {
        f"{p.parent.name}/{p.name}"
        for p in FILES
        for name, _ in calls(p)
        if name.endswith((".bind", "create_server"))
    }
    assert binds <= {
        "system/unix_socket.py",  # Unix sockets in the cluster's folder, for its owner alone
        "engines/keeper_terminal.py",  # a Unix socket in the folder of an interactive worker
        "engines/joined_engine.py",  # the gate: TLS, with a secret for each node
        "cli/agent.py",  # binds and closes at once, to see whether an address is its own
        "node/rendezvous_addresses.py",  # finds a free port and gives it back
        "server/server.py",  # TCP on loopback with a token (`loopback`)
        "membership/rendezvous.py",  # workers of a job meet at DOVETAIL_HOST, 127.0.0.1 unless told
        "train/rehearsal.py",  # a Unix socket in the place of an agent's
    }, binds
