"""`dovetail run`: a command, a shell or a notebook as an interactive job of the live cluster."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

import click

from dovetail.cli.cluster_options import client_of, home_option
from dovetail.cli.job_options import JobCommand, job_options, spec_file_of
from dovetail.cli.local_terminal import LocalTerminal, signals_as_bytes
from dovetail.core.errors import DovetailError, InputError
from dovetail.wire.terminal import PIPES, PTY

if TYPE_CHECKING:
    from dovetail.live.client.client import Client
    from dovetail.live.client.terminal_client import TerminalExit
    from dovetail.live.server.messages.terminal import AttachReply
    from dovetail.wire.spec import JobSpec

ENDED_WITHIN_S, LOOK_S = 10.0, 0.1
"""How long after the end of a process its job may take to be over, to say why it was ended."""


@click.command("run", cls=JobCommand)
@job_options
@click.option("--pty", is_flag=True, help="Give the command a terminal: for shells and editors.")
@home_option
def run(
    home: Path,
    fields: tuple[str, ...],
    env: tuple[str, ...],
    pty: bool,
    **option_values: str | bool | None,
) -> int:
    """Run a command as an interactive job: submit it, wait until it starts, and connect to it.

    Standard input, output and error are those of this command, which exits with the exit code of
    the job, 128 + N after signal N. Signals are passed on; a second Ctrl-C cancels the job. With
    --pty the job has a terminal of its own, and every key goes there.

    The job is never preempted, nor started again. It ends with this command, or with its terminal.

    \b
    Example:
      dovetail run --gpus 1 --time 2:00:00 --pty -- bash
      dovetail run --gpus 2 -- python train.py < input > output
    """
    if pty and not os.isatty(0):
        raise InputError("--pty", "standard input is no terminal", "leave --pty out")
    spec = _spec(option_values, fields, env, pty=pty)
    client = client_of(home)
    terminal = LocalTerminal(0) if pty else None
    with signals_as_bytes() as signals:
        number = client.submit(spec)[0]
        _say(f"job {number} is submitted", terminal)
        try:
            end = _session(client, number, terminal, signals)
        finally:
            if terminal is not None:
                terminal.restore()
    return _conclude(client, number, end)


def _spec(
    option_values: dict[str, str | bool | None],
    fields: tuple[str, ...],
    env: tuple[str, ...],
    *,
    pty: bool,
) -> JobSpec:
    """Returns the job. Raises InputError, UsageError."""
    spec = spec_file_of((), option_values, fields, env).submissions[0].spec
    if spec.elastic:
        raise InputError("--gpus", "an interactive job has one number of GPUs", "as in --gpus 2")
    variables = dict(spec.environment)
    if pty and "TERM" in os.environ:
        variables.setdefault("TERM", os.environ["TERM"])
    try:
        return replace(
            spec,
            terminal=PTY if pty else PIPES,
            environment=tuple(variables.items()),
            preemptible=False,
            requeue=False,
            retries=0,
        )
    except ValueError as error:
        raise InputError("run", str(error), "use dovetail submit") from None


def _session(
    client: Client, number: int, terminal: LocalTerminal | None, signals: int
) -> TerminalExit:
    from dovetail.live.client.terminal_client import LocalStreams, TerminalClient

    files = LocalStreams(
        read=0,
        write=1,
        write_errors=2,
        signals=signals,
        window=None if terminal is None else terminal.size,
        attached=(lambda: None) if terminal is None else terminal.make_raw,
        notice=lambda text: _say(text, terminal),
    )
    return TerminalClient(client, number, files).run()


def _say(text: str, terminal: LocalTerminal | None) -> None:
    if terminal is None:
        click.echo(f"dovetail: {text}", err=True)
    else:
        terminal.say(text)


def _conclude(client: Client, number: int, end: TerminalExit) -> int:
    """Returns the exit code of the command, and says how the job ended if its code does not."""
    if end.stopped_by:
        _say(f"job {number} is cancelled", None)
        return 128 + end.stopped_by
    reply = end.reply
    if end.exit_code is not None and end.exit_code >= 0:
        return end.exit_code
    if reply is None:
        # A signal ended it: perhaps the time limit, or another command.
        reply = _ended(client, number)
    if reply is not None:
        detail = f": {reply.detail}" if reply.detail else ""
        _say(f"job {number} is {reply.state}{detail}", None)
    code = end.exit_code
    if code is None and reply is not None:
        code = reply.exit_code
    if code is None:
        return 1
    return code if code >= 0 else 128 - code


def _ended(client: Client, number: int) -> AttachReply | None:
    """Returns how a job ended, once it has; None if that is not known soon."""
    give_up_s = monotonic() + ENDED_WITHIN_S
    while monotonic() < give_up_s:
        try:
            states = client.states(number)
            if states[0].state not in ("RUNNING", "CONFIGURING", "COMPLETING", "PENDING"):
                return client.attach(number)[0]
        except (DovetailError, OSError):
            return None
        sleep(LOOK_S)
    return None
