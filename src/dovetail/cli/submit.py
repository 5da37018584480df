"""`dovetail submit`: submits a batch script, a YAML file or a command to the live cluster."""

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


COMMAND_KEY = "dovetail.cli.submit.command"
"""The key in click's context of the words after `--`."""


UNLIKE = ("--home", "--json", "--qos")
"""Options that are so short that many words look like them."""


class SubmitCommand(click.Command):
    """A click command that leaves the words after `--` to the job, even if they are options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the words before `--`. Raises InputError with advice for an option of sbatch."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[COMMAND_KEY] = tuple(args[at + 1 :])
        try:
            return super().parse_args(ctx, args[:at])
        except click.NoSuchOption as error:
            from dovetail.jobspec.sbatch_options import instead

            what, option = "submit has no such option", error.option_name
            near = [name for name in error.possibilities or () if name not in UNLIKE]
            raise InputError(option, what, instead(option, near)) from None


@click.command("submit", cls=SubmitCommand)
@click.argument("words", nargs=-1, metavar="[FILE [ARGUMENTS]...] [-- COMMAND...]")
@click.option("--gpus", "-G", help="GPUs, TYPE:GPUS, or a range for an elastic job, e.g. 1..4.")
@click.option(
    "--ntasks", "-n", help="Number of processes, which divide the GPUs among them. [default: 1]"
)
@click.option("--time", "-t", "time_limit", help="Time limit: minutes, 90s, 30m, 1:30:00, 2-12.")
@click.option("--name", "--job-name", "-J", "name", help="Name of the job.")
@click.option("--array", "-a", help="Task indices of an array job, e.g. 0-9, 1,3,5-7 or 0-99%4.")
@click.option("--dependency", "-d", "after", help="E.g. afterok:12 or afterany:12:13_2.")
@click.option("--begin", "-b", help="Earliest start, e.g. 2h, now+2hours or 16:00.")
@click.option("--output", "-o", help="Output file; %j is replaced by the job's number.")
@click.option("--chdir", "-D", "workdir", help="Working directory of the job.")
@click.option("--partition", "-p", "queue", help="Queue of the job.")
@click.option(
    "--topology", help="Level where all its GPUs meet: island, node, or rack? for a wish."
)
@click.option("--account", "-A", help="Account that the job is charged to.")
@click.option("--qos", "-q", help="Quality of service of the job.")
@click.option("--reservation", help="Reservation whose nodes the job uses.")
@click.option(
    "--container-image", metavar="IMAGE", help="Run it in a container: an image's name or path."
)
@click.option(
    "--container-mounts",
    metavar="SRC:DST[:ro],...",
    help="What of the node the container sees, besides the working directory.",
)
@click.option("--model", help="Model the job trains: a name of `dovetail models`, or your own.")
@click.option("--trains", is_flag=True, help="The program uses dovetail.train.")
@click.option(
    "--elastic",
    metavar="restart[:COST]",
    help="It has checkpoints of its own: restart it to change its GPUs. COST: e.g. 45s.",
)
@click.option("--shareable", is_flag=True, help="Allow another job on the same GPUs.")
@click.option("--hold", "-H", is_flag=True, help="Submit the job held; `dovetail release` ends it.")
@click.option("--set", "fields", multiple=True, help="FIELD=VALUE, for any field of a YAML spec.")
@click.option("--env", multiple=True, help="NAME=VALUE, or NAME to pass its value on.")
@click.option(
    "--wait", "-W", is_flag=True, help="Wait for the job to end; exit with 0 if it completed."
)
@click.option("--test-only", is_flag=True, help="Validate the job without submitting it.")
@click.option("--parsable", is_flag=True, help="Print only the job numbers.")
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
    **option_values: str | bool | None,
) -> int:
    """Submit a job: a batch script with #SBATCH lines, a YAML file (.yaml, .yml), or a command.

    The job runs as one process that sees all its GPUs, or with --ntasks N as N processes with the
    environment variables of torchrun. A range of GPUs is for programs that use dovetail.train:
    the first worker starts alone, the others once it has created its dovetail.train.Job. With
    --elastic restart it is for any other that goes on from its own checkpoint: one process per
    GPU, or torchrun once per node, gets SIGTERM and starts anew when the GPUs change.

    Options override the file. ARGUMENTS are passed to the script; write those that look like
    options after --. FILE - reads a script from standard input. Submitted jobs are on disk when
    the command returns.

    \b
    Example:
      dovetail submit train.sh --gpus 2 --time 2:00:00
      dovetail submit job.yaml --wait
      dovetail submit --gpus 1..4 -- python train.py
      dovetail submit --gpus 1..4 --elastic restart -- torchrun train.py
    """
    if parsable and as_json:
        raise InputError("--parsable", "--json prints the numbers already", "leave one out")
    spec_file = _spec_file(words, option_values, _fields(fields), _environment(env))
    client = _client_for(spec_file, home)
    numbers = () if test_only else client.submit(*spec_file.submissions)
    _print_warnings(spec_file)
    if not as_json:
        _print_submitted(spec_file, numbers, parsable=parsable)
    summary = {"jobs": numbers, "ignored": spec_file.ignored, "notes": spec_file.notes}
    try:
        ended = client.wait(*numbers) if wait and numbers else None
    except KeyboardInterrupt:
        if as_json:
            click.echo(json.dumps(summary))
        click.echo("\ndovetail: stopped waiting; the submitted jobs continue", err=True)
        return INTERRUPTED
    if as_json:
        from dovetail.live.server.protocol import json_values

        ends = {} if ended is None else {"ended": [json_values(job) for job in ended]}
        click.echo(json.dumps(summary | ends))
    elif not parsable:
        _print_ended(client, spec_file, ended or ())
    return int(any(job.state != "COMPLETED" for job in ended or ()))


def _print_warnings(spec_file: SpecFile) -> None:
    for line in spec_file.ignored:
        click.echo(f"ignored: {line}", err=True)
    for line in spec_file.notes:
        click.echo(f"note: {line}", err=True)


def _print_ended(client: Client, spec_file: SpecFile, ended: Sequence[JobState]) -> None:
    """Prints how the jobs ended, with the remark of the cluster on GPUs that a job did not use."""
    for job in ended:
        code = "" if job.exit_code is None else f" (exit code {job.exit_code})"
        click.echo(f"job {job.called} is {job.state}{code}")
    trains = any(submission.spec.trains for submission in spec_file.submissions)
    for job in ended if trains else ():
        detail = client.show(job.called).detail if job.state == "COMPLETED" else ""
        if detail:
            click.echo(f"job {job.called}: {detail}")


def _client_for(spec_file: SpecFile, home: Path) -> Client:
    """Returns the client of a cluster. Raises InputError for an output in the cluster's folder."""
    specs = [s.spec for s in spec_file.submissions if s.spec.output]
    if specs:
        from dovetail.live.store.job_output import check_output

        for spec in specs:
            check_output(f"job '{spec.name}'", spec, home.expanduser())
    return client_of(home)


def _print_submitted(spec_file: SpecFile, numbers: tuple[int, ...], *, parsable: bool) -> None:
    for number, submission in zip(numbers, spec_file.submissions, strict=False):
        tasks = f" ({len(submission.array)} tasks)" if submission.array else ""
        click.echo(str(number) if parsable else f"job {number} is submitted{tasks}")
    if not numbers:
        jobs = sum(len(submission.array) or 1 for submission in spec_file.submissions)
        click.echo(f"{counted(jobs, 'job')} can be read; nothing was submitted")


def _spec_file(
    words: tuple[str, ...],
    option_values: dict[str, str | bool | None],
    set_fields: dict[str, str],
    environment: dict[str, str],
) -> SpecFile:
    """Returns the jobs to submit, from FILE or from the command after `--`.

    The fields of `--set` override those of other options. Raises UsageError without a file and a
    command, and InputError.
    """
    from dovetail.jobspec.files import YAML_SUFFIXES, Submitter, read_command, read_spec

    context = click.get_current_context()
    command = context.meta[COMMAND_KEY]
    if not words and not command:
        raise click.UsageError("Missing FILE, or -- and a command")
    now = datetime.now().astimezone()
    overrides = _overrides(option_values, set_fields, now)
    options = {
        p.name: p.opts[0]
        for p in context.command.params
        if p.name and p.opts[0].startswith("--") and p.name not in set_fields
    }
    is_yaml = bool(words) and words[0].endswith(YAML_SUFFIXES)
    # Unless it says otherwise, a program that can resize uses dovetail.train. A YAML file says so.
    ranged = ".." in overrides.get("gpus", "") and not is_yaml
    submitter = Submitter(Path.cwd(), overrides, environment, os.environ, now, options, ranged)
    if words:
        path = Path("/dev/stdin" if words[0] == "-" else words[0])
        if not path.exists() and not path.suffix:
            mend = "write a command after --, as in: submit -- python x.py"
            raise InputError(words[0], "there is no such file", mend)
        spec_file = read_spec(path, submitter, (*words[1:], *command))
    else:
        spec_file = read_command(command, submitter)
    return _with_note(spec_file) if ranged else spec_file


def _with_note(spec_file: SpecFile) -> SpecFile:
    """Returns the jobs, with a note if a range of GPUs is specified for another kind of program."""
    spec = spec_file.submissions[0].spec
    if not spec.trains or "python" in spec.script + " ".join(spec.command):
        return spec_file
    note = (
        "a range of GPUs is for programs that use dovetail.train: any other program runs once, on"
        " one GPU, and its other GPUs stay idle (specify one number of GPUs)"
    )
    return replace(spec_file, notes=(*spec_file.notes, note))


def _overrides(
    option_values: dict[str, str | bool | None], set_fields: dict[str, str], now: datetime
) -> dict[str, str]:
    """Returns the fields of the command line, with Slurm's forms of options converted."""
    values = {name: value for name, value in option_values.items() if value or value == ""}
    fields = {name: "yes" if value is True else str(value) for name, value in values.items()}
    gpu_type, colon, gpus = fields.get("gpus", "").partition(":")
    if colon:
        fields |= {"gpus": gpus, "gpu_type": gpu_type}
    if "time_limit" in fields and "time_limit" not in set_fields:
        fields["time_limit"] = _limit(fields["time_limit"])
    fields |= set_fields
    if "begin" in fields:
        fields["begin"] = _begin(fields["begin"], now)
    return fields


def _limit(text: str) -> str:
    """Returns a time limit of Slurm or with units as a field value. Raises InputError."""
    from dovetail.jobspec.draft import parsing
    from dovetail.jobspec.values import limit_seconds

    with parsing("command line", "--time"):
        limit_s = limit_seconds(text)
    return "unlimited" if limit_s == float("inf") else f"{limit_s:.3f}s"


def _begin(text: str, now: datetime) -> str:
    """Returns a time of day as a duration from now, a duration as it is. Raises InputError."""
    from dovetail.jobspec.values import seconds_until, span

    with suppress(ValueError):
        span(text)
        return text
    try:
        return f"{seconds_until(text, now):.3f}s"
    except ValueError as error:
        raise InputError("--begin", str(error), "or a duration, as in 2h") from None


def _fields(assignments: tuple[str, ...]) -> dict[str, str]:
    """Returns the fields set by `--set`. Raises InputError."""
    fields = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise InputError(f"--set {assignment}", "it has no value", "as in --set retries=0")
        fields[name.replace("-", "_")] = value
    return fields


def _environment(assignments: tuple[str, ...]) -> dict[str, str]:
    """Returns the variables set by `--env`. Raises InputError."""
    variables = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals and name not in os.environ:
            raise InputError(f"--env {name}", "the variable is not set", "specify NAME=VALUE")
        variables[name] = value if equals else os.environ[name]
    return variables
