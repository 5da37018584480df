"""The options of Slurm's `sbatch`: supported, ignored or rejected, with the alternative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SHORT = {
    "J": "job-name", "n": "ntasks", "N": "nodes", "G": "gpus", "t": "time", "a": "array",
    "d": "dependency", "o": "output", "e": "error", "D": "chdir", "p": "partition", "c":
    "cpus-per-task", "H": "hold", "A": "account", "q": "qos", "C": "constraint", "w": "nodelist",
    "x": "exclude", "L": "licenses", "k": "no-kill", "s": "oversubscribe", "b": "begin",
    "i": "input", "m": "distribution", "M": "clusters", "Q": "quiet", "v": "verbose", "S":
    "core-spec", "B": "extra-node-info", "F": "nodefile", "O": "overcommit", "W": "wait",
    "I": "immediate",
}  # fmt: skip
"""Short names of options."""
ALIAS = {
    "tasks-per-node": "ntasks-per-node", "workdir": "chdir", "share": "oversubscribe",
    "mem_bind": "mem-bind", "cpu_bind": "cpu-bind", "gid": "uid",
}  # fmt: skip
"""Alternative names of options, most of them deprecated."""

COUNTED = (
    "ntasks", "ntasks-per-node", "nodes", "gpus", "gpus-per-node", "gpus-per-task", "gres",
    "cpus-per-task", "cpus-per-gpu", "mem", "mem-per-cpu", "mem-per-gpu", "constraint",
)  # fmt: skip
"""Options that together determine GPUs and their type, tasks, CPUs and memory."""
DIRECT = {
    "job-name": "name", "array": "array", "output": "output", "chdir": "workdir",
    "partition": "queue", "account": "account", "qos": "qos", "reservation": "reservation",
    "dependency": "after", "priority": "priority",
    "kill-on-invalid-dep": "kill_on_invalid_dep", "container-image": "container_image",
    "container-mounts": "container_mounts",
}  # fmt: skip
"""Options with the same values as one of our fields; those of containers are Pyxis's."""
FLAGS = {
    "hold": ("hold", "yes"), "requeue": ("requeue", "yes"), "no-requeue": ("requeue", "no"),
    "exclusive": ("shareable", "no"), "oversubscribe": ("shareable", "yes"),
}  # fmt: skip
"""Options without a value that set one of our fields."""
OTHER = ("time", "begin", "deadline", "signal", "export", "nice", "error")

IGNORED: Mapping[str, str] = {
    **dict.fromkeys(("mail-type", "mail-user"), "no mail is sent"),
    "wckey": "use is not counted by key; name an account",
    "comment": "comments are not stored",
    **dict.fromkeys(
        ("cpu-bind", "gpu-bind", "mem-bind", "hint", "distribution", "threads-per-core",
         "ntasks-per-core", "ntasks-per-socket", "cores-per-socket", "sockets-per-node",
         "accel-bind", "core-spec", "thread-spec", "overcommit", "gres-flags"),
        "processes are not bound",
    ),
    **dict.fromkeys(("cpu-freq", "gpu-freq", "power"), "clocks are not set"),
    **dict.fromkeys(("profile", "acctg-freq"), "nothing is sampled"),
    **dict.fromkeys(("reboot", "delay-boot", "wait-all-nodes"), "nodes are not booted"),
    **dict.fromkeys(("switches", "spread-job", "contiguous", "use-min-nodes"),
                    "the policy chooses the nodes"),
    **dict.fromkeys(("parsable", "quiet", "verbose"), "it changes only the output of sbatch"),
    **dict.fromkeys(("get-user-env", "export-file", "propagate"), "no environment is copied"),
    "open-mode": "output is always appended",
    "ignore-pbs": "no other directives are read",
    "container-env": "variables of the job go before those of the image",
    "container-writable": "a container can always be written to; what is written is lost",
    **dict.fromkeys(("no-container-entrypoint", "no-container-remap-root"),
                    "the command runs without the entry point, as the user of the job"),
    "no-kill": "a job continues without a lost node if it can",
    "nodes": "the policy chooses the nodes",
}  # fmt: skip
"""Options without effect, with the reason; each takes a value unless it is in `BARE`."""
BARE = frozenset(
    {*FLAGS, "parsable", "quiet", "verbose", "no-kill", "contiguous", "spread-job", "reboot",
     "use-min-nodes", "overcommit", "get-user-env", "ignore-pbs", "nice",
     "container-writable", "no-container-entrypoint", "no-container-remap-root",
     "container-mount-home", "no-container-mount-home", "container-remap-root",
     "container-entrypoint", "container-readonly"}
)  # fmt: skip
"""Options whose value is optional."""
NO_VALUE = ("hold", "requeue", "no-requeue", "oversubscribe")
"""Options that take no value."""
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("nodelist", "exclude", "nodefile", "prefer",
                     "clusters", "cluster-constraint", "batch", "extra-node-info", "mincpus",
                     "gpus-per-socket"),
                    "the policy chooses the nodes; specify a GPU type with --gpus=TYPE:N"),
    "time-min": "time limits are not shortened; specify the shortest with --time",
    "licenses": "licenses are not counted; --array=0-9%2 limits how many tasks run at once",
    "wrap": "pass the command to dovetail submit, after --",
    "input": "jobs have no standard input; read the file in the script",
    **dict.fromkeys(("container", "image", "oci"),
                    "name an image, as in --container-image=docker.io/library/python:3.11"),
    "container-workdir": "--chdir is mounted in the container, and the program begins there",
    **dict.fromkeys(("container-name", "container-save", "container-id"),
                    "a container ends with its job; build the image before"),
    **dict.fromkeys(("container-mount-home", "no-container-mount-home"),
                    "mount what the job needs, as in --container-mounts=/home/me:/home/me"),
    **dict.fromkeys(("container-remap-root", "container-entrypoint", "container-readonly"),
                    "the command runs without the entry point, as the user of the job"),
    **dict.fromkeys(("tmp", "bb", "bbf"), "disk space is not managed; check it in the script"),
    "network": "networks are not configured; remove it",
    "mcs-label": "jobs have no labels; remove it",
    "ntasks-per-gpu": "specify the number of tasks, as in --ntasks=4",
    "wait": "use the command line: dovetail submit --wait",
    "test-only": "use the command line: dovetail submit --test-only",
    "immediate": "a job waits for free GPUs; dovetail top --once shows them",
    "uid": "a job runs as the user who submits it; remove it",
}  # fmt: skip
"""Unsupported options that would change the result, with the alternative."""
KNOWN = frozenset({*COUNTED, *DIRECT, *FLAGS, *OTHER, *IGNORED, *REFUSED, *ALIAS})


def option_of(word: str) -> str:
    """Returns the full name of an option, empty for an unknown one.

    An unambiguous prefix of a name is enough, as in Slurm.
    """
    name = SHORT.get(word[1:2], "") if not word.startswith("--") else word[2:]
    if name and name not in KNOWN:
        begins = [known for known in KNOWN if known.startswith(name)]
        name = begins[0] if len(begins) == 1 and len(name) > 2 else ""
    return ALIAS.get(name, name)


def near(word: str) -> str:
    """Returns a hint for an unknown option."""
    import difflib  # Imported here: every submit imports this module, few need a hint.

    close = difflib.get_close_matches(word.lstrip("-"), sorted(KNOWN), n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return "remove it, or use a field of docs/reference/job-spec.md"


def instead(word: str, likely: Sequence[str]) -> str:
    """Returns the alternative to an option of sbatch that `dovetail submit` lacks.

    `likely` are options of `dovetail submit` with a similar name.
    """
    option = option_of(word)
    if option.startswith("mem"):
        return "for the whole job: --set memory=16G"
    if option == "constraint":
        return "specify types of GPU, as in --gpus 'a100|v100:4'"
    if option.startswith("cpus"):
        return "for the whole job: --set cpus=8"
    if option in (*COUNTED, "nodes"):
        return "specify the number of GPUs, as in --gpus 4, and of tasks, as in --ntasks 4"
    if option == "wrap":
        return "write a command after --, as in: submit -- python train.py"
    if option == "export":
        return "as in --env NAME=VALUE, or --env NAME"
    if option in DIRECT or option in FLAGS:
        return f"as in --set {DIRECT.get(option) or '='.join(FLAGS[option])}"
    if option in REFUSED or option in IGNORED:
        return REFUSED.get(option) or f"remove it: {IGNORED[option]}"
    if option in KNOWN:
        return "write it as #SBATCH in the script"
    if likely:
        return f"did you mean '{likely[0]}'?"
    return "write options of the script after --; see 'dovetail submit --help'"
