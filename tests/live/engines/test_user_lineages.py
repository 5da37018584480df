"""Lineages in a folder that the nodes of several users share: root's agents begin them as users."""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from accounts import Accounts, accounts, as_user
from dovetail.live.access.shared_jobs import make_shared_jobs
from dovetail.live.access.user_entry import UserEntry
from dovetail.live.jobs.lineage import lineage_folder
from dovetail.live.join.shared_folder import SharedFolder
from dovetail.wire.agent import StartWorker
from user_scene import Scene, user_scene

LISTS = ("sh", "-c", 'basename "$DOVETAIL_FOLDER"; ls "$DOVETAIL_FOLDER"')
SECRET = "root's own\n"


@pytest.fixture(scope="module")
def people() -> Iterator[Accounts]:
    with accounts() as made:
        yield made


class Nodes:
    """Two nodes that share a folder, and a job of ann's that trains."""

    def __init__(self, first: Scene, second: Scene, ann: UserEntry) -> None:
        self.first, self.second, self.ann = first, second, ann
        self.job = first.order(ann.name, "", command=LISTS, trains=True)
        self.own, self._worker = Path(self.job.folder), 0

    def order(self, lineage: int) -> StartWorker:
        """Returns the order for the next worker of the job."""
        self._worker += 1
        return replace(
            self.job, worker=self._worker, generation=lineage, lineage=lineage,
            output=str(self.own / f"{self._worker}.log"),
        )  # fmt: skip

    def sees(self, node: Scene, lineage: int) -> list[str]:
        """Returns what the next worker of the job finds on a node: its folder, and the steps."""
        node.ended.clear()
        order = self.order(lineage)
        end = node.end(order)
        assert end.exit_code == 0, (end, node.log)
        return Path(order.output).read_text().split()

    def save(self, lineage: int, *steps: int) -> None:
        """Saves checkpoints, as ann's program does."""

        def write() -> None:
            for step in steps:
                (lineage_folder(self.own, lineage) / name(step)).write_text(f"step {step}")

        assert as_user(self.ann, write) == "None"


def name(step: int) -> str:
    return f"checkpoint-{step:012d}.pt"


@pytest.fixture
def nodes(people: Accounts) -> Iterator[Nodes]:
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
        stack.callback(shutil.rmtree, root)
        root.chmod(0o755)
        (root / "shared").mkdir()
        make_shared_jobs(root / "shared", people.service)
        shared = SharedFolder(root / "shared", "a")
        both = [stack.enter_context(user_scene(people, shared)) for _ in range(2)]
        yield Nodes(*both, people.ann)


def test_the_first_node_begins_a_lineage_as_the_user_and_the_second_takes_it(nodes: Nodes) -> None:
    assert nodes.sees(nodes.first, 0)[0] == nodes.own.name
    nodes.save(0, 10, 20, 30)
    assert nodes.sees(nodes.first, 1) == ["lineage-1", name(20), name(30)]
    begun = lineage_folder(nodes.own, 1)
    seen = begun.stat()
    assert (seen.st_uid, stat.S_IMODE(seen.st_mode) & 0o777) == (nodes.ann.uid, 0o700)
    # What the copy out of reach writes from now on is nobody's, and no second node begins anew.
    nodes.save(0, 40)
    nodes.save(1, 35)
    assert nodes.sees(nodes.second, 1) == ["lineage-1", name(20), name(30), name(35)]
    assert begun.stat().st_ino == seen.st_ino


def test_a_later_lineage_goes_on_from_the_last_one_and_older_ones_go(nodes: Nodes) -> None:
    nodes.sees(nodes.first, 0)
    nodes.save(0, 10)
    nodes.sees(nodes.first, 1)
    nodes.save(1, 20)
    assert nodes.sees(nodes.second, 2) == ["lineage-2", name(10), name(20)]
    assert not (nodes.own / name(10)).exists() and lineage_folder(nodes.own, 1).is_dir()
    left = {path.name for path in nodes.own.iterdir() if path.is_dir()}
    assert left == {"lineage-1", "lineage-2"}, "and no drafts"


@pytest.mark.parametrize("link", [name(10), "lineage-1"])
def test_no_link_of_a_user_leads_root_to_what_the_user_may_not_touch(
    nodes: Nodes, link: str
) -> None:
    roots = nodes.first.home / "roots"
    roots.mkdir()
    secret = roots / name(10)
    secret.write_text(SECRET)
    secret.chmod(0o600)
    nodes.sees(nodes.first, 0)
    target = secret if link == secret.name else roots
    assert as_user(nodes.ann, lambda: (nodes.own / link).symlink_to(target)) == "None"
    for lineage in (2, 3):
        nodes.first.ended.clear()
        nodes.first.end(nodes.order(lineage))
    found = [path for path in nodes.own.rglob("*") if path.is_file() and not path.is_symlink()]
    assert found and all(path.stat().st_uid == nodes.ann.uid for path in found)
    assert not any(SECRET in path.read_text() for path in found)
    assert secret.read_text() == SECRET and secret.stat().st_nlink == 1
