"""`dovetail submit`: a batch script, a YAML file or a command becomes jobs of the live cluster."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.cli.cluster_options import INTERRUPTED, asks_a_cluster, client_of, counted
from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.jobspec.files import SpecFile
    from dovetail.live.client.client import Client
    from dovetail.live.server.messages.tracking import JobState


BEHIND = "dovetail.cli.submit.behind"


class SubmitCommand(click.Command):
    """Keeps apart what stands behind `--`: it is the job's own, whatever it looks like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses what stands before `--`. Says what to do for an option that only sbatch has."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[BEHIND] = tuple(args[at + 1 :])
        try:
            return super().parse_args(ctx, args[:at])
        except click.NoSuchOption as error:
            from dovetail.jobspec.sbatch_options import instead

            what, word = "submit has no such option", error.option_name
            near = [name for name in error.possibilities or () if name not in ("--home", "--json")]
            raise InputError(word, what, instead(word, near)) from None


@click.command("submit", cls=SubmitCommand)
@click.argument("words", nargs=-1, metavar="[FILE [ARGUMENTS]...] [-- COMMAND...]")
@click.option("--gpus", "-G", help="GPUs, TYPE:GPUS, or a range for an elastic job, as in 1..4.")
@click.option(
    "--ntasks", "-n", help="Run it as so many processes, each with its part of the GPUs; usually 1."
)
@click.option("--time", "-t", "time_limit", help="Minutes, or as in 90s, 30m, 1:30:00, 2-12.")
@click.option("--name", "--job-name", "-J", "name", help="The job's name.")
@click.option("--array", "-a", help="Indices of an array, as in 0-9, 1,3,5-7 or 0-99%4.")
@click.option("--dependency", "-d", "after", help="As in afterok:12 or afterany:12:13_2.")
@click.option("--begin", "-b", help="Not before, as in 2h, now+2hours or 16:00.")
@click.option("--output", "-o", help="The file of its output; %j stands for its number.")
@click.option("--chdir", "-D", "workdir", help="Where it runs.")
@click.option("--partition", "-p", "queue", help="The queue it belongs to.")
@click.option("--model", help="What it trains: a name of `dovetail models`, or your own.")
@click.option("--trains", is_flag=True, help="It is written with dovetail.train.")
@click.option("--shareable", is_flag=True, help="Another job may use its GPUs beside it.")
@click.option("--hold", "-H", is_flag=True, help="Do not start it before it is released.")
@click.option("--set", "fields", multiple=True, help="FIELD=VALUE, any field of a YAML spec.")
@click.option("--env", multiple=True, help="NAME=VALUE, or NAME as it is here.")
@click.option(
    "--wait", "-W", is_flag=True, help="Return when it is over; exit code 0 if it completed."
)
@click.option("--test-only", is_flag=True, help="Read and check it; submit nothing.")
@click.option("--parsable", is_flag=True, help="Print numbers of jobs and nothing else.")
@asks_a_cluster
def submit(
    home: Path,
    as_json: bool,
    words: tuple[str, ...],
    fields: tuple[str, ...],
    env: tuple[str, ...],
    wait: bool,
    test_only: bool,
    parsable: bool,
    **given: str | bool | None,
) -> int:
    """Submit a job: a batch script with #SBATCH lines, a YAML file (.yaml, .yml), or a command.

    It runs once, with all its GPUs visible; with --ntasks N as N processes that find torchrun's
    variables. With a range of GPUs, of which a program written with dovetail.train makes use, one
    worker is started first, and others when that one has made its dovetail.train.Job.

    What is given here goes before what the file says. ARGUMENTS go to the script (those that look
    like options behind --). A FILE of - is a script on standard input. When this returns, the jobs
    are on disk and will not be lost.

    \b
    Example:
      dovetail submit train.sh --gpus 2 --time 2:00:00
      dovetail submit job.yaml --wait
      dovetail submit --gpus 1..4 -- python train.py
    """
    from dovetail.live.server.protocol import json_values

    said = {k: v for k, v in given.items() if v is not None and v is not False}
    set_by_name = _fields(fields)
    words_said = {k: "yes" if v is True else str(v) for k, v in said.items()}
    overrides = _typed(words_said) | set_by_name
    options = {name: word for name, word in _options().items() if name not in set_by_name}
    behind = click.get_current_context().meta[BEHIND]
    if not words and not behind:
        raise click.UsageError("Missing FILE, or -- and a command")
    read = _read(words, behind, overrides, options, _environment(env))
    client = _client_for(read, home)
    numbers = () if test_only else client.submit(*read.submissions)
    for line in read.ignored:
        click.echo(f"ignored: {line}", err=True)
    for line in read.notes:
        click.echo(f"note: {line}", err=True)
    if not as_json:
        _say_taken(read, numbers, parsable=parsable)
    taken = {"jobs": numbers, "ignored": read.ignored, "notes": read.notes}
    try:
        ended = client.wait(*numbers) if wait and numbers else None
    except KeyboardInterrupt:
        if as_json:
            click.echo(json.dumps(taken))
        click.echo("\ndovetail: stopped waiting; what was submitted goes on", err=True)
        return INTERRUPTED
    if as_json:
        ends = {} if ended is None else {"ended": [json_values(job) for job in ended]}
        click.echo(json.dumps(taken | ends))
    elif not parsable:
        _say_ended(client, read, ended or ())
    return int(any(job.state != "COMPLETED" for job in ended or ()))


def _say_ended(client: Client, read: SpecFile, ended: Sequence[JobState]) -> None:
    """Says how jobs ended, and of those that completed if they made no use of GPUs they had."""
    for job in ended:
        code = "" if job.exit_code is None else f" (exit code {job.exit_code})"
        click.echo(f"job {job.called} is {job.state}{code}")
    trains = any(submission.spec.trains for submission in read.submissions)
    for job in ended if trains else ():
        detail = client.show(job.called).detail if job.state == "COMPLETED" else ""
        if detail:
            click.echo(f"job {job.called}: {detail}")


def _client_for(read: SpecFile, home: Path) -> Client:
    """Returns the client of a cluster. Raises InputError for an output in the cluster's folder."""
    chosen = [s.spec for s in read.submissions if s.spec.output]
    if chosen:
        from dovetail.live.store.job_output import check_output

        for spec in chosen:
            check_output(f"job '{spec.name}'", spec, home.expanduser())
    return client_of(home)


def _say_taken(read: SpecFile, numbers: tuple[int, ...], *, parsable: bool) -> None:
    for number, submission in zip(numbers, read.submissions, strict=False):
        tasks = f" ({len(submission.array)} tasks)" if submission.array else ""
        click.echo(str(number) if parsable else f"job {number} is submitted{tasks}")
    if not numbers:
        jobs = sum(len(submission.array) or 1 for submission in read.submissions)
        click.echo(f"{counted(jobs, 'job')} can be read; nothing was submitted")


def _read(
    words: tuple[str, ...],
    behind: tuple[str, ...],
    overrides: dict[str, str],
    options: dict[str, str],
    environment: dict[str, str],
) -> SpecFile:
    """Returns the jobs of a file, or the job that is a command."""
    from dovetail.jobspec.files import YAML_SUFFIXES, Submitter, read_command, read_spec

    is_yaml = bool(words) and words[0].endswith(YAML_SUFFIXES)
    ranged = ".." in overrides.get("gpus", "") and not is_yaml and "paced" not in overrides
    if ranged:
        # Nobody asks for a range for another kind of program; a YAML file says it itself.
        overrides = {"trains": "yes", **overrides}
    now = datetime.now().astimezone()
    if "time_limit" in options:
        overrides = _with_limit(overrides)
    if "begin" in overrides:
        overrides = {**overrides, "begin": _begin(overrides["begin"], now)}
    by = Submitter(Path.cwd(), overrides, environment, os.environ, now, options)
    if not words:
        read = read_command(behind, by)
        return _with_note(read) if ranged else read
    path = Path("/dev/stdin" if words[0] == "-" else words[0])
    if not path.exists() and not path.suffix:
        what = "there is no such file"
        raise InputError(words[0], what, "a command goes behind --, as in: submit -- python x.py")
    read = read_spec(path, by, (*words[1:], *behind))
    return _with_note(read) if ranged else read


def _with_note(read: SpecFile) -> SpecFile:
    """Returns what was read, with a word to those who may mean another thing by a range of GPUs."""
    spec = read.submissions[0].spec
    if "python" in spec.script + " ".join(spec.command):
        return read
    note = (
        "a range of GPUs is for programs that are written with dovetail.train: another one runs"
        " once, on one GPU, and the others that it gets stand idle (say one number of GPUs)"
    )
    return replace(read, notes=(*read.notes, note))


def _typed(overrides: dict[str, str]) -> dict[str, str]:
    """Returns the fields with GPUs and their type apart, as Slurm has them together: `a100:2`."""
    kind, colon, gpus = overrides.get("gpus", "").partition(":")
    return {**overrides, "gpus": gpus, "gpu_type": kind} if colon else overrides


def _options() -> dict[str, str]:
    """Returns the options of the command line by the fields they set."""
    command = click.get_current_context().command
    return {p.name: p.opts[0] for p in command.params if p.name and p.opts[0].startswith("--")}


def _with_limit(overrides: dict[str, str]) -> dict[str, str]:
    """Returns the fields with the time of --time in seconds. Raises InputError."""
    from dovetail.jobspec.values import limit_seconds

    if "time_limit" not in overrides:
        return overrides
    try:
        limit_s = limit_seconds(overrides["time_limit"])
    except ValueError as error:
        raise InputError("command line", f"--time: {error}") from None
    said = "unlimited" if limit_s == float("inf") else f"{limit_s:.3f}s"
    return {**overrides, "time_limit": said}


def _begin(text: str, now: datetime) -> str:
    """Returns a moment as a span of time from now; a span as it is. Raises InputError."""
    from dovetail.jobspec.moment import seconds_until
    from dovetail.jobspec.values import span

    with suppress(ValueError):
        span(text)
        return text
    try:
        return f"{seconds_until(text, now):.3f}s"
    except ValueError as error:
        raise InputError("--begin", str(error), "or a span of time, as in 2h") from None


def _fields(given: tuple[str, ...]) -> dict[str, str]:
    """Returns the fields set by `--set`. Raises InputError."""
    found = {}
    for words in given:
        name, equals, value = words.partition("=")
        if not equals:
            raise InputError(f"--set {words}", "it has no value", "as in --set retries=0")
        found[name.replace("-", "_")] = value
    return found


def _environment(given: tuple[str, ...]) -> dict[str, str]:
    """Returns the variables set by `--env`. Raises InputError."""
    found = {}
    for words in given:
        name, equals, value = words.partition("=")
        if not equals and name not in os.environ:
            raise InputError(f"--env {name}", "it is not set here", "give NAME=VALUE")
        found[name] = value if equals else os.environ[name]
    return found
