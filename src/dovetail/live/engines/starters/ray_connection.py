"""The process of a driver of Ray, as the controller sees it: requests, answers, and the nodes."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.engines.starters.ray_actor import FAILED
from dovetail.live.engines.starters.ray_driver import DRIVER, STRANGER
from dovetail.live.system.log_file import rotate
from dovetail.live.system.private_file import open_private

REACH_S = 5.0
STRANGER_S = 60.0
CONTACT_S = 90.0
"""For a driver to know the nodes: Ray itself waits 20 s for what may still come up."""
CLOSE_S = 15.0
NOT_GIVEN = ("RAY_AUTH_MODE", "RAY_ADDRESS", "RAY_NAMESPACE")
"""Variables of the user that would change which cluster a driver asks, and how."""
TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node that Ray calls alive: its name in Ray (an address if it was given none) and host."""

    id: str
    name: str
    host: str
    address: str
    gpus: float
    cpus: float


class RayConnection:
    """A driver that runs, until it is closed or Ray ends it.

    `here` is the address of this machine for other nodes of Ray, once the nodes are known.
    """

    def __init__(self, address: str, log: Path) -> None:
        self._address = address
        self._process = _started(DRIVER, address, log, {"RAY_AUTH_MODE": "token"})
        self._changed = threading.Condition()
        self._nodes: tuple[RayNode, ...] | None = None
        self.here = ""
        self._failure: tuple[str, str] | None = None
        self._answers: dict[int, tuple[str, str]] = {}
        self._numbers = itertools.count()
        self._has_ended = False
        self._reader = threading.Thread(target=self._read, name="ray", daemon=True)
        self._reader.start()

    @property
    def has_ended(self) -> bool:
        """True if the driver runs no more."""
        return self._has_ended

    def nodes(self, within_s: float = CONTACT_S) -> Sequence[RayNode]:
        """Returns the nodes as the driver said last. Raises InputError if it says none in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._nodes is not None or self._has_ended, within_s)
            if self._nodes is not None:
                return self._nodes
            what, mend = self._failure or (
                f"it does not answer within {within_s:g} s",
                "see nodes/ray.log in the cluster's folder",
            )
        raise InputError(f"--engine ray:{self._address}", what, mend)

    def ask(self, within_s: float, **request: object) -> tuple[str, str]:
        """Returns how a request went, and what to know about it. Raises DovetailError."""
        number = next(self._numbers)
        line = json.dumps({"id": number, **request}) + "\n"
        assert self._process.stdin is not None
        with self._changed:
            with suppress(OSError, ValueError):
                self._process.stdin.write(line)
                self._process.stdin.flush()
            self._changed.wait_for(lambda: number in self._answers or self._has_ended, within_s)
            if number not in self._answers:
                raise DovetailError("the driver of Ray did not answer; see nodes/ray.log")
            how, detail = self._answers.pop(number)
        if how == FAILED:
            raise DovetailError(detail)
        return how, detail

    def close(self) -> None:
        """Ends the driver; what it started on the nodes stays."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(CLOSE_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                with suppress(ValueError), self._changed:
                    self._take(json.loads(line))
                    self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _take(self, said: Mapping[str, object]) -> None:
        if isinstance(nodes := said.get("nodes"), list):
            self._nodes = tuple(RayNode(**node) for node in nodes)
            self.here = str(said["here"])
        elif "id" in said:
            self._answers[int(str(said["id"]))] = str(said["how"]), str(said["detail"])
        else:
            self._failure = str(said["failed"]), str(said["mend"])


def check_authenticated(address: str, log: Path) -> None:
    """Raises InputError unless the cluster is there, and refuses a client without a token."""
    where = f"--engine ray:{address}"
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()
    except OSError as error:
        why = "it does not answer" if isinstance(error, TimeoutError) else str(error.strerror)
        raise InputError(where, why, "give the address that `ray start --head` printed") from None
    # A process of its own: Ray reads from the environment whether there is authentication.
    process = _started(STRANGER, address, log, {"RAY_AUTH_MODE": "disabled"}, TOKENS)
    try:
        out, _ = process.communicate(timeout=STRANGER_S)
        said = json.loads(out)
    except (subprocess.TimeoutExpired, ValueError):
        process.kill()
        process.wait()
        said = {"failed": f"it does not answer within {STRANGER_S:g} s"}
    if said.get("admitted") is False:
        return
    if said.get("admitted"):
        raise InputError(
            where,
            "this Ray has no token authentication: whoever reaches it could run jobs as you",
            "start every node of it with RAY_AUTH_MODE=token, after `ray get-auth-token "
            "--generate` on its head",
        )
    raise InputError(where, f"whether it has token authentication is not known: {said['failed']}")


def _started(
    kind: str, address: str, log: Path, given: Mapping[str, str], hidden: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """Starts a driver; what Ray writes goes to the log."""
    environment = {n: v for n, v in os.environ.items() if n not in (*NOT_GIVEN, *hidden)}
    rotate(log)
    module = "dovetail.live.engines.starters.ray_driver"
    with open(open_private(log, os.O_WRONLY | os.O_APPEND), "ab") as errors:
        return subprocess.Popen(
            # Not from the working directory: a script of the user may be called ray.py.
            [sys.executable, "-P", "-m", module, kind, address],
            env={**environment, **given, "RAY_DISABLE_IMPORT_WARNING": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
