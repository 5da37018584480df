"""`dovetail up` uses the options of the last time, says so, and shows what it is doing."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_runner import Shell

from dovetail.cli import up, up_options
from dovetail.cli.site_options import site_words
from dovetail.live.serving.up_request import UpRequest


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Returns the folder of a cluster."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def wishes(monkeypatch: pytest.MonkeyPatch) -> list[UpRequest]:
    """Returns the wishes of all calls of `up`, of which each is said to come up."""
    found: list[UpRequest] = []

    def start(request: UpRequest, as_json: bool) -> None:
        found.append(request)
        used = {"policy": request.policy, "engine": request.engine, **request.options}
        up_options.keep(request.home, {**used, **site_words(request.site)})

    monkeypatch.setattr(up, "_start", start)
    return found


def test_up_without_options_uses_those_of_the_last_time(
    shell: Shell, home: Path, wishes: list[UpRequest]
) -> None:
    here = ("up", "--home", home)
    first = shell.ok(*here, "-p", "sjf", "--engine", "emulated:1x2", "--seed", 3)
    assert first.err == ""
    again = shell.ok(*here)
    assert again.err == "options of the last start: --policy sjf --engine emulated:1x2 --seed 3\n"
    assert wishes[1] == wishes[0]
    given = shell.ok(*here, "--policy", "srtf")
    assert given.err == "options of the last start: --engine emulated:1x2 --seed 3\n"
    assert (wishes[2].policy, wishes[2].engine) == ("srtf", "emulated:1x2")
    shell.ok(*here, "--fresh")
    assert (wishes[3].policy, wishes[3].engine, wishes[3].options["seed"]) == ("fifo", "local", 0)


def test_the_sites_options_are_remembered_in_their_own_words(
    shell: Shell, home: Path, wishes: list[UpRequest]
) -> None:
    here = ("up", "--home", home, "--engine", "local:1")
    shell.ok(*here, "--output-max", "64M", "--reclaim-idle", "30m", "--epilog", "/bin/true")
    again = shell.ok(*here)
    assert (
        "--output-max 64M --reclaim-idle 1800s" in again.err and "--epilog /bin/true" in again.err
    )
    assert wishes[1].site == wishes[0].site
    assert (wishes[0].site.output_bytes_max, wishes[0].site.reclaim_idle_s) == (2**26, 1800.0)


@pytest.mark.parametrize("kept", ["{", "[]", '{"policy": 3}', '{"colour": "red"}'])
def test_a_damaged_file_of_options_is_named(
    shell: Shell, home: Path, wishes: list[UpRequest], kept: str
) -> None:
    (home / up_options.FILE).write_text(kept)
    said = shell.refused("up", "--home", home)
    assert str(home / up_options.FILE) in said and "(remove it)" in said
    shell.ok("up", "--home", home, "--fresh", "--engine", "emulated:1x1")


def test_every_option_of_up_is_kept_or_asked_for_each_time() -> None:
    names = {p.name for p in up.up.params}
    each_time = {"home", "as_json", "listen", "allow_sharing_between_users", "fresh", "users"}
    each_time |= {"foreground", "report_fd"}
    assert names == {*up_options.REMEMBERED, *each_time}


def test_a_start_that_takes_long_shows_its_steps(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(up, "QUIET_S", 0.0)
    log = home / "controller.log"
    log.write_text("x INFO start: a step of the last time\n")
    steps = up._Steps(log, log.stat().st_size)
    with log.open("a") as file:
        file.write("x INFO start: opening the store\nx INFO other\nx INFO start: prepar")
    steps.show()
    assert capsys.readouterr().err == "dovetail: opening the store ...\n"
    with log.open("a") as file:
        file.write("ing afs-p\n")
    steps.show()
    steps.show()
    assert capsys.readouterr().err == "dovetail: preparing afs-p ...\n"


def test_down_names_the_lease_of_nodes_that_join(home: Path) -> None:
    assert up_options.lease_of(home) == ""
    for engine, lease, said in [
        ("ssh:nodes.toml", "10m", "10m"),
        ("nodes:nodes.toml", "0", ""),
        ("local:2", "10m", ""),
    ]:
        up_options.keep(home, {"engine": engine, "lease": lease})
        assert up_options.lease_of(home) == said
    assert up_options.lease_of(home / "client") == "", "a word of clients is no folder"
