"""`dovetail cluster`: turns the files of a Slurm site into a cluster file and a policy."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dovetail.cli.options import json_option
from dovetail.cli.trace_files import FILE
from dovetail.core.errors import InputError


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
@click.option("-o", "--out", type=FILE, required=True, help="Cluster file to write (.toml).")
@json_option
def cluster(
    slurm_conf: Path, associations: Path | None, qos: Path | None, out: Path, as_json: bool
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
    from dovetail.traces.slurm_site import read_sacctmgr, site_of

    conf = read_slurm_conf(str(slurm_conf), _text(slurm_conf))
    accounts, kinds = [], []
    if associations is not None:
        needs = ("Account", "User", "Share")
        accounts = read_sacctmgr(str(associations), _text(associations), needs)
    if qos is not None:
        kinds = read_sacctmgr(str(qos), _text(qos), ("Name", "Priority"))
    site = site_of(conf, accounts, kinds)
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
    if site.left_out:
        click.echo("left out: " + "; ".join(site.left_out))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"cannot be read: {error}") from None
