"""`dovetail up` and `dovetail down`: a live cluster on this machine begins and ends."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, cast

import click

from dovetail.cli import up_options
from dovetail.cli.cluster_options import INTERRUPTED, asks_a_cluster, client_of, counted
from dovetail.cli.start_report import reported, reporting
from dovetail.core.errors import DovetailError, InputError

if TYPE_CHECKING:
    from dovetail.live.server.server import Server
    from dovetail.live.serving.serve import Wish
    from dovetail.study.option_texts import OptionTexts

START_S = 600.0
"""A fresh install compiles what the policy needs before it is up."""
POLL_S = 0.05
STOP_S = 300.0
QUIET_S = 1.0
"""A start that takes no longer shows no steps."""
STEP = "start: "
"""What the controller's log has before each step of its start."""


@click.command("up")
@click.option("--policy", "-p", default="fifo", show_default=True, help="As for simulate.")
@click.option(
    "--engine",
    default="local",
    show_default=True,
    help="local, local:SLOTS, or emulated:NODESxGPUS[@SPEED] (jobs are clocks).",
)
@click.option(
    "--forecast",
    default="declared",
    show_default=True,
    help="What is known of lengths: declared, limit, predicted[:METHOD], unknown.",
)
@click.option("--belief", default="exact", show_default=True, help="As for simulate.")
@click.option(
    "--placement", default="prefer,best-fit,keep", show_default=True, help="As for simulate."
)
@click.option("--switching", default="restart:5", show_default=True, help="What a switch costs.")
@click.option(
    "--physics", default="placed", show_default=True, help="What speed is first believed."
)
@click.option("--profiles", multiple=True, type=click.Path(), help="Measured profiles (TOML).")
@click.option(
    "--interference",
    default="measured",
    show_default=True,
    help="How much jobs on one GPU are first believed to slow each other.",
)
@click.option(
    "--cycle", default="overlapped", show_default=True, help="How stages take turns, as believed."
)
@click.option("--without", default="", help="Take powers away, as in preempt,migrate.")
@click.option(
    "--seed", default=0, type=click.IntRange(0), show_default=True, help="Seed of noisy beliefs."
)
@click.option("--listen", default="", help="Also 127.0.0.1:PORT, with the token of the folder.")
@click.option(
    "--allow-sharing-between-users", is_flag=True, help="Jobs of different users may share a GPU."
)
@click.option("--fresh", is_flag=True, help="Use nothing of the options of the last time.")
@click.option("--foreground", is_flag=True, help="Stay in this terminal; Ctrl-C ends it.")
@click.option("--report-fd", default=-1, hidden=True)
@asks_a_cluster
def up(
    home: Path,
    as_json: bool,
    policy: str,
    engine: str,
    listen: str,
    allow_sharing_between_users: bool,
    fresh: bool,
    foreground: bool,
    report_fd: int,
    **given: Any,
) -> None:
    """Start the controller of a live cluster on this machine.

    It goes on in the background and takes over whatever an earlier one left: waiting jobs wait,
    running jobs run on. `dovetail down` stops it.

    Options that are not given are those of the last `dovetail up` of the same folder, if there was
    one: policy, engine, and all that says what the policy is told. --fresh uses the defaults. What
    opens the cluster (--listen, --allow-sharing-between-users) must be said each time.

    \b
    Example:
      dovetail up --policy sjf-bsbf --engine local
      dovetail up --policy afs-p --engine emulated:4x4@60 --home demo
    """
    from dovetail.live.engines.engine import EngineWords, notes_of
    from dovetail.live.server.server import loopback
    from dovetail.live.serving.serve import Wish, check

    if listen and not loopback(listen)[1]:
        raise InputError(f"--listen {listen}", "it needs a port", "as in 127.0.0.1:7077")
    home = home.expanduser().absolute()
    given["profiles"] = tuple(str(Path(path).absolute()) for path in given["profiles"])
    context = click.get_current_context()
    last = {} if fresh else up_options.recalled(home, context)
    policy, engine = str(last.get("policy", policy)), str(last.get("engine", engine))
    given |= {name: value for name, value in last.items() if name not in ("policy", "engine")}
    if last:
        click.echo(f"as the last time: {up_options.words(last)}", err=True)
    wish = Wish(
        home, policy, engine, cast("OptionTexts", given), listen, allow_sharing_between_users
    )
    with reporting(report_fd):
        check(wish)
    for note in notes_of(EngineWords.parse(engine)):
        click.echo(f"note: {note}", err=True)
    if foreground:
        with reporting(report_fd):
            _serve(wish, as_json)
    else:
        _start(wish, as_json)


def _serve(wish: Wish, as_json: bool) -> None:
    from dovetail.live.serving.serve import serve

    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO, stream=sys.stderr
    )

    def ready(server: Server) -> None:
        up_options.keep(wish.home, {"policy": wish.policy, "engine": wish.engine, **wish.given})
        _say_up(wish, server.address, as_json, os.getpid())

    serve(wish, ready)


def _start(wish: Wish, as_json: bool) -> None:
    """Starts the same command in a process of its own, and returns when it answers."""
    from dovetail.live.client.client import Client, NoController
    from dovetail.live.store.folder import Folder
    from dovetail.live.system.private_file import open_private

    log = Folder(wish.home).log
    report = os.memfd_create("dovetail-up")
    with open(open_private(log, os.O_WRONLY | os.O_APPEND), "ab") as out:
        began = out.tell()
        words = [sys.executable, "-m", "dovetail"]
        process = subprocess.Popen(
            [*words, *_words(wish), "--report-fd", str(report)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            pass_fds=(report,),
        )
    client = Client(wish.home, patience_s=1.0)
    deadline = monotonic() + START_S
    steps = _Steps(log, began)
    while monotonic() < deadline:
        steps.show()
        code = process.poll()
        if code is not None:
            _say_end(log, began, code, reported(report))
        try:
            pong = client.ping()
        except NoController:
            sleep(POLL_S)
            continue
        if pong.pid == process.pid:
            process.returncode = 0  # it is nobody's child any more: nobody will wait for it
            _say_up(wish, wish.listen, as_json, pong.pid)
            return
    process.terminate()
    raise DovetailError(f"the controller did not come up within {START_S:g} s; see {log}")


class _Steps:
    """Shows what a controller that starts is doing, from its log, if that takes a while."""

    def __init__(self, log: Path, began: int) -> None:
        self._log, self._read_bytes = log, began
        self._from_s = monotonic() + QUIET_S

    def show(self) -> None:
        """Prints the steps that began since the last call."""
        if monotonic() < self._from_s:
            return
        with self._log.open("rb") as file:
            file.seek(self._read_bytes)
            whole = file.read().rpartition(b"\n")[0]
        self._read_bytes += len(whole)
        for line in whole.decode("utf-8", "replace").splitlines():
            _, marked, step = line.partition(f" {STEP}")
            if marked:
                click.echo(f"dovetail: {step} ...", err=True)


def _words(wish: Wish) -> list[str]:
    """Returns the command line that means the wish."""
    words = ["up", "--fresh", "--foreground", "--home", str(wish.home)]
    words += ["--policy", wish.policy, "--engine", wish.engine, "--listen", wish.listen]
    if wish.share_between_users:
        words.append("--allow-sharing-between-users")
    for name, value in wish.given.items():
        for one in value if isinstance(value, tuple | list) else (value,):
            words += [f"--{name.replace('_', '-')}", str(one)]
    return words


def _say_end(log: Path, began: int, code: int, report: str) -> None:
    """Raises what the controller said when it gave up at its start."""
    with log.open("rb") as file:
        file.seek(began)
        lines = file.read().decode("utf-8", "replace").splitlines()
    said = [line.removeprefix("dovetail: ") for line in lines if line.startswith("dovetail: ")]
    message = report or (said[-1] if said else f"the controller ended at its start; see {log}")
    raise InputError("up", message) if code == 2 else DovetailError(message)


def _say_up(wish: Wish, address: str, as_json: bool, pid: int) -> None:
    if as_json:
        click.echo(json.dumps({"home": str(wish.home), "pid": pid, "address": address}))
        return
    where = (
        "" if str(wish.home) == str(Path("~/.dovetail").expanduser()) else f" --home {wish.home}"
    )
    click.echo(f"{wish.engine} is up with {wish.policy}; stop it with: dovetail down{where}")
    if address:
        click.echo(f"it also listens on {address}; the token is in {wish.home / 'token'}")


@click.command("down")
@click.option("--drain", is_flag=True, help="Start no more jobs and wait for those that run.")
@asks_a_cluster
def down(home: Path, as_json: bool, drain: bool) -> int:
    """Stop the controller. Jobs that run go on; the next `dovetail up` takes them over.

    With --drain it waits until the running jobs are over, and then stops.

    \b
    Example:
      dovetail down
      dovetail down --drain
    """
    client = client_of(home)
    counts = dict(client.jobs(limit=1).counts)
    running = sum(counts.get(state, 0) for state in ("RUNNING", "CONFIGURING"))
    client.down(drain=drain)
    try:
        _await_end(home.expanduser(), None if drain else STOP_S)
    except KeyboardInterrupt:
        goes_on = "; it starts no more jobs, and stops when those that run are over"
        click.echo(f"\ndovetail: not waited for{goes_on if drain else ''}", err=True)
        return INTERRUPTED
    if as_json:
        click.echo(json.dumps({"down": True, "left_running": 0 if drain else running}))
    elif drain or not running:
        click.echo("the controller is stopped; no job runs")
    else:
        run = f"{counted(running, 'job')} {'runs' if running == 1 else 'run'}"
        click.echo(f"the controller is stopped; {run} on until the next dovetail up")
    return 0


def _await_end(home: Path, patience_s: float | None) -> None:
    """Returns when the folder's lock is free."""
    from dovetail.live.store.folder import Folder

    deadline = None if patience_s is None else monotonic() + patience_s
    while True:
        try:
            Folder(home).lock().release()
            return
        except InputError:
            if deadline is not None and monotonic() > deadline:
                raise DovetailError("the controller did not stop; see its log") from None
            sleep(POLL_S)
