"""Commands that ask a live cluster import little: their user waits for every module of it."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_by_hand import ByHand, spec
from dovetail.core.messages import Reason
from dovetail.live.server.server import Server
from dovetail.wire.submission import Submission
from patience import PATIENCE_S

SLOW = {
    "asyncio", "concurrent", "difflib", "html", "http", "logging", "matplotlib", "multiprocessing",
    "numba", "numpy", "polars", "rich", "scipy", "shutil", "sortedcontainers", "sqlite3",
    "subprocess", "torch", "yaml",
}  # fmt: skip
"""Libraries that take milliseconds each and have nothing to say here."""
OURS = {
    "cli", "version", "wire.codec", "wire.connection", "core.errors", "core.units",
    "live.client", "live.jobs.lifecycle", "live.jobs.drain_reason", "live.server.protocol",
}  # fmt: skip
"""What a client is made of; `submit` reads specs besides."""
MESSAGES = {
    "ls": "listing", "show": "listing one_job", "why": "reason", "nodes": "cluster",
    "top": "cluster listing", "history": "listing", "hold": "changes",
    "cancel": "changes", "submit": "changes",
}  # fmt: skip
"""What each command says and hears: to make a message that it does not takes a third of a
millisecond."""
LISTS = """
import json, sys
from dovetail.cli.main import run
code = run(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Gives the folder of a cluster that answers, with a job that runs and one that waits."""
    folder = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
    by_hand = ByHand(folder)
    by_hand.intake.submit([Submission(spec()), Submission(spec())], key="k", user="ann")
    by_hand.run(1, [(0, 1)], left_s=30.0)
    by_hand.wait([2], Reason("Resources", job=2))
    server = Server(by_hand.desk, by_hand.folder.socket)
    server.start()
    yield folder
    server.stop()
    by_hand.close()
    shutil.rmtree(folder)


def modules(home: Path, *words: str) -> set[str]:
    """Returns all that a command has imported when it ends well, run as a process of its own."""
    line = [sys.executable, "-c", LISTS, words[0], "--home", str(home), *words[1:]]
    ran = subprocess.run(line, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    code, found = json.loads(ran.stderr.splitlines()[-1])
    assert (code, bool(ran.stdout)) == (0, True), ran.stderr
    return set(found)


@pytest.mark.parametrize(
    "words",
    [
        ("ls",), ("ls", "--json"), ("show", "2"), ("why", "2"), ("nodes",), ("top", "--once"),
        ("history",), ("hold", "2"), ("cancel", "2"), ("submit", "--", "true"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_command_about_a_cluster_imports_no_more_than_a_client(
    home: Path, words: tuple[str, ...]
) -> None:
    found = modules(home, *words)
    assert "dovetail.live.client.client" in found
    assert {m for m in found if m.partition(".")[0] in SLOW} == set()
    said = {f"live.server.messages.{name}" for name in MESSAGES[words[0]].split()}
    # Whoever changes something may hand jobs over.
    mine = OURS | said | ({"wire"} if "changes" in MESSAGES[words[0]] else set())
    mine |= {"jobspec"} if words[0] == "submit" else set()
    ours = {m.removeprefix("dovetail.") for m in found if m.startswith("dovetail.")}
    folders = {m for m in ours if any(known.startswith(f"{m}.") for known in mine)}
    known = {m for m in ours if any(m == k or m.startswith(f"{k}.") for k in mine)}
    assert ours - folders - known == set()
