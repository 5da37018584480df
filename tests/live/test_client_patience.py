"""How patient clients are: not at all with what cannot be asked, and with long lists very."""

from __future__ import annotations

import socket
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from dovetail.core.errors import InputError
from dovetail.live.client.client import Client, NoController
from dovetail.live.server.messages.tracking import JobState

PATIENT_S = 1e5
"""Whoever waits so long does not come back: these tests would not end."""


def test_a_home_that_is_a_file_must_be_a_join_word() -> None:
    said = "it is no join word"
    with NamedTemporaryFile(dir="/tmp") as home, pytest.raises(InputError, match=said):
        Client(home.name, patience_s=PATIENT_S).ping()


def test_an_address_where_nobody_listens_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    with socket.socket() as taken:
        # Bound and not listening: nobody else gets the port, and whoever calls is turned away.
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(NoController, match=f"no controller listens on {address}"):
            Client(tmp_path, address=address, patience_s=PATIENT_S).ping()


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost:", "here:port"])
def test_an_address_is_a_host_and_a_port(tmp_path: Path, address: str) -> None:
    (tmp_path / "token").write_text("secret")
    with pytest.raises(InputError, match=r"expected HOST:PORT \(as in 127.0.0.1:7077\)"):
        Client(tmp_path, address=address, patience_s=PATIENT_S).ping()


@pytest.mark.parametrize(("took_s", "rests_s"), [(0.01, 0.2), (0.2, 1.0), (30.0, 2.0)])
def test_who_waits_for_many_jobs_looks_less_often(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, took_s: float, rests_s: float
) -> None:
    now_s, rested = [0.0], list[float]()
    left = [JobState(1, "1", "RUNNING"), JobState(1, "1", "COMPLETED", 0)]

    class Slow(Client):
        def states(self, *jobs: int | str) -> tuple[JobState, ...]:
            now_s[0] += took_s
            return (left.pop(0),)

    monkeypatch.setattr("dovetail.live.client.client.monotonic", lambda: now_s[0])
    monkeypatch.setattr("dovetail.live.client.client.sleep", rested.append)
    assert Slow(tmp_path).wait(1) == (JobState(1, "1", "COMPLETED", 0),)
    assert rested == [pytest.approx(rests_s)]
