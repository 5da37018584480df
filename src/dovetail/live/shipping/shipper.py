"""The agent's end: a thread that ships what jobs write on this node, and fetches what they need.

It asks one thing at a time and goes round all jobs, so that no large checkpoint keeps the output
of others waiting, and the controller's pace bounds what is under way. No heartbeat of the agent
ever waits for it. Where folders belong to several users, each is touched with its owner's rights.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from dovetail.live.shipping.shipped_draft import SCRIPT
from dovetail.live.shipping.shipping_folder import OUTPUT, ShippingFolder
from dovetail.wire.agent import StartWorker
from dovetail.wire.codec import WireError
from dovetail.wire.connection import LineConnection
from dovetail.wire.shipping import (
    SHIPPING_REPLIES,
    SHIPPING_REQUESTS,
    AskFiles,
    JobFiles,
    JobsOver,
    NodeFiles,
    ShippingReply,
    ShippingRequest,
)

LOOK_S = 0.25
REPORT_S = 2.0
TIMEOUT_S = 30.0
AGAIN_S = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses between attempts to connect."""
LAST_OUTPUT_S = 5.0
"""How long the end of a worker is kept back for the last of its output to arrive before it."""


@dataclass(slots=True)
class _Job:
    """The transfers of one job; `wanted` is what a start waits for, `fetched` what is there."""

    files: ShippingFolder
    transfers: list[Iterator[bool]]
    wanted: AskFiles | None = None
    fetched: AskFiles | None = None
    fetch: Iterator[bool] | None = None
    asked: AskFiles | None = None
    ended_s: float = -1.0
    again_s: float = 0.0


def _as_ourselves(folder: Path) -> AbstractContextManager[None]:
    return nullcontext()


class Shipper:
    """Ships the folders of jobs below `root`. `connect` returns a connection, or raises OSError.

    `access` returns what the folder of a job is to be touched in, None while that is not known.
    """

    def __init__(
        self,
        root: Path,
        connect: Callable[[], LineConnection],
        log: Callable[[str], None],
        access: Callable[[Path], AbstractContextManager[None] | None] = _as_ourselves,
    ) -> None:
        self._root, self._connect, self._log = root, connect, log
        self._access = access
        self._lock = threading.Lock()
        self._jobs: dict[int, _Job] = {}
        self._living: frozenset[int] = frozenset()
        self._lines: LineConnection | None = None
        self._wake, self._ends = threading.Event(), False
        self._failures, self._report_s, self._said = 0, 0.0, ""
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._run, name="shipper", daemon=True)
        for folder in root.iterdir():
            if folder.name.isdecimal():
                self._add(int(folder.name))

    # The agent's thread.

    def localized(self, order: StartWorker) -> StartWorker:
        """Returns an order with the folder that its job has on this node."""
        own = self._root / str(order.job)
        script = f"{order.folder}/{SCRIPT}"
        command = tuple(f"{own}/{SCRIPT}" if word == script else word for word in order.command)
        return replace(order, folder=str(own), output=str(own / OUTPUT), command=command)

    def must_wait(self, order: StartWorker) -> str:
        """Returns what of its files a worker waits for, empty once all are there."""
        is_fresh = order.trains and order.from_checkpoint
        asked = AskFiles(
            order.job,
            order.lineage if order.trains else 0,
            order.generation,
            order.saved_step if is_fresh else -1,
            is_fresh,
        )
        with self._lock:
            job = self._jobs.get(order.job) or self._add(order.job)
            job.ended_s = -1.0
            if job.fetched == asked:
                return ""
            job.wanted = asked
            why = job.files.waits_for
        self._wake.set()
        return why or ("its files are on their way" if self._lines else "its files are awaited")

    def note_living(self, jobs: frozenset[int]) -> None:
        """Notes which jobs have workers on this node."""
        self._living = jobs

    def keeps_back(self, job: int) -> bool:
        """Returns whether the end of a worker is not to be reported yet: its output is to come."""
        with self._lock:
            known = self._jobs.get(job)
            if known is None or self._lines is None:
                return False
            now = monotonic()
            if known.ended_s < 0:
                known.ended_s = now
            behind = not known.files.is_output_shipped
        if behind:
            self._wake.set()
        return behind and now < known.ended_s + LAST_OUTPUT_S

    def close(self) -> None:
        """Ends the thread."""
        self._ends = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(TIMEOUT_S)

    # The thread.

    def _add(self, number: int) -> _Job:
        files = ShippingFolder(self._root / str(number), number)
        job = self._jobs[number] = _Job(files, [])
        if not self._thread.is_alive() and not self._ends:
            self._thread.start()
        return job

    def _run(self) -> None:
        while not self._ends:
            got_on = False
            try:
                got_on = self._turn()
                self._failures = 0
            except (OSError, WireError, ValueError) as error:
                self._cut(error)
            if not got_on:
                self._wake.wait(LOOK_S)
                self._wake.clear()
        self._hang_up()

    def _turn(self) -> bool:
        """Lets each transfer of each job make one request; returns whether any got on."""
        with self._lock:
            jobs = dict(self._jobs)
        if not jobs:
            self._hang_up()
            return False
        if self._lines is None:
            self._lines = self._connect()
            for job in jobs.values():
                job.transfers = []
                job.fetch = None
        got_on = False
        for job in jobs.values():
            got_on |= self._serve_job(job)
        if not got_on or monotonic() >= self._report_s:
            self._remove_over(jobs)
        return got_on

    def _serve_job(self, job: _Job) -> bool:
        """Lets each transfer of a job make one request. Raises ConnectionError."""
        access = self._access(job.files.folder)
        if access is None or monotonic() < job.again_s:
            return False
        try:
            with access:
                return self._transfer(job)
        except ConnectionError:
            raise
        except OSError as error:
            # Its own files: its user may have changed their modes. Other jobs go on.
            job.transfers, job.fetch, job.again_s = [], None, monotonic() + AGAIN_S[-1]
            why = f"{error.filename or job.files.folder}: {error.strerror or error}"
            if why != job.files.waits_for:
                self._log(f"files of job {job.files.job}: {why}")
            job.files.waits_for = why
            return False

    def _transfer(self, job: _Job) -> bool:
        if not job.transfers:
            job.transfers = [
                job.files.push_output(self._ask),
                job.files.push_checkpoints(self._ask),
            ]
        got_on = [next(transfer, False) for transfer in job.transfers]
        return any([*got_on, self._fetch(job)])

    def _fetch(self, job: _Job) -> bool:
        with self._lock:
            wanted = job.wanted
        if wanted is None:
            return False
        if job.fetch is None or job.asked != wanted:
            job.asked = wanted
            job.fetch = job.files.fetch(self._ask, wanted.lineage, wanted)
        try:
            return next(job.fetch)
        except StopIteration:
            with self._lock:
                job.fetched, job.fetch = wanted, None
                if job.wanted == wanted:
                    job.wanted = None
            return True

    def _remove_over(self, jobs: dict[int, _Job]) -> None:
        if monotonic() < self._report_s:
            return
        self._report_s = monotonic() + REPORT_S
        steps = [JobFiles(number, job.files.unshipped_step) for number, job in jobs.items()]
        reply = self._ask(NodeFiles(tuple(steps)))
        for number in reply.jobs if isinstance(reply, JobsOver) else ():
            job = jobs[number]
            if number in self._living or not job.files.is_shipped:
                continue
            with self._lock:
                if job.wanted is None:
                    del self._jobs[number]
                    shutil.rmtree(job.files.folder, ignore_errors=True)

    def _ask(self, request: ShippingRequest) -> ShippingReply:
        assert self._lines is not None
        try:
            self._lines.send(SHIPPING_REQUESTS.encode(request), TIMEOUT_S)
            line = self._lines.read_line(TIMEOUT_S)
        except OSError as error:
            raise ConnectionError(str(error) or type(error).__name__) from error
        if line is None:
            raise ConnectionError("the controller closed the connection of files")
        return SHIPPING_REPLIES.decode(line)

    def _cut(self, error: Exception) -> None:
        self._hang_up()
        text = str(error) or type(error).__name__
        if text != self._said:
            self._said = text
            self._log(f"files: {text}")
        self._wake.wait(AGAIN_S[min(self._failures, len(AGAIN_S) - 1)])
        self._failures += 1

    def _hang_up(self) -> None:
        lines, self._lines = self._lines, None
        if lines is not None:
            lines.close()
