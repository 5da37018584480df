"""A rehearsal of a script: its workers are started, regrouped and killed on this machine, by hand.

A `Rehearsal` plays the agent of a node without any scheduler, so that tests, benchmarks and
authors of scripts can see what a job does when workers come and go:

    with Rehearsal.of_script("train.py") as stage:
        stage.start(0)
        stage.entered(stage.regroup(0))
        stage.start(1)
        stage.entered(stage.regroup(0, 1))
        stage.ended(0, 1)
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from dovetail.wire.connection import LineConnection
from dovetail.wire.worker import (
    FOLDER,
    FROM_WORKER,
    SOCKET,
    TO_WORKER,
    TOKEN,
    WORKER,
    Abandon,
    Entered,
    FromWorker,
    Hello,
    Meet,
    Meeting,
    Regroup,
    ToWorker,
)

TOKEN_OF_REHEARSALS = "rehearsal"
PATIENCE_S = 300.0
"""The default timeout of all waits."""
M = TypeVar("M")


class RehearsalProcess(Protocol):
    """A process as a rehearsal needs it, such as `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """Returns the process id."""

    def poll(self) -> int | None:
        """Returns the exit code, or None while the process runs."""

    def kill(self) -> None:
        """Kills the process."""


ProcessStarter = Callable[[dict[str, str]], RehearsalProcess]
"""Starts a process with these variables added to its environment."""


@dataclass(slots=True)
class RehearsalWorker:
    """A worker of a rehearsal, and all its messages. `reader` reads its connection."""

    number: int
    process: RehearsalProcess
    messages: list[FromWorker] = field(default_factory=list)
    peer: socket.socket | None = None
    reader: threading.Thread | None = None

    @property
    def is_over(self) -> bool:
        """Returns whether the process has ended and all its messages were read."""
        ended = self.process.poll() is not None
        return ended and (self.reader is None or not self.reader.is_alive())


class Rehearsal:
    """An agent for one job, driven by hand. Not for production: it decides nothing."""

    def __init__(self, starter: ProcessStarter, *, folder: Path | None = None) -> None:
        """`folder` is the folder of the job; by default a temporary one."""
        self._starter = starter
        self._place = Path(tempfile.mkdtemp(prefix="dvt"))  # short: Unix socket paths are limited
        self.folder = folder or self._place / "job"
        self.workers: dict[int, RehearsalWorker] = {}
        self._regroup: Regroup | None = None
        self._meets: dict[int, Meet] = {}
        self._lock = threading.Condition()
        self._listener: socket.socket | None = None
        self.answer()

    @classmethod
    def of_script(cls, script: str | Path, *words: str, folder: Path | None = None) -> Rehearsal:
        """Returns a rehearsal of a script, started as a user would start it."""

        def starter(environment: dict[str, str]) -> RehearsalProcess:
            command = [sys.executable, str(script), *words]
            return subprocess.Popen(command, env={**os.environ, **environment})

        return cls(starter, folder=folder)

    def __enter__(self) -> Rehearsal:
        """Returns the rehearsal."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kills all workers and removes the temporary files."""
        for worker in self.workers.values():
            if worker.process.poll() is None:
                worker.process.kill()
        self.hang_up()
        self.until(lambda: all(w.process.poll() is not None for w in self.workers.values()))
        shutil.rmtree(self._place, ignore_errors=True)

    # What an agent does.

    def start(self, *numbers: int, environment: Mapping[str, str] | None = None) -> None:
        """Starts workers with these numbers."""
        for number in numbers:
            process = self._starter(
                {
                    SOCKET: str(self._place / "agent"),
                    WORKER: f"1/{number}",
                    TOKEN: TOKEN_OF_REHEARSALS,
                    FOLDER: str(self.folder),
                    **(environment or {}),
                }
            )
            with self._lock:
                self.workers[number] = RehearsalWorker(number, process)

    def regroup(
        self,
        *members: int,
        steps: int = 1,
        samples: Sequence[int] = (),
        batch_size: int = 0,
        generation: int = 0,
    ) -> int:
        """Orders a newer generation with these members; returns its number."""
        newest = self._regroup.generation if self._regroup else 0
        order = Regroup(generation or newest + 1, members, steps, tuple(samples), batch_size)
        with self._lock:
            self._regroup = order
            for worker in self.workers.values():
                self._tell(worker, order)
        return order.generation

    def tell(self, message: ToWorker, *numbers: int) -> None:
        """Sends a message to the given workers, or to all."""
        with self._lock:
            for number in numbers or tuple(self.workers):
                self._tell(self.workers[number], message)

    def abandon(self) -> None:
        """Orders all workers to abandon the newest generation: a member of it is gone."""
        assert self._regroup is not None
        self.tell(Abandon(self._regroup.generation))

    def hang_up(self) -> None:
        """Closes all connections, as if the agent had died; workers must train on."""
        with self._lock:
            listener, self._listener = self._listener, None
            for worker in self.workers.values():
                self._close(worker)
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in `accept`
            listener.close()
            (self._place / "agent").unlink(missing_ok=True)

    def answer(self) -> None:
        """Accepts connections, also after `hang_up`."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._place / "agent"))
        listener.listen(64)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    # Observing workers.

    def until(self, condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        """Waits until a condition is true. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(self._description())
            with self._lock:
                self._lock.wait(min(0.02, left_s))

    def messages(self, number: int, kind: type[M]) -> list[M]:
        """Returns all messages of a type that a worker sent."""
        with self._lock:
            return [m for m in self.workers[number].messages if isinstance(m, kind)]

    def entered(self, generation: int, timeout_s: float = PATIENCE_S) -> list[Entered]:
        """Waits until all members entered this generation or a newer one; returns reports."""
        assert self._regroup is not None
        members = self._regroup.members

        def reached(number: int) -> Entered | None:
            messages = self.messages(number, Entered)
            return messages[-1] if messages and messages[-1].generation >= generation else None

        self.until(lambda: all(reached(m) for m in members), timeout_s)
        return [e for m in members if (e := reached(m)) is not None]

    def ended(self, *numbers: int, timeout_s: float = PATIENCE_S) -> list[int]:
        """Waits until workers have exited and all messages are read; returns their exit codes."""
        workers = [self.workers[n] for n in numbers]
        self.until(lambda: all(w.is_over for w in workers), timeout_s)
        return [code for w in workers if (code := w.process.poll()) is not None]

    def _description(self) -> str:
        lines = [f"newest order: {self._regroup}"]
        for w in self.workers.values():
            last = [str(m)[:160] for m in w.messages[-4:]]
            lines.append(f"worker {w.number} (exit code {w.process.poll()}): {last}")
        return "\n".join(lines)

    # The sockets.

    def _tell(self, worker: RehearsalWorker, message: ToWorker) -> None:
        if worker.peer is not None:
            try:
                worker.peer.sendall(TO_WORKER.encode(message))
            except OSError:
                self._close(worker)

    def _close(self, worker: RehearsalWorker) -> None:
        if worker.peer is not None:
            with suppress(OSError):
                worker.peer.shutdown(socket.SHUT_RDWR)
            worker.peer = None

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._read, args=(peer,), daemon=True).start()

    def _read(self, peer: socket.socket) -> None:
        worker: RehearsalWorker | None = None
        with LineConnection(peer) as connection, suppress(OSError):
            for line in connection.lines():
                message = FROM_WORKER.decode(line)
                if isinstance(message, Hello):
                    worker = self._greet(message, peer)
                assert worker is not None, "the first message is Hello"
                self._note(worker, message)
        with self._lock:
            if worker is not None and worker.peer is peer:
                worker.peer = None
            self._lock.notify_all()

    def _greet(self, hello: Hello, peer: socket.socket) -> RehearsalWorker:
        assert hello.token == TOKEN_OF_REHEARSALS
        number = int(hello.worker.rpartition("/")[2])
        self.until(lambda: number in self.workers)
        with self._lock:
            worker = self.workers[number]
            worker.peer, worker.reader = peer, threading.current_thread()
            if self._regroup is not None:
                self._tell(worker, self._regroup)
            for meet in self._meets.values():
                self._tell(worker, meet)
        return worker

    def _note(self, worker: RehearsalWorker, message: FromWorker) -> None:
        with self._lock:
            worker.messages.append(message)
            if isinstance(message, Meeting):
                meet = Meet(message.generation, message.address)
                self._meets[message.generation] = meet
                for other in self.workers.values():
                    self._tell(other, meet)
            self._lock.notify_all()
