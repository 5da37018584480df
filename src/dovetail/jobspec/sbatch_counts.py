"""Computes GPUs, tasks, CPUs and memory of a whole job from the options of its batch script.

The script runs once, on the first node of the job. With several tasks it runs once per task, as
there is no `srun` to start them from within.
"""

from __future__ import annotations

import re

from dovetail.core.errors import InputError
from dovetail.jobspec import values as read
from dovetail.jobspec.draft import JobDraft, parsing
from dovetail.jobspec.sbatch_lines import BatchScript
from dovetail.jobspec.values import Gpus

MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")
CPUS = ("cpus-per-task", "cpus-per-gpu")
TASKS = ("ntasks", "ntasks-per-node")


def fill_counts(script: BatchScript, draft: JobDraft) -> None:
    """Sets GPUs, tasks, CPUs and memory of a job. Raises InputError."""
    for options in (MEMORY, CPUS):
        conflicting = [f"--{option}" for option in options if option in script.options]
        if len(conflicting) > 1:
            where = script.where(*(o for o in reversed(options) if o in script.options))
            raise InputError(
                where, f"{' and '.join(conflicting)} are mutually exclusive", "specify one of them"
            )
    nodes = _nodes(script)
    tasks = script.at_least_one("ntasks", 0)
    tasks = tasks or script.at_least_one("ntasks-per-node", 0) * nodes
    gpus = _gpus(script, draft, nodes, tasks)
    where = script.where("gpus", "gpus-per-node", "gres", "gpus-per-task", "ntasks", "nodes")
    draft.put("gpus", Gpus(gpus, gpus, gpus), where)
    if tasks:
        called = "--ntasks" if "ntasks" in script.options else "--ntasks-per-node"
        draft.put("ntasks", tasks, script.where(*TASKS), called=called)
    _fill_host(script, draft, gpus=gpus, tasks=max(1, tasks), nodes=nodes)


def _gpus(script: BatchScript, draft: JobDraft, nodes: int, tasks: int) -> int:
    counts = dict[str, int]()
    for option, times in (
        ("gpus", 1), ("gpus-per-node", nodes), ("gres", nodes), ("gpus-per-task", max(tasks, 1)),
    ):  # fmt: skip
        if option in script.options:
            kind, gpus = _typed_count(script, option)
            counts[option] = gpus * times
            if kind:
                draft.parse("gpu_type", kind, script.where(option), called=f"--{option}")
    _constrain(script, draft)
    if len(set(counts.values())) > 1:
        requests = ", ".join(f"--{o} means {n}" for o, n in counts.items())
        raise InputError(
            script.where(*reversed(counts)),
            f"the options request different numbers of GPUs: {requests}",
            "make them equal, or omit one",
        )
    # Every job needs a GPU. Without a request, each task or each node gets one.
    option, gpus = next(iter(counts.items()), ("nodes", max(nodes, tasks)))
    if gpus < 1:
        raise InputError(script.where(option), f"--{option}: every job needs a GPU")
    return gpus


def _constrain(script: BatchScript, draft: JobDraft) -> None:
    """Sets the types of GPU of `a100|v100` or `[a100|v100]`; other constraints are refused."""
    if "constraint" not in script.options:
        return
    where, text = script.where("constraint"), script.value("constraint")
    types = text.removeprefix("[").removesuffix("]")
    if not re.fullmatch(r"[\w.-]+(\|[\w.-]+)*", types):
        why = f"--constraint={text} is not supported"
        raise InputError(where, why, "list types of GPU, as in a100|v100")
    requested = draft.value("gpu_type", "")
    if requested not in ("", types):
        why = f"--constraint={text} contradicts GPUs of type {requested}"
        raise InputError(where, why, "specify the type once")
    draft.parse("gpu_type", types, where, called="--constraint")


def _nodes(script: BatchScript) -> int:
    text = script.value("nodes", "1")
    least, _, most = text.partition("-")
    if not re.fullmatch(r"\d{1,9}", least, re.ASCII) or most not in ("", least) or not int(least):
        raise InputError(
            script.where("nodes"),
            "--nodes must be one number of 1 or more",
            "the policy chooses the nodes; specify the number of GPUs",
        )
    return int(least)


def _typed_count(script: BatchScript, option: str) -> tuple[str, int]:
    """Returns the type and the count of `2`, `a100:2`, or of --gres `gpu:2`, `gpu:a100:2`."""
    text, where = script.value(option), script.where(option)
    parts = text.removeprefix("gres:").removeprefix("gres/").split(":")
    if option == "gres":
        if parts[0] != "gpu" or "," in text:
            raise InputError(where, f"--gres={text} is not supported", "as in gpu:2 or gpu:a100:2")
        parts = parts[1:] or ["1"]
    kind, count = (parts[0], parts[1]) if len(parts) == 2 else ("", parts[0])
    if option == "gres" and len(parts) == 1 and not count.isdecimal():
        kind, count = parts[0], "1"
    if len(parts) > 2 or not re.fullmatch(r"\d{1,9}", count, re.ASCII):
        raise InputError(where, f"--{option}={text} is not a number of GPUs", "as in 2 or a100:2")
    return kind, int(count)


def _fill_host(script: BatchScript, draft: JobDraft, *, gpus: int, tasks: int, nodes: int) -> None:
    cpus = script.at_least_one("cpus-per-task", 0) * tasks
    cpus = cpus or script.at_least_one("cpus-per-gpu", 0) * gpus
    if cpus:
        draft.put("cpus", float(cpus), script.where(*CPUS))
    for option, times in (("mem", nodes), ("mem-per-cpu", cpus), ("mem-per-gpu", gpus)):
        if option not in script.options:
            continue
        with parsing(script.where(option), f"--{option}"):
            size = read.size_bytes(script.value(option), unit="M")
        if option == "mem-per-cpu" and not cpus:
            raise InputError(script.where(option), "--mem-per-cpu needs --cpus-per-task")
        if not size:
            script.ignore(option, "0 means all memory of a node in Slurm; here it requests none")
        draft.put("memory", size * times, script.where(option), called=f"--{option}")
    if "nodes" in script.options and nodes == 1:
        if gpus > 1:
            draft.put("topology", "node", script.where("nodes"), called="--nodes")
        script.ignored[:] = [line for line in script.ignored if " --nodes " not in line]


def settle_tasks(script: BatchScript, draft: JobDraft) -> None:
    """Rejects a script that calls srun, and notes how often a script with several tasks runs.

    Call it after all lines of the script are read. A program that uses dovetail.train ignores the
    number of tasks. Raises InputError.
    """
    starter, where = script.starter
    tasks = draft.value("ntasks", 1)
    if draft.value("trains", False):
        draft.entries.pop("ntasks", None)
        tasks = 1
    if starter == "srun":
        raise InputError(
            where,
            "srun is not supported: there is no Slurm to start the tasks of a script",
            "remove srun: the script runs once, or with #SBATCH --ntasks N as N parallel tasks",
        )
    if tasks > 1 and starter:
        what = f"each of the {tasks} tasks calls {starter}: remove it, or request one task"
        script.note(where, what)
    elif tasks > 1:
        what = (
            f"the script runs {tasks} times in parallel, once for each task (sbatch runs it once)"
        )
        script.note(script.where(*TASKS), what)
