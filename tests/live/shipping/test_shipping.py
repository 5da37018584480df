"""Files travel whole, once and in order, whatever is lost, cut, repeated or late on the way."""

from __future__ import annotations

import random
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.live.engines.output_bound import shorten
from dovetail.live.shipping import shipped_draft, shipping_folder, shipping_store
from dovetail.live.shipping.shipped_draft import described, encoded
from dovetail.live.shipping.shipping_folder import ShippingFolder
from dovetail.live.shipping.shipping_store import FILE, ShippedJob, ShippingStore
from dovetail.wire.shipping import (
    SHIPPING_REPLIES,
    SHIPPING_REQUESTS,
    AppendOutput,
    AskFiles,
    FilesFound,
    GetPiece,
    JobFiles,
    JobsOver,
    NodeFiles,
    PutCheckpoint,
    ShippedFile,
    ShippedTo,
    ShippingRefused,
    ShippingReply,
    ShippingRequest,
)

JOB, PIECE = 7, 16


class Scene:
    """A controller's store and the folders of job 7 on two nodes, on a connection that fails."""

    def __init__(self, root: Path, seed: int, loss: float) -> None:
        self.root, self.jobs = root, root / "jobs"
        self.own = self.jobs / str(JOB)
        self.own.mkdir(parents=True)
        self.random, self.loss = random.Random(seed), loss
        self.lost_nodes: set[int] = set()
        self.now_s = 0.0
        self.sent: list[tuple[int, ShippingRequest]] = []
        self.restart()
        self.nodes = [ShippingFolder(root / f"n{node}" / str(JOB), JOB) for node in range(2)]
        for node, files in enumerate(self.nodes):
            files.folder.mkdir(parents=True)
            self.store.allow(node, JOB)

    def restart(self) -> None:
        self.store = ShippingStore(
            self.jobs,
            lambda job: ShippedJob(False, self.own / "output.log"),
            lambda node: node not in self.lost_nodes,
            lambda node: f"n{node}",
            clock=lambda: self.now_s,
        )

    def ask(self, node: int, request: ShippingRequest) -> ShippingReply:
        request = SHIPPING_REQUESTS.decode(SHIPPING_REQUESTS.encode(request))
        fate = self.random.random()
        if fate < self.loss:
            raise ConnectionError("lost before it came")
        if fate < 2 * self.loss and self.sent:
            # A request of an earlier connection that comes late, as one of a dead agent may.
            self.store.answer(*self.random.choice(self.sent))
        self.sent = [*self.sent[-20:], (node, request)]
        reply = SHIPPING_REPLIES.decode(SHIPPING_REPLIES.encode(self.store.answer(node, request)))
        if fate > 1 - self.loss:
            raise ConnectionError("the answer was lost")
        if fate > 1 - 1.5 * self.loss:
            self.restart()
        return reply

    def run(self, node: int, begin: object, turns: int = 2000) -> bool:
        """Runs a transfer, begun again after each cut, until it ends or rests; True if it ended."""
        rests = 0
        for _ in range(turns):
            transfer: Iterator[bool] = begin(lambda request: self.ask(node, request))  # type: ignore[operator]
            with suppress(ConnectionError):
                for got_on in transfer:
                    rests = 0 if got_on else rests + 1
                    if rests > 3:
                        return False
                return True
        raise AssertionError("it never ends")

    def push(self, node: int) -> None:
        files = self.nodes[node]
        self.run(node, files.push_output)
        self.run(node, files.push_checkpoints)

    def fetch(self, node: int, asked: AskFiles) -> bool:
        files = self.nodes[node]
        return self.run(node, lambda ask: files.fetch(ask, asked.lineage, asked))

    def save(self, node: int, step: int, content: bytes, *, lineage: int = 0) -> None:
        folder = self.nodes[node].folder / (f"lineage-{lineage}" if lineage else "")
        (folder / f"checkpoint-{step:012d}.pt").write_bytes(content)
        self.store.note_saved(node, JOB, step)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (shipping_folder, shipped_draft):
        monkeypatch.setattr(module, "PIECE_BYTES", PIECE)


def scene_of(seed: int = 0, loss: float = 0.0) -> Scene:
    root = Path(tempfile.mkdtemp(prefix="dship"))
    scene = Scene(root, seed, loss)
    weakref.finalize(scene, shutil.rmtree, root, ignore_errors=True)
    return scene


def fresh(generation: int, step: int = -1, lineage: int = 0) -> AskFiles:
    return AskFiles(JOB, lineage, generation, step, True)


LINES = st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b".") + b"\n"), max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from([0.0, 0.1, 0.3]), LINES, LINES)
def test_each_line_of_all_nodes_arrives_once_and_in_order(
    seed: int, loss: float, first: list[bytes], second: list[bytes]
) -> None:
    scene = scene_of(seed, loss)
    for begin, end in ((0, 4), (4, 8)):
        for node, lines in enumerate((first, second)):
            with open(scene.nodes[node].folder / "output.log", "ab") as output:
                output.writelines(lines[begin:end])
            scene.push(node)
    path = scene.own / "output.log"
    content = path.read_bytes() if path.exists() else b""
    assert len(content) == sum(map(len, first + second))
    # The lines of each node, in their order, whatever stands between them.
    for lines in (first, second):
        at = 0
        for line in lines:
            at = content.index(line, at) + len(line)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.sampled_from([0.0, 0.1, 0.3]),
    st.binary(max_size=200),
    st.binary(max_size=200),
)
def test_a_job_that_moves_finds_its_newest_checkpoint_whole(
    seed: int, loss: float, older: bytes, newer: bytes
) -> None:
    scene = scene_of(seed, loss)
    (scene.own / "script").write_bytes(b"#!/bin/sh\n" * 9)
    assert scene.fetch(0, fresh(1))
    scene.save(0, 10, older)
    scene.push(0)
    scene.save(0, 20, newer)
    assert not scene.fetch(1, fresh(2, step=20)), "it waits for the newest one"
    assert "step 20 is on its way from node n0" in scene.nodes[1].waits_for
    scene.push(0)
    assert scene.fetch(1, fresh(2, step=20))
    there = scene.nodes[1].folder / f"checkpoint-{20:012d}.pt"
    assert there.read_bytes() == newer
    assert (scene.nodes[1].folder / "script").read_bytes() == b"#!/bin/sh\n" * 9
    assert not list(scene.root.rglob("*.part")), "no drafts are left"


def test_a_cut_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = scene_of()
    scene.fetch(0, fresh(1))
    scene.save(0, 5, bytes(range(160)))
    transfer = scene.nodes[0].push_checkpoints(lambda request: scene.ask(0, request))
    for _ in range(5):
        next(transfer)
    scene.restart()
    scene.sent = []
    scene.push(0)
    pieces = [r for _, r in scene.sent if isinstance(r, PutCheckpoint) and r.data]
    assert len(pieces) < 160 // PIECE, "not from the beginning"
    assert (scene.own / f"checkpoint-{5:012d}.pt").read_bytes() == bytes(range(160))


def test_two_versions_of_a_file_never_mix() -> None:
    scene = scene_of()
    scene.fetch(0, fresh(1))
    scene.save(0, 5, b"a" * 100)
    transfer = scene.nodes[0].push_checkpoints(lambda request: scene.ask(0, request))
    for _ in range(4):
        next(transfer)
    scene.save(0, 5, b"b" * 100)
    scene.push(0)
    assert (scene.own / f"checkpoint-{5:012d}.pt").read_bytes() == b"b" * 100
    # A piece that lies about its content is found out at the end.
    file = ShippedFile(f"checkpoint-{6:012d}.pt", 3, described(scene.own / FILE).sha256)
    put = PutCheckpoint(JOB, 0, 1, file, 0, encoded(b"xyz"))
    assert scene.store.answer(0, put) == ShippedTo(0)
    assert not (scene.own / file.name).exists()


def test_what_a_lost_node_saved_is_superseded() -> None:
    scene = scene_of()
    scene.fetch(0, fresh(1))
    scene.save(0, 10, b"ten")
    scene.push(0)
    scene.save(0, 20, b"twenty")
    assert not scene.fetch(1, fresh(2, step=20))
    scene.lost_nodes.add(0)
    assert scene.fetch(1, fresh(2, step=20))
    said = (scene.own / "output.log").read_text()
    assert (
        "goes on from the checkpoint of step 10: that of step 20 is on a node that is lost" in said
    )
    # It comes back: its checkpoint is of a past that the job has left.
    scene.save(1, 15, b"fifteen")
    scene.push(0)
    scene.push(1)
    names = [path.name for path in shipped_draft.checkpoints_in(scene.own)]
    assert [shipped_draft.step_of(name) for name in names] == [15, 10]
    assert scene.fetch(0, fresh(3, step=15))
    assert scene.nodes[0].newest_step == 15, "and it is not read there again either"


def test_a_checkpoint_that_nobody_has_is_not_awaited_for_ever() -> None:
    scene = scene_of()
    assert not scene.fetch(1, fresh(2, step=20))
    assert scene.nodes[1].waits_for == "the checkpoint of step 20 has not arrived"
    scene.now_s = shipping_store.UNKNOWN_S
    assert scene.fetch(1, fresh(2, step=20))
    # One of which its node said that it is there, and it is not: its disk was emptied.
    scene.store.note_saved(0, JOB, 30)
    assert not scene.fetch(1, fresh(4))
    for _ in range(shipping_store.MISSED):
        assert scene.store.answer(0, NodeFiles((JobFiles(JOB, -1),))) == JobsOver()
    assert scene.fetch(1, fresh(4))


def test_a_worker_that_joins_others_takes_away_nothing() -> None:
    scene = scene_of()
    scene.fetch(0, fresh(1))
    scene.save(0, 10, b"ten")
    assert scene.fetch(0, AskFiles(JOB, 0, 2))
    assert scene.nodes[0].newest_step == 10
    scene.push(0)
    assert shipped_draft.checkpoints_in(scene.own), "its generation is still the newest fresh one"


def test_lineages_are_apart() -> None:
    scene = scene_of()
    scene.fetch(0, fresh(1))
    scene.save(0, 10, b"old")
    (scene.own / "lineage-1").mkdir()
    (scene.own / "lineage-1" / f"checkpoint-{4:012d}.pt").write_bytes(b"four")
    scene.push(0)
    assert not shipped_draft.checkpoints_in(scene.own), "nobody reads the one before again"
    scene.fetch(1, fresh(2, lineage=1))
    assert (scene.nodes[1].folder / "lineage-1" / f"checkpoint-{4:012d}.pt").read_bytes() == b"four"
    assert scene.nodes[1].newest_step == 4


def test_an_output_that_was_shortened_begins_anew_and_the_kept_one_is_bounded() -> None:
    scene = scene_of()
    scene.store._output_bound = (4000, shorten)
    output = scene.nodes[0].folder / "output.log"
    output.write_bytes(b"one\n" * 30)
    scene.push(0)
    output.write_bytes(b"two\n" * 5)
    scene.push(0)
    kept = scene.own / "output.log"
    assert kept.read_bytes() == b"one\n" * 30 + b"two\n" * 5
    with output.open("ab") as more:
        more.write(b"three\n" * 1000)
    scene.push(0)
    assert kept.stat().st_size < 4200


def test_output_that_was_written_and_not_noted_is_not_there_twice() -> None:
    scene = scene_of()
    scene.store.answer(0, AppendOutput(JOB, "s", 0, encoded(b"one\n")))
    with (scene.own / "output.log").open("ab") as output:
        output.write(b"two\n")
    scene.restart()
    assert scene.store.answer(0, AppendOutput(JOB, "s", 4, encoded(b"two\n"))) == ShippedTo(8)
    assert (scene.own / "output.log").read_bytes() == b"one\ntwo\n"


def test_a_node_has_the_files_of_its_own_jobs_alone(tmp_path: Path) -> None:
    scene = scene_of()
    scene.save(0, 5, b"x")
    secret = ShippedFile("script", 1, "0" * 64)
    for request in (
        AppendOutput(8, "s", 0, encoded(b"x")),
        AskFiles(8, 0, 1),
        GetPiece(8, 0, secret, 0),
        PutCheckpoint(8, 0, 1, ShippedFile(f"checkpoint-{1:012d}.pt", 1, "0" * 64), 0),
    ):
        assert scene.store.answer(0, request) == ShippingRefused("job 8 is none of this node")
    assert not (scene.jobs / "8").exists()
    for name in ("../8/script", "/etc/passwd", "output.log", ".shipped.json", "checkpoint-1.pt"):
        file = ShippedFile(name, 1, "0" * 64)
        for request in (GetPiece(JOB, 0, file, 0), PutCheckpoint(JOB, 0, 9, file, 0)):
            assert isinstance(scene.store.answer(0, request), ShippingRefused)
    bad = AppendOutput(JOB, "s", 0, "not base64!")
    assert isinstance(scene.store.answer(0, bad), ShippingRefused)
    (scene.own / "script").symlink_to("/etc/passwd")
    found = scene.store.answer(0, AskFiles(JOB, 0, 1))
    assert isinstance(found, ShippingRefused)


def test_a_full_disk_refuses_a_file_before_it_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = scene_of()
    scene.fetch(0, fresh(1))
    scene.save(0, 5, b"x" * 100)
    monkeypatch.setattr(shipped_draft, "_free_bytes", lambda folder: 0)
    scene.push(0)
    reply = scene.store.answer(1, fresh(2, step=5))
    assert isinstance(reply, FilesFound) and "on its way" in reply.why
    monkeypatch.undo()
    monkeypatch.setattr(shipping_folder, "PIECE_BYTES", PIECE)
    scene.push(0)
    assert scene.fetch(1, fresh(2, step=5))
