"""The controller's end: what nodes ship is kept in the folders of jobs, as if all shared them.

A node ships and asks for files of jobs only that it was ordered to start workers of. Of a job that
starts from scratch every node that may have a newer checkpoint is awaited, unless it is lost: then
the job goes on from the newest one that has arrived, and what the lost node has is superseded.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from dovetail.files.whole_file import PRIVATE, write_whole
from dovetail.live.jobs.lineage import lineage_folder, newest_lineage
from dovetail.live.shipping.shipped_draft import (
    SCRIPT,
    SHA256,
    ShippedDraft,
    checkpoints_in,
    decoded,
    described,
    piece_at,
    step_of,
)
from dovetail.wire.shipping import (
    AppendOutput,
    AskFiles,
    FilePiece,
    FilesFound,
    GetPiece,
    JobsOver,
    NodeFiles,
    PutCheckpoint,
    ShippedFile,
    ShippedTo,
    ShippingRefused,
    ShippingReply,
    ShippingRequest,
)

LOG = logging.getLogger(__name__)
FILE = ".shipped.json"
KEPT = 2
"""Checkpoints that are kept, as a trainer does: an older one, should the newest be damaged."""
UNKNOWN_S = 10.0
"""How long a checkpoint is awaited that no node says it has."""
MISSED = 3
"""How often a node says that it has no such checkpoint before that is believed."""


@dataclass(frozen=True, slots=True)
class ShippedJob:
    """What the controller must know of a job beside its record: whether it is over, its output."""

    is_over: bool
    output: Path


@dataclass(slots=True)
class NodeShipping:
    """What came from one node: how much of which output, and the newest checkpoint it wrote."""

    stream: str = ""
    offset: int = 0
    saved_step: int = -1
    missed: int = 0


@dataclass(slots=True)
class JobShipping:
    """What came of one job. `size` is that of its output, `generation` the last fresh start's."""

    size: int = 0
    generation: int = -1
    nodes: dict[int, NodeShipping] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    partial: ShippedDraft | None = None
    is_noted: bool = False
    asked: int = -1
    asked_s: float = 0.0


class ShippingStore:
    """Answers the messages of nodes. For several threads.

    `find` looks a job up, `is_awaited` tells whether a node may still ship, `called` is its name.
    `output_bound` has the most bytes of an output, and what shortens one.
    """

    def __init__(
        self,
        jobs: Path,
        find: Callable[[int], ShippedJob | None],
        is_awaited: Callable[[int], bool] = lambda node: True,
        called: Callable[[int], str] = str,
        output_bound: tuple[int, Callable[[Path, int], None]] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._clock = clock
        self._jobs, self._find, self._is_awaited = jobs, find, is_awaited
        self._called, self._output_bound = called, output_bound
        self._lock = threading.Lock()
        self._known: dict[int, JobShipping] = {}
        self._described: dict[tuple[Path, int, int], ShippedFile] = {}

    # What the controller notes.

    def allow(self, node: int, job: int) -> None:
        """Lets a node ship files of a job; call it before the node is ordered to start workers."""
        shipment = self._shipment(job)
        if node not in shipment.nodes:
            shipment.nodes[node] = NodeShipping()
            self._keep_soon(job, shipment)

    def note_saved(self, node: int, job: int, step: int) -> None:
        """Notes that a node says it has a checkpoint."""
        shipment = self._shipment(job)
        known = shipment.nodes.get(node)
        if known is None or step <= known.saved_step:
            return
        known.saved_step, known.missed = step, 0
        self._keep_soon(job, shipment)

    def _keep_soon(self, job: int, shipment: JobShipping) -> None:
        """Keeps what was noted, now or once another thread has dealt with a large file."""
        shipment.is_noted = True
        if shipment.lock.acquire(blocking=False):
            try:
                self._keep(job, shipment)
            except OSError as error:
                LOG.error("what job %d ships cannot be noted: %s", job, error.strerror)
            finally:
                shipment.lock.release()

    # What nodes ask.

    def answer(self, node: int, request: ShippingRequest) -> ShippingReply:
        """Returns the answer to a message of a node."""
        if isinstance(request, NodeFiles):
            return self._over(node, request)
        shipment = self._shipment(request.job)
        if node not in shipment.nodes:
            return ShippingRefused(f"job {request.job} is none of this node")
        try:
            with shipment.lock:
                reply = self._answer(node, shipment, request)
                if shipment.is_noted:
                    self._keep(request.job, shipment)
                return reply
        except OSError as error:
            return ShippingRefused(str(error.strerror or error))
        except ValueError as error:
            return ShippingRefused(str(error), forever=True)

    def _answer(
        self,
        node: int,
        shipment: JobShipping,
        request: AppendOutput | PutCheckpoint | AskFiles | GetPiece,
    ) -> ShippingReply:
        match request:
            case AppendOutput():
                return self._append(node, shipment, request)
            case PutCheckpoint():
                return self._put(node, shipment, request)
            case AskFiles():
                return self._found(shipment, request)
            case GetPiece():
                return self._piece(request)

    def _over(self, node: int, request: NodeFiles) -> JobsOver:
        over = []
        for local in request.jobs:
            known = self._shipment(local.job).nodes.get(node)
            if known is None:
                continue
            if known.saved_step > local.step:
                # It may have been written after the node looked. If it never shows it is gone.
                known.missed += 1
            if known.saved_step < local.step or known.missed >= MISSED:
                known.saved_step, known.missed = local.step, 0
            job = self._find(local.job)
            if job is not None and job.is_over:
                over.append(local.job)
        return JobsOver(tuple(over))

    def _append(self, node: int, shipment: JobShipping, piece: AppendOutput) -> ShippingReply:
        known = shipment.nodes[node]
        if piece.stream != known.stream:
            known.stream, known.offset = piece.stream, 0
        data = decoded(piece.data)
        if piece.offset == known.offset and data:
            self._write_output(piece.job, shipment, data)
            known.offset += len(data)
            self._keep(piece.job, shipment)
        return ShippedTo(known.offset)

    def _write_output(self, job: int, shipment: JobShipping, data: bytes) -> None:
        """Appends to the output of a job. What was written and not noted is written over."""
        found = self._find(job)
        own = self._own(job) / "output.log"
        path = own if found is None else found.output
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(path, flags if path == own else flags | os.O_APPEND, 0o600)
        try:
            if path == own and os.fstat(file).st_size > shipment.size:
                os.ftruncate(file, shipment.size)
            os.lseek(file, 0, os.SEEK_END)
            left = memoryview(data)
            while left:
                left = left[os.write(file, left) :]
            shipment.size = os.fstat(file).st_size
        finally:
            os.close(file)
        bound = self._output_bound
        if path == own and bound is not None and 0 < bound[0] < shipment.size:
            bound[1](path, bound[0])
            shipment.size = path.stat().st_size

    def _put(self, node: int, shipment: JobShipping, piece: PutCheckpoint) -> ShippingReply:
        own, name = self._own(piece.job), piece.file.name
        step, folder = step_of(name), lineage_folder(own, piece.lineage)
        if step < 0 or not SHA256.fullmatch(piece.file.sha256):
            raise ValueError(f"{name[:80]!r} is no checkpoint")
        if piece.generation < shipment.generation or piece.lineage < newest_lineage(own):
            self._forget_saved(node, shipment, step)
            return ShippingRefused("the job has started anew without this checkpoint", forever=True)
        there = checkpoints_in(folder)
        if (there and step <= step_of(there[0].name)) or not folder.is_dir():
            self._forget_saved(node, shipment, step)
            return ShippedTo(piece.file.size)
        partial = shipment.partial
        if partial is None or partial.file != piece.file:
            partial = shipment.partial = ShippedDraft(folder, piece.file)
        if not partial.add(piece.offset, decoded(piece.data)):
            return ShippedTo(partial.offset)
        shipment.partial = None
        status = (folder / name).stat()
        self._described[folder / name, status.st_mtime_ns, status.st_size] = piece.file
        for old in checkpoints_in(folder)[KEPT:]:
            old.unlink(missing_ok=True)
        for draft in folder.glob(".checkpoint-*.part"):
            draft.unlink(missing_ok=True)
        return ShippedTo(piece.file.size)

    def _forget_saved(self, node: int, shipment: JobShipping, step: int) -> None:
        known = shipment.nodes[node]
        if known.saved_step <= step:
            known.saved_step = -1

    def _found(self, shipment: JobShipping, asked: AskFiles) -> FilesFound:
        own = self._own(asked.job)
        files = [self._described_file(own / SCRIPT)] if (own / SCRIPT).exists() else []
        folder = lineage_folder(own, asked.lineage)
        newest = checkpoints_in(folder)[:1]
        step = step_of(newest[0].name) if newest else -1
        if asked.fresh and asked.generation > shipment.generation:
            if why := self._awaited(shipment, asked, step):
                return FilesFound(why=why)
            lost = max((n.saved_step for n in list(shipment.nodes.values())), default=-1)
            if max(lost, asked.step) > step:
                self._say_lost(asked, shipment, step, max(lost, asked.step))
            shipment.generation = asked.generation
            for node in list(shipment.nodes.values()):
                node.saved_step = -1
            self._keep(asked.job, shipment)
        return FilesFound((*files, *(self._described_file(path) for path in newest)))

    def _awaited(self, shipment: JobShipping, asked: AskFiles, step: int) -> str:
        """Returns which node has a newer checkpoint that is still to come."""
        if shipment.asked != asked.generation:
            shipment.asked, shipment.asked_s = asked.generation, self._clock()
        for node, known in sorted(shipment.nodes.items()):
            if known.saved_step > step and self._is_awaited(node):
                partial = shipment.partial
                part = ""
                if partial is not None and step_of(partial.file.name) == known.saved_step:
                    part = f": {partial.offset >> 20} of {partial.file.size >> 20} MB have come"
                return (
                    f"the checkpoint of step {known.saved_step} is on its way from node "
                    f"{self._called(node)}{part}"
                )
        # The controller knows of a newer one, and nobody has said yet that it is there.
        waited = self._clock() - shipment.asked_s >= UNKNOWN_S
        is_said = any(known.saved_step >= asked.step for known in list(shipment.nodes.values()))
        if asked.step > step and not (is_said or waited):
            return f"the checkpoint of step {asked.step} has not arrived"
        return ""

    def _say_lost(self, asked: AskFiles, shipment: JobShipping, step: int, lost: int) -> None:
        begun = f"from the checkpoint of step {step}" if step >= 0 else "from its beginning"
        line = f"[dovetail: it goes on {begun}: that of step {lost} is on a node that is lost]\n"
        LOG.warning("job %d: %s", asked.job, line.strip())
        with suppress(OSError):
            self._write_output(asked.job, shipment, line.encode())

    def _piece(self, asked: GetPiece) -> ShippingReply:
        own = self._own(asked.job)
        folder = own if asked.file.name == SCRIPT else lineage_folder(own, asked.lineage)
        if asked.file.name != SCRIPT and step_of(asked.file.name) < 0:
            raise ValueError(f"{asked.file.name[:80]!r} is no file of a job")
        path = folder / asked.file.name
        if self._described_file(path) != asked.file:
            raise OSError(f"{asked.file.name} is another by now")
        return FilePiece(piece_at(path, asked.offset))

    # What is kept.

    def _own(self, job: int) -> Path:
        return self._jobs / str(job)

    def _described_file(self, path: Path) -> ShippedFile:
        status = path.stat()
        key = (path, status.st_mtime_ns, status.st_size)
        if key not in self._described:
            for old in [k for k in self._described if k[0] == path]:
                del self._described[old]
            self._described[key] = described(path)
        return self._described[key]

    def _shipment(self, job: int) -> JobShipping:
        with self._lock:
            if job not in self._known:
                self._known[job] = _stored(self._own(job) / FILE)
            return self._known[job]

    def _keep(self, job: int, shipment: JobShipping) -> None:
        shipment.is_noted = False
        nodes = {
            str(n): [k.stream, k.offset, k.saved_step] for n, k in list(shipment.nodes.items())
        }
        content = {"size": shipment.size, "generation": shipment.generation, "nodes": nodes}
        self._own(job).mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self._own(job) / FILE, json.dumps(content), mode=PRIVATE, synced=False)


def _stored(path: Path) -> JobShipping:
    """Returns what was kept; nothing where it is damaged: all output then comes once more."""
    try:
        said = json.loads(path.read_text(encoding="ascii"))
        nodes = {
            int(node): NodeShipping(str(stream), int(offset), int(step))
            for node, (stream, offset, step) in said["nodes"].items()
        }
        return JobShipping(int(said["size"]), int(said["generation"]), nodes)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        with suppress(OSError):
            return JobShipping((path.parent / "output.log").stat().st_size)
        return JobShipping()
