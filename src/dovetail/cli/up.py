"""`dovetail up` and `dovetail down`: start and stop a live cluster on this machine."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Unpack

import click

from dovetail.cli import up_options
from dovetail.cli.cluster_options import (
    DEFAULT_HOME,
    INTERRUPTED,
    asks_a_cluster,
    client_of,
    controller_folder,
    counted,
    shown_option,
)
from dovetail.cli.options import belief_options
from dovetail.cli.site_options import (
    NOT_SHARED,
    join_settings,
    site_options,
    site_settings,
    site_words,
)
from dovetail.core.errors import DovetailError, InputError

if TYPE_CHECKING:
    from dovetail.cli.up_options import UpTexts
    from dovetail.live.client.client import Client
    from dovetail.live.server.server import Server
    from dovetail.live.serving.up_request import UpRequest

START_S = 600.0
"""Timeout of a start: long, as the first start of a fresh install compiles code."""
POLL_S = 0.05
STOP_S = 300.0
QUIET_S = 1.0
"""A start that takes longer shows its steps."""
STEP = "start: "
"""The prefix of each step of a start in the log of the controller."""


@click.command("up")
@shown_option("--policy", "-p", default="fifo", help="As for simulate.")
@shown_option(
    "--engine",
    default="local",
    help="local, local:SLOTS, ssh:FILE, nodes:FILE, slurm, ray:HOST:PORT, or "
    "emulated:NODESxGPUS[@SPEED] (synthetic jobs).",
)
@click.option(
    "--cluster",
    default="",
    metavar="FILE",
    help="TOML file with queues, accounts, QOS and reservations. [default: none]",
)
@shown_option(
    "--forecast",
    default="declared",
    help="Job lengths the policy sees: declared, limit, predicted[:METHOD], unknown; with "
    ",expected what is left of a job is the mean of a learned distribution.",
)
@shown_option("--switching", default="restart:5", help="Cost of switching jobs.")
@belief_options
@site_options
@click.option(
    "--listen", default="", help="Also listen on 127.0.0.1:PORT, with the folder's token."
)
@click.option(
    "--allow-sharing-between-users", is_flag=True, help="Jobs of different users may share a GPU."
)
@click.option(
    "--users",
    default="",
    metavar="FILE",
    help="TOML file of who may use the cluster; jobs run as their submitters. [default: its owner]",
)
@click.option("--fresh", is_flag=True, help="Ignore the options of the last `dovetail up`.")
@click.option("--foreground", is_flag=True, help="Run in this terminal; Ctrl-C stops it.")
@click.option("--report-fd", default=-1, hidden=True)
@asks_a_cluster
def up(
    home: Path,
    as_json: bool,
    policy: str,
    engine: str,
    listen: str,
    allow_sharing_between_users: bool,
    users: str,
    fresh: bool,
    foreground: bool,
    report_fd: int,
    **texts: Unpack[UpTexts],
) -> None:
    """Start the controller of a live cluster on this machine.

    The controller runs in the background. It takes over the jobs of an earlier controller: pending
    jobs stay in the queue, running jobs continue. `dovetail down` stops it.

    The options about speeds apply until jobs are measured. Options default to those of the last
    `dovetail up` of the same folder; --fresh restores the defaults. --listen, --users and
    --allow-sharing-between-users are not remembered.

    With --users, start it as root: it starts the agent, which runs jobs as their submitters, and
    goes on as the account that the file names.

    \b
    Example:
      dovetail up --policy dovetail --engine local
      dovetail up --policy afs-p --engine emulated:4x4@60 --home demo
    """
    from dovetail.live.engines.engine_spec import EngineSpec
    from dovetail.live.engines.local_engine import notes_of
    from dovetail.live.server.server import loopback_address
    from dovetail.live.serving.up_request import UpRequest
    from dovetail.live.system.file_system import check_local

    if listen and not loopback_address(listen)[1]:
        raise InputError(f"--listen {listen}", "it needs a port", "as in 127.0.0.1:7077")
    home = home.expanduser().absolute()
    context = click.get_current_context()
    last = {} if fresh else up_options.recalled(controller_folder(home), context)
    if last:
        click.echo(f"options of the last start: {up_options.words(last)}", err=True)
    policy, engine = str(last.get("policy", policy)), str(last.get("engine", engine))
    site, of_run = up_options.with_recalled(last, texts)
    share, join = allow_sharing_between_users, join_settings(site)
    nodes = site_settings(site, engine)
    jobs = _jobs_folder(site["jobs"], engine)
    users = str(Path(users).absolute()) if users else ""
    request = UpRequest(home, policy, engine, of_run, listen, share, join, nodes, jobs, users)
    _check(request, report_fd)
    unknown = check_local(home)
    for note in (unknown, *notes_of(EngineSpec.parse(engine))):
        if note:
            click.echo(f"note: {note}", err=True)
    if foreground:
        with reporting(report_fd):
            _serve(request, as_json)
    else:
        _start(request, as_json)


def _jobs_folder(text: str, engine: str) -> str:
    """Returns where the folders of jobs are to be, as all processes find it. Raises InputError."""
    from dovetail.live.engines.engine_spec import EngineSpec

    if text == NOT_SHARED and not EngineSpec.parse(engine).joins:
        raise InputError("--jobs none", "all nodes are this machine", "leave it out")
    return text if text in ("", NOT_SHARED) else str(Path(text).expanduser().absolute())


def _check(request: UpRequest, report_fd: int) -> None:
    """Raises InputError for a request that cannot work; root becomes the controller's account."""
    from dovetail.live.serving.serve import check
    from dovetail.live.serving.shared_start import check_as_controller

    with reporting(report_fd):
        (check_as_controller if request.users else check)(request)


@contextmanager
def reporting(descriptor: int) -> Iterator[None]:
    """Writes the error that ends the block to an open file, unless `descriptor` is negative.

    The file is in memory: a full disk, which the log is on too, is a common reason for a failed
    start.
    """
    try:
        yield
    except (DovetailError, OSError) as error:
        text = str(error)
        if isinstance(error, OSError):
            text = f"{error.filename or 'the folder of the cluster'}: {error.strerror or error}"
        if descriptor >= 0:
            os.write(descriptor, text.encode("utf-8", "replace"))
        raise


def reported(descriptor: int) -> str:
    """Returns the reported error, empty for none."""
    return os.pread(descriptor, 1 << 16, 0).decode("utf-8", "replace")


def _serve(request: UpRequest, as_json: bool) -> None:
    from dovetail.live.serving.serve import serve
    from dovetail.live.system.log_file import LogLimit

    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO, stream=sys.stderr
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(LogLimit(request.folder.log))

    def ready(server: Server) -> None:
        up_options.keep(
            request.folder.home,
            {
                "policy": request.policy,
                "engine": request.engine,
                "gate": request.join.gate,
                "lease": request.join.lease,
                "jobs": request.jobs,
                **request.options,
                **site_words(request.site),
            },
        )
        _print_up(request, server.address, as_json, os.getpid())

    serve(request, ready)


def _start(request: UpRequest, as_json: bool) -> None:
    """Starts the same command in a new process, and returns when its controller answers.

    Raises DovetailError, or InputError if the controller rejects its options.
    """
    from dovetail.live.client.client import Client, NoController
    from dovetail.live.system.log_file import rotate
    from dovetail.live.system.private_file import open_private

    log = request.folder.log
    rotate(log)
    report = os.memfd_create("dovetail-up")
    with open(open_private(log, os.O_WRONLY | os.O_APPEND), "ab") as out:
        began = out.tell()
        words = [sys.executable, "-m", "dovetail"]
        process = subprocess.Popen(
            [*words, *_words(request), "--report-fd", str(report)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            pass_fds=(report,),
        )
    client = Client(request.home, patience_s=1.0)
    deadline = monotonic() + START_S
    steps = _Steps(log, began)
    while monotonic() < deadline:
        steps.show()
        code = process.poll()
        if code is not None:
            _raise_failure(log, began, code, reported(report))
        try:
            pong = client.ping()
        except NoController:
            sleep(POLL_S)
            continue
        if pong.pid == process.pid:
            process.returncode = 0  # The controller outlives us: Popen must not wait for it.
            _print_up(request, request.listen, as_json, pong.pid)
            return
    process.terminate()
    raise DovetailError(f"the controller did not start within {START_S:g} s; see {log}")


class _Steps:
    """Prints the steps of a slow start, and its errors, from the log of the controller."""

    def __init__(self, log: Path, began: int) -> None:
        self._log, self._read_bytes = log, began
        self._from_s = monotonic() + QUIET_S

    def show(self) -> None:
        """Prints the steps since the last call."""
        if monotonic() < self._from_s:
            return
        with self._log.open("rb") as file:
            file.seek(self._read_bytes)
            lines = file.read().rpartition(b"\n")[0]
        self._read_bytes += len(lines)
        for line in lines.decode("utf-8", "replace").splitlines():
            _, marker, step = line.partition(f" {STEP}")
            _, error, why = line.partition(" ERROR ")
            if marker:
                click.echo(f"dovetail: {step} ...", err=True)
            elif error:
                click.echo(f"dovetail: {why}", err=True)


def _words(request: UpRequest) -> list[str]:
    """Returns the command line of a request."""
    words = ["up", "--fresh", "--foreground", "--home", str(request.home)]
    words += ["--policy", request.policy, "--engine", request.engine, "--listen", request.listen]
    words += ["--gate", request.join.gate, "--lease", request.join.lease]
    words += ["--jobs", request.jobs]
    words += ["--allow-sharing-between-users"] * request.share_between_users
    words += ["--users", request.users] if request.users else []
    for name, value in {**request.options, **site_words(request.site)}.items():
        for one in value if isinstance(value, tuple | list) else (value,):
            words += [f"--{name.replace('_', '-')}", str(one)]
    return words


def _raise_failure(log: Path, began: int, code: int, report: str) -> None:
    """Raises the error with which the controller exited during its start."""
    with log.open("rb") as file:
        file.seek(began)
        lines = file.read().decode("utf-8", "replace").splitlines()
    errors = [line.removeprefix("dovetail: ") for line in lines if line.startswith("dovetail: ")]
    message = report or (errors[-1] if errors else f"the controller failed to start; see {log}")
    raise InputError("up", message) if code == 2 else DovetailError(message)


def _print_up(request: UpRequest, address: str, as_json: bool, pid: int) -> None:
    if as_json:
        click.echo(json.dumps({"home": str(request.home), "pid": pid, "address": address}))
        return
    token = request.folder.home / "token"
    is_default = request.home == Path(DEFAULT_HOME).expanduser()
    where = "" if is_default else f" --home {request.home}"
    click.echo(f"{request.engine} is up with {request.policy}; stop it with: dovetail down{where}")
    if request.policy == "fifo":
        click.echo("recommended where jobs may change or share their GPUs: --policy dovetail")
    if address:
        click.echo(f"the controller listens on {address}; the token is in {token}")


@click.command("down")
@click.option("--drain", is_flag=True, help="Start no more jobs and wait for the running jobs.")
@click.option("--save", is_flag=True, help="Running jobs save, stop, and wait for the next up.")
@asks_a_cluster
def down(home: Path, as_json: bool, drain: bool, save: bool) -> int:
    """Stop the controller. Running jobs continue; the next `dovetail up` takes them over.

    Jobs on other machines end when the lease of their nodes is over without a controller.

    With --drain, the controller waits for the running jobs to end before it stops. With --save, the
    jobs save first and leave their GPUs: nothing runs until the next `dovetail up`, which goes on
    with them. Programs that do not use dovetail.train start anew then; those with `requeue: false`
    run on.

    \b
    Example:
      dovetail down
      dovetail down --drain
      dovetail down --save
    """
    if drain and save:
        raise InputError("--save", "jobs that save do not run to their end", "leave out --drain")
    client = client_of(home)
    counts = dict(client.jobs(limit=1).counts)
    running = sum(counts.get(state, 0) for state in ("RUNNING", "CONFIGURING"))
    client.down(drain=drain, save=save)
    try:
        _await_end(client, None if drain or save else STOP_S)
    except KeyboardInterrupt:
        drains = "; the controller starts no more jobs and stops after the running jobs"
        click.echo(f"\ndovetail: stopped waiting{drains if drain or save else ''}", err=True)
        return INTERRUPTED
    if as_json:
        click.echo(json.dumps({"down": True, "left_running": 0 if drain or save else running}))
    elif save:
        click.echo("the controller is stopped; jobs have saved and wait for the next dovetail up")
    elif drain or not running:
        click.echo("the controller is stopped; no job is running")
    else:
        click.echo(_left_running(running, home.expanduser()))
    return 0


def _left_running(running: int, home: Path) -> str:
    """Returns what becomes of jobs that run on without a controller."""
    jobs = f"{counted(running, 'job')} {'continues' if running == 1 else 'continue'}"
    said = f"the controller is stopped; {jobs} to run until the next dovetail up"
    lease = up_options.lease_of(home)
    ends = f"\nwithout one, jobs on other machines end in {lease}, their nodes' lease"
    return said + (ends if lease else "")


def _await_end(client: Client, patience_s: float | None) -> None:
    """Returns when the controller has ended. Raises DovetailError after `patience_s`."""
    deadline = None if patience_s is None else monotonic() + patience_s
    while _runs(client):
        if deadline is not None and monotonic() > deadline:
            raise DovetailError("the controller did not stop; see its log")
        sleep(POLL_S)


def _runs(client: Client) -> bool:
    """True while the controller has the lock of its folder, or answers if we may not look there."""
    from dovetail.live.client.client import NoController
    from dovetail.live.system.file_lock import is_locked

    try:
        return is_locked(controller_folder(client.home) / "lock")
    except PermissionError:
        try:
            client.ping()
        except NoController:
            return False
        return True
