"""`dovetail cluster`: turns the files of a Slurm site into a cluster file and a policy."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import click

from dovetail.cli.options import json_option, refuse_unused
from dovetail.cli.trace_files import FILE
from dovetail.core.errors import InputError, nearest


@click.command()
@click.argument("slurm_conf", type=FILE)
@click.option(
    "--associations",
    type=FILE,
    help="Output of sacctmgr -P show assoc: accounts, users and shares.",
)
@click.option(
    "--qos", type=FILE, help="Output of sacctmgr -P show qos: priorities, limits, preemption."
)
@click.option(
    "--reservations", type=FILE, help="Output of scontrol show reservation: also maintenance."
)
@click.option(
    "--timezone",
    default="",
    help="Time zone of the reservations, e.g. Europe/Berlin. [default: UTC]",
)
@click.option(
    "--epoch",
    default="",
    help="Date of second 0 of the trace, for reservations; of an imported log the Monday 00:00 "
    "before its first job.",
)
@click.option("-o", "--out", type=FILE, required=True, help="Cluster file to write (.toml).")
@json_option
def cluster(
    slurm_conf: Path,
    associations: Path | None,
    qos: Path | None,
    reservations: Path | None,
    timezone: str,
    epoch: str,
    out: Path,
    as_json: bool,
) -> None:
    """Turn a slurm.conf into a cluster file and the policy that Slurm runs.

    \b
    Example:
      sacctmgr -P show assoc format=Account,User,ParentName,Share,GrpTRES,GrpJobs,\\
        MaxJobs,MaxTRES,MaxWall > assoc.txt
      sacctmgr -P show qos > qos.txt
      dovetail cluster /etc/slurm/slurm.conf --associations assoc.txt --qos qos.txt \\
        -o site.toml
    """
    from dovetail.traces.output_file import write_output
    from dovetail.traces.slurm_conf import read_slurm_conf
    from dovetail.traces.slurm_reservations import read_reservations
    from dovetail.traces.slurm_site import read_sacctmgr, site_of

    conf = read_slurm_conf(str(slurm_conf), _text(slurm_conf))
    accounts, kinds = [], []
    if associations is not None:
        needs = ("Account", "User", "Share")
        accounts = read_sacctmgr(str(associations), _text(associations), needs)
    if qos is not None:
        kinds = read_sacctmgr(str(qos), _text(qos), ("Name", "Priority"))
    zone = _zone(timezone)
    refuse_unused("--timezone", "--reservations or --epoch", used=bool(reservations or epoch))
    set_aside = (
        read_reservations(str(reservations), _text(reservations), zone) if reservations else []
    )
    site = site_of(conf, accounts, kinds, set_aside, _epoch(epoch, zone))
    head = f"# From {slurm_conf.name}. The scheduler of the site: --policy {site.policy}\n\n"
    write_output(out, lambda file: file.write((head + site.cluster).encode()))
    if as_json:
        left_out = list(site.left_out)
        click.echo(json.dumps({"cluster": str(out), "policy": site.policy, "left_out": left_out}))
        return
    gpus = sum(node.gpus for node in conf.nodes)
    click.echo(f"written: {out} ({gpus} GPUs, {len(conf.partitions)} partitions)")
    click.echo(f"policy: {site.policy}")
    if associations is None:
        click.echo("no associations: every user has one share; give --associations")
    if set_aside and not epoch:
        click.echo("reservations are dates: a simulation needs --epoch, the date of its second 0")
    if set_aside and not timezone:
        click.echo("no --timezone: the times of reservations are read as UTC")
    if site.left_out:
        click.echo("left out: " + "; ".join(site.left_out))


def _zone(name: str) -> ZoneInfo:
    """Returns a time zone, by default UTC. Raises InputError."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        known = nearest(name, available_timezones())
        raise InputError(f"--timezone '{name}'", "is unknown", known) from None


def _epoch(text: str, zone: ZoneInfo) -> str:
    """Returns a date with its offset from UTC; one without is of the zone. Raises InputError."""
    if not text:
        return ""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        mend = "as in 2026-01-05, or 2026-01-05T00:00:00+01:00"
        raise InputError(f"--epoch '{text}'", "is no date", mend) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).isoformat()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"cannot be read: {error}") from None
