"""Reads a YAML file, a batch script with `#SBATCH` lines or a command as complete, valid jobs.

The working directory, the output and the script of a file must lie in the directory of the
submission after symbolic links are resolved; only the command line may name other paths. No text
of a file is expanded: `$HOME` and backticks remain as they are.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from dovetail.core.errors import InputError
from dovetail.jobspec.draft import PARAMETER, FieldValue, JobDraft, parsing
from dovetail.jobspec.elastic import check_elastic, elastic_notes
from dovetail.jobspec.paths import (
    file_within,
    folder_within,
    image_of,
    mounts_of,
    output_within,
)
from dovetail.jobspec.sbatch import read_script
from dovetail.jobspec.values import After, Array, Gpus, environment
from dovetail.wire.spec import Dependency, JobSpec
from dovetail.wire.spec_faults import SCRIPT_BYTES_MAX, faults
from dovetail.wire.submission import Submission

YAML_SUFFIXES = (".yaml", ".yml")
COMMAND_LINE = "command line"
STANDARD_INPUT = Path("/dev/stdin")
OPENED_BY_SHELL = (Path("/dev/fd"), Path("/proc/self/fd"))
KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
AMBIGUOUS = 0
"""The number of a name that two jobs of a file have."""
_PLAIN = (
    "trains", "elastic", "shareable", "preemptible", "queue", "account", "qos", "reservation",
    "model",
    "recurrence", "gpu_type", "topology", "priority",
    "batch_size", "cpus", "memory", "time_limit", "deadline", "duration", "hold", "retries",
    "requeue", "grace", "paced", "begin", "kill_on_invalid_dep", "ntasks",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SpecFile:
    """The submissions of a file in order, with warnings.

    `ignored` lists options without effect, `notes` other behaviour that may surprise the user.
    """

    submissions: tuple[Submission, ...]
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Submitter:
    """The directory, the command line and the environment of a submission.

    `overrides` are the fields set on the command line, `options` the names of the options that set
    them, `environment` the variables set there, and `own` the variables that a spec may copy by
    name. With `trains` a program uses dovetail.train unless it is said to be elastic otherwise.
    """

    directory: Path
    overrides: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)
    now: datetime | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    trains: bool = False


def read_spec(path: Path, by: Submitter, arguments: Sequence[str] = ()) -> SpecFile:
    """Returns the jobs of a file; `arguments` are those of a batch script. Raises InputError.

    Paths are relative to the folder of a YAML file, or to the directory of the submitter.
    """
    content = _text(path)
    if path.suffix in YAML_SUFFIXES:
        if arguments:
            raise InputError(str(path), "only batch scripts take arguments")
        # Imported here: a script or a command does not need the YAML library.
        from dovetail.jobspec.yaml_file import read_drafts

        drafts = read_drafts(content, str(path), by.own)
        return _spec_file(drafts, by, path.absolute().parent)
    draft, script = read_script(content, str(path), by.own, by.now)
    draft.put("command", tuple(arguments), COMMAND_LINE)
    spec_file = _spec_file([draft], by, by.directory.absolute())
    notes = (*script.notes, *spec_file.notes)
    return replace(spec_file, ignored=tuple(script.ignored), notes=notes)


def read_command(words: Sequence[str], by: Submitter) -> SpecFile:
    """Returns one job that runs a command. Raises InputError."""
    draft = JobDraft(COMMAND_LINE)
    draft.put("command", tuple(words), COMMAND_LINE)
    draft.put("name", Path(words[0] if words else "").name, COMMAND_LINE)
    return _spec_file([draft], by, by.directory.absolute())


def _text(path: Path) -> str:
    try:
        _check_kind(path)
        with path.open("rb") as file:
            content = file.read(SCRIPT_BYTES_MAX + 1)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    if len(content) > SCRIPT_BYTES_MAX:
        raise InputError(str(path), f"it is longer than {SCRIPT_BYTES_MAX >> 10} KiB")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"it is not UTF-8 text: byte {error.start}") from None


def _check_kind(path: Path) -> None:
    """Raises InputError unless the path is a regular file: opening a FIFO could block forever.

    Paths that the shell has opened, standard input and <(...), may be of any kind but a folder.
    """
    mode = path.stat().st_mode
    opened = path == STANDARD_INPUT or path.parent in OPENED_BY_SHELL
    if stat.S_ISREG(mode) or (opened and not stat.S_ISDIR(mode)):
        return
    kind = next((word for is_one, word in KINDS if is_one(mode)), "a device")
    raise InputError(
        str(path), f"it is {kind}, not a file", "specify a batch script or a YAML file"
    )


def _spec_file(drafts: Sequence[JobDraft], by: Submitter, root: Path) -> SpecFile:
    number_of: dict[str, int] = {}
    submissions = []
    for position, draft in enumerate(drafts, start=1):
        for name, value in by.overrides.items():
            if name == "environment":
                with parsing(COMMAND_LINE, name):
                    _add_environment(draft, environment(value, by.own), COMMAND_LINE)
            else:
                called = by.options.get(name, "")
                draft.parse(name, value, COMMAND_LINE, trusted=True, called=called)
        _add_environment(draft, tuple(by.environment.items()), COMMAND_LINE)
        if by.trains and not {"trains", "elastic", "paced"} & draft.entries.keys():
            draft.put("trains", True, COMMAND_LINE)
        submission = _submission(draft, root, by.directory.absolute(), number_of)
        submissions.append(submission)
        name = submission.spec.name
        number_of[name] = -position if name not in number_of else AMBIGUOUS
    return SpecFile(tuple(submissions), notes=tuple(elastic_notes(submissions)))


def _add_environment(draft: JobDraft, pairs: tuple[tuple[str, str], ...], where: str) -> None:
    if pairs:
        before: tuple[tuple[str, str], ...] = ()
        merged = dict(draft.value("environment", before)) | dict(pairs)
        draft.put("environment", tuple(merged.items()), where)


def _submission(
    draft: JobDraft, root: Path, directory: Path, number_of: Mapping[str, int]
) -> Submission:
    name = draft.value("name", "job")
    workdir = folder_within(root, directory, draft.entries.get("workdir"))
    gpus = _gpus(draft)
    check_elastic(draft, workdir, is_range=gpus.low < gpus.high)
    _check_tasks(draft, gpus)
    script = _script(draft, root)
    array = draft.value("array", Array())
    if draft.value("paced", False) and not draft.value("duration", 0.0):
        where, called = draft.place("paced"), draft.called("paced")
        raise InputError(where, f"{called}: a synthetic job needs a duration above 0, as in 90s")
    values: dict[str, Any] = {
        PARAMETER.get(n, n): draft.entries[n].value for n in _PLAIN if n in draft.entries
    }
    command: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    try:
        spec = JobSpec(
            name=name,
            command=draft.value("command", command),
            workdir=str(workdir),
            script=script,
            # A batch script gets the variables that sbatch sets.
            slurm_variables=draft.value("slurm_variables", bool(script)),
            gpus=gpus.requested,
            min_gpus=gpus.low,
            max_gpus=gpus.high,
            environment=draft.value("environment", variables),
            output=output_within(root, directory, workdir, name, draft.entries.get("output")),
            container_image=image_of(root, directory, draft.entries.get("container_image")),
            container_mounts=mounts_of(root, directory, draft.entries.get("container_mounts")),
            after=_after(draft, number_of),
            at_once=array.at_once,
            **values,
        )
    except ValueError as error:
        raise InputError(draft.where, str(error)) from None
    for parameter, what in faults(spec):
        field_name = next((f for f, p in PARAMETER.items() if p == parameter), parameter)
        raise InputError(draft.place(field_name), f"{draft.called(field_name)}: {what}")
    return Submission(spec, array.indices)


def _gpus(draft: JobDraft) -> Gpus:
    default = draft.value("ntasks", 1)
    gpus = draft.value("gpus", Gpus(default, default, default))
    low, high = draft.value("min_gpus", gpus.low), draft.value("max_gpus", gpus.high)
    requested = gpus.requested if "gpus" in draft.entries else max(default, low)
    if not 1 <= low <= requested <= high:
        where = next(draft.place(n) for n in ("min_gpus", "max_gpus", "gpus") if n in draft.entries)
        raise InputError(
            where, f"at least {low} GPUs, at most {high}, requested {requested}: not in order"
        )
    if low < high and not any(draft.value(n, False) for n in ("trains", "paced", "elastic")):
        raise InputError(
            draft.place("gpus"),
            "only a program that uses dovetail.train, or has checkpoints of its own, can change its"
            " number of GPUs",
            "specify `trains: yes`, or `elastic: restart`, or one number of GPUs",
        )
    return Gpus(low, requested, high)


def _check_tasks(draft: JobDraft, gpus: Gpus) -> None:
    """Raises InputError if the GPUs cannot be divided among the tasks."""
    tasks = draft.value("ntasks", 0)
    where, called = draft.place("ntasks"), draft.called("ntasks")
    if tasks and (draft.value("trains", False) or draft.value("paced", False)):
        raise InputError(
            where,
            f"{called}: a program that uses dovetail.train has one worker per GPU",
            f"remove {called} or `trains`",
        )
    if tasks and gpus.requested % tasks:
        raise InputError(
            where,
            f"{called}: {tasks} tasks cannot share {gpus.requested} GPUs evenly",
            "specify a number of tasks that divides the number of GPUs",
        )


def _script(draft: JobDraft, root: Path) -> str:
    """Returns the text of a batch script, or of the script file that a spec names."""
    entry = draft.entries.get("script")
    if entry is None or "script_text" in draft.entries:
        return draft.value("script_text", "")
    return _text(file_within(root, entry))


def _after(draft: JobDraft, number_of: Mapping[str, int]) -> tuple[Dependency, ...]:
    none: tuple[After, ...] = ()
    return tuple(
        Dependency(a.kind, *(_job(a.job, number_of, draft.entries["after"]) if a.job else ()))
        for a in draft.value("after", none)
    )


def _job(text: str, number_of: Mapping[str, int], entry: FieldValue) -> tuple[int, int]:
    """Returns the number of a job, or the negative of its position in the file, and a task or -1.

    Raises InputError.
    """
    name, _, index = text.rpartition("_")
    task = int(index) if name and is_number(index) and text not in number_of else -1
    name = name if task >= 0 else text
    if is_number(name):
        return int(name), task
    if number_of.get(name) == AMBIGUOUS:
        called = entry.called or "after"
        raise InputError(entry.where, f"{called}: two earlier jobs have the name '{name}'")
    if name in number_of:
        return number_of[name], task
    what = f"'{text}' is neither a job number nor the name of an earlier job in this file"
    raise InputError(entry.where, f"{entry.called or 'after'}: {what}")


def is_number(text: str) -> bool:
    """True if a text is the number of a job or a task."""
    return text.isdecimal() and text.isascii() and len(text) < 16
