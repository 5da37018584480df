"""How long the lease of nodes is: never none, and never shorter than what agents may still hold."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from live_stage import Stage
from test_leases import LEASED, cut

from dovetail.cli.site_options import join_settings
from dovetail.core.errors import InputError
from dovetail.live.controller.node_monitor import LEASES
from dovetail.live.engines.joined_engine import JoinSettings
from dovetail.live.serving.serve import LEASE, check
from dovetail.live.serving.up_request import UpRequest
from dovetail.live.store.database import Database
from dovetail.live.workers.rules import ENDLESS_LEASE_S


def length_s(text: str) -> float:
    return join_settings({"gate": "", "lease": text, "jobs": ""}).lease_s  # type: ignore[typeddict-item]


def test_a_lease_without_limit_is_one_all_the_same() -> None:
    assert length_s("0") == length_s("99999d") == ENDLESS_LEASE_S
    assert (length_s("10m"), length_s("10s")) == (600.0, 10.0)
    with pytest.raises(InputError, match="it is 0 or at least 10s"):
        length_s("9s")


def test_with_an_endless_lease_a_job_on_a_node_that_is_cut_off_waits_for_ever() -> None:
    stage: Stage = cut()
    stage.rules = replace(LEASED, leases_s=(ENDLESS_LEASE_S,) * 2)
    stage.play(3_000.0)
    assert stage.record(1).reason == "NodeDisconnected"


def up(home: Path, lease: str, lease_s: float) -> None:
    check(UpRequest(home, "fifo", "nodes:nodes.toml", {}, join=JoinSettings("", lease_s, lease)))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("nodes.toml").write_text('[[node]]\nname = "n1"\n')
    home = tmp_path / "home"
    up(home, "10m", 600.0)
    with closing(Database(home / "store.db").connection):
        pass
    return home


def keep(home: Path, **meta: str) -> None:
    with closing(sqlite3.connect(home / "store.db")) as store, store:
        rows = [(name.replace("_", " "), value) for name, value in meta.items()]
        store.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)


def test_a_shorter_lease_is_refused_while_agents_may_hold_the_longer_one(home: Path) -> None:
    assert (LEASE, LEASES) == ("lease of nodes", "leases")
    keep(home, lease_of_nodes="600.0", leases='{"0": 700.0}')
    with pytest.raises(InputError, match="have a longer lease") as refused:
        up(home, "60s", 60.0)
    assert "give --lease 600s" in str(refused.value)
    up(home, "10m", 600.0)
    up(home, "0", ENDLESS_LEASE_S)
    keep(home, leases="{}")
    up(home, "60s", 60.0)
    keep(home, lease_of_nodes=repr(ENDLESS_LEASE_S), leases='{"0": 1e9}')
    with pytest.raises(InputError, match="give --lease 0"):
        up(home, "10m", 600.0)
