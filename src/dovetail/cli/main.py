"""The entry point: dispatches to a command, and maps exceptions to one line and an exit code.

Exit codes: 0 success, 1 failure, 2 bad usage or bad input, with the location and the fix. A
command is imported only when it is called, so that `--help` and small runs start at once.
"""

from __future__ import annotations

import io
import signal
import sys
from importlib import import_module

import click

from dovetail.core.errors import DovetailError, InputError
from dovetail.version import __version__

COMMANDS = {
    "simulate": ("simulate", "Simulate one policy on a trace."),
    "compare": ("compare", "Compare several policies on a trace."),
    "whatif": ("whatif", "Try other nodes, limits, quotas and policies; find the cluster to buy."),
    "chargeback": ("chargeback", "Say who held how many GPU-hours, by month, and what they pay."),
    "bound": ("bound", "Print a lower bound on the mean JCT of any schedule."),
    "policies": ("policies", "List the policies and their parameters."),
    "models": ("models", "List the models of the model zoo."),
    "profile": ("profile", "Profile a training script."),
    "cluster": ("cluster", "Turn a slurm.conf into a cluster file and a policy."),
    "trace": ("trace", "Import, describe and generate traces."),
    "replay": ("replay", "Replay an event log and compare decisions."),
    "shadow": ("shadow", "Show what a policy would do on a cluster that Slurm runs."),
    "up": ("up", "Start a live cluster on this machine."),
    "down": ("up", "Stop the controller of the live cluster."),
    "backup": ("backup", "Write a backup of the live cluster to a file."),
    "restore": ("backup", "Make the folder of a cluster from a backup."),
    "submit": ("submit", "Submit jobs to the live cluster."),
    "run": ("run", "Run a shell or a command as an interactive job."),
    "ls": ("jobs", "List the jobs of the live cluster."),
    "show": ("jobs", "Show the details of one job."),
    "logs": ("jobs", "Print the output of a job."),
    "why": ("jobs", "Explain the state of a job."),
    "top": ("top", "Monitor the live cluster."),
    "cancel": ("job_changes", "Cancel jobs."),
    "requeue": ("job_changes", "Requeue jobs."),
    "hold": ("job_changes", "Hold pending jobs in the queue."),
    "release": ("job_changes", "Release held jobs."),
    "nodes": ("top", "List the nodes and the jobs on their GPUs."),
    "tenants": ("top", "List queues, accounts and users, and what each holds and used."),
    "drain": ("top", "Stop placing jobs on a node."),
    "history": ("history", "Show or export the history of the jobs."),
    "agent": ("agent", "Run the agent of this machine for a controller elsewhere."),
    "demo": ("compare", "Compare eight policies on a generated trace."),
}
"""The module in this package that has each command under its name, and the summary."""

HIDDEN = {"local-agents": ("local_agents", "Run the agents of all nodes of an engine.")}
"""Internal commands, which `--help` does not list."""

OTHER_SCHEDULERS = {
    "squeue": "dovetail ls",
    "sinfo": "dovetail nodes",
    "sshare": "dovetail tenants",
    "sacct": "dovetail history",
    "scancel": "dovetail cancel JOB",
    "sbatch": "dovetail submit SCRIPT",
    "srun": "dovetail run -- COMMAND, or with --pty",
    "salloc": "dovetail run --pty -- bash",
    "scontrol": "dovetail show JOB",
    "sprio": "dovetail why JOB",
    "sstat": "dovetail top",
    "qstat": "dovetail ls",
    "qsub": "dovetail submit SCRIPT",
    "qdel": "dovetail cancel JOB",
    "bjobs": "dovetail ls",
    "bsub": "dovetail submit SCRIPT",
    "bkill": "dovetail cancel JOB",
}
"""The equivalent of each command of Slurm, PBS and LSF."""

MOVED = {
    "reproduce": "run `python -m papers PAPER` in a checkout of Dovetail instead",
}
"""Commands of earlier versions, and what to do instead."""


class LazyGroup(click.Group):
    """A click group that imports a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the command of a name, None for an unknown name."""
        entry = COMMANDS.get(cmd_name) or HIDDEN.get(cmd_name)
        if entry is None:
            return None
        module = import_module(f"dovetail.cli.{entry[0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command to run; for a command of Slurm, PBS or LSF, suggests ours."""
        if args and args[0] in OTHER_SCHEDULERS:
            raise click.UsageError(f"{args[0]} is `{OTHER_SCHEDULERS[args[0]]}`", ctx)
        if args and args[0] in MOVED:
            raise click.ClickException(f"'{args[0]}' is no longer a command: {MOVED[args[0]]}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dovetail")
def cli() -> None:
    """Schedule deep-learning training jobs on a shared GPU cluster.

    \b
    Example:
      dovetail trace generate philly-like --cluster 32x8 --load 0.9 -o month.csv
      dovetail compare month.csv --policies fifo,sjf,srtf --cluster 32x8 -o report
    """


def main() -> None:
    """Runs the command line and exits with its code."""
    # SIGTERM, which batch systems send, must clean up like an interrupt does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A table must not fail for a dash that a terminal of the C locale cannot show.
            stream.reconfigure(errors="replace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Returns the exit code of one command line."""
    return run_command(cli, arguments, "dovetail")


def run_command(command: click.Command, arguments: list[str], program: str) -> int:
    """Returns the exit code of a command line of any program; its errors take one line."""
    try:
        result = command.main(arguments, prog_name=program, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except InputError as error:
        message, code = str(error), 2
    except click.UsageError as error:
        message, code = _usage(error, arguments, program), 2
    except click.ClickException as error:
        message, code = error.format_message(), 2
    except (click.Abort, KeyboardInterrupt):
        message, code = "stopped", 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except OSError as error:
        message, code = f"{error.filename or 'output'}: {error.strerror or error}", 2
    except MemoryError:
        message, code = "out of memory", 1
    except DovetailError as error:
        message, code = str(error), 1
    click.echo(f"{program}: {message}", err=True)
    return code


def _usage(error: click.UsageError, arguments: list[str], program: str) -> str:
    message = error.format_message().rstrip(".")
    if message.startswith("No such command") and arguments:
        import difflib

        close = difflib.get_close_matches(arguments[0], COMMANDS, n=1)
        if close and "did you mean" not in message.lower():
            message += f" (did you mean '{close[0]}'?)"
    where = error.ctx.command_path if error.ctx is not None else program
    return f"{message}; see '{where} --help'"
