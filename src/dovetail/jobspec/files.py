"""Job specs as users write them: a YAML file, a batch script with `#SBATCH` lines, or a command.

What comes out is complete and checked: `wire.submission.Submission`. A file cannot name anything
outside the directory of the submission: its working directory, its output and its script lie in it
once symbolic links are followed. The submitter can, on the command line. No text of a file is ever
expanded: `$HOME` and backticks stay what they are.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.jobspec.draft import PARAMETER, FieldValue, JobDraft
from dovetail.jobspec.paths import file_within, folder_within, output_within
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
TWICE = 0
"""Stands for the number of a name that two jobs of a file have."""
_PLAIN = (
    "trains", "shareable", "preemptible", "queue", "model", "recurrence", "gpu_type", "priority",
    "batch_size", "cpus", "memory", "time_limit", "deadline", "duration", "hold", "retries",
    "requeue", "grace", "paced", "begin", "kill_on_invalid_dep", "ntasks",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SpecFile:
    """The submissions of a file, in order, and sentences about what in it has no effect, and what
    else its author may not expect.
    """

    submissions: tuple[Submission, ...]
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Submitter:
    """Where and with what somebody submits.

    `overrides` are fields said on the command line, by the words of `options` where they have
    others than their names; `environment` variables set there; `own` the variables that a spec may
    take over by name.
    """

    directory: Path
    overrides: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)
    now: datetime | None = None
    options: Mapping[str, str] = field(default_factory=dict)


def read_spec(path: Path, by: Submitter, arguments: Sequence[str] = ()) -> SpecFile:
    """Returns the jobs of a file; `arguments` follow a script as its own. Raises InputError.

    A YAML file is rooted in its own folder, a batch script in the directory of the submitter.
    """
    content = _text(path)
    if path.suffix in YAML_SUFFIXES:
        if arguments:
            raise InputError(str(path), "only a batch script takes arguments")
        # Who submits a script or a command does not wait for the library of the other form.
        from dovetail.jobspec.yaml_file import read_drafts

        drafts = read_drafts(content, str(path), by.own)
        return _reading(drafts, by, path.absolute().parent)
    draft, script = read_script(content, str(path), by.own, by.now)
    draft.put("command", tuple(arguments), COMMAND_LINE)
    reading = _reading([draft], by, by.directory.absolute())
    return replace(reading, ignored=tuple(script.ignored), notes=tuple(script.notes))


def read_command(words: Sequence[str], by: Submitter) -> SpecFile:
    """Returns one job that runs a command given word by word. Raises InputError."""
    draft = JobDraft(COMMAND_LINE)
    draft.put("command", tuple(words), COMMAND_LINE)
    draft.put("name", Path(words[0] if words else "").name, COMMAND_LINE)
    return _reading([draft], by, by.directory.absolute())


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
        raise InputError(str(path), f"it is no UTF-8 text: byte {error.start}") from None


def _check_kind(path: Path) -> None:
    """Raises InputError for what is no file: to open a FIFO waits for its writer, maybe for ever.

    What the shell has opened for us, as standard input or by <(...), may be anything.
    """
    mode = path.stat().st_mode
    opened = path == STANDARD_INPUT or path.parent in OPENED_BY_SHELL
    if stat.S_ISREG(mode) or (opened and not stat.S_ISDIR(mode)):
        return
    kind = next((word for is_one, word in KINDS if is_one(mode)), "a device")
    raise InputError(str(path), f"it is {kind}, not a file", "name a batch script or a YAML file")


def _reading(drafts: Sequence[JobDraft], by: Submitter, root: Path) -> SpecFile:
    number_of: dict[str, int] = {}
    made = []
    for position, draft in enumerate(drafts, start=1):
        for name, said in by.overrides.items():
            if name == "environment":
                _add_environment(draft, _own_pairs(said, by), COMMAND_LINE)
            else:
                called = by.options.get(name, "")
                draft.say(name, said, COMMAND_LINE, trusted=True, called=called)
        _add_environment(draft, tuple(by.environment.items()), COMMAND_LINE)
        submission = _submission(draft, root, by.directory.absolute(), number_of)
        made.append(submission)
        name = submission.spec.name
        number_of[name] = -position if name not in number_of else TWICE
    return SpecFile(tuple(made))


def _own_pairs(said: str, by: Submitter) -> tuple[tuple[str, str], ...]:
    try:
        return environment(said, by.own)
    except ValueError as error:
        raise InputError(COMMAND_LINE, f"environment: {error}") from None


def _add_environment(draft: JobDraft, pairs: tuple[tuple[str, str], ...], where: str) -> None:
    if pairs:
        merged = dict(draft.value("environment", ())) | dict(pairs)
        draft.put("environment", tuple(merged.items()), where)


def _submission(
    draft: JobDraft, root: Path, directory: Path, number_of: Mapping[str, int]
) -> Submission:
    name = draft.value("name", "job")
    workdir = folder_within(root, directory, draft.given.get("workdir"))
    gpus = _gpus(draft)
    _check_tasks(draft, gpus)
    script = _script(draft, root)
    array: Array = draft.value("array", Array())
    if draft.value("paced") and not draft.value("duration"):
        where, called = draft.place("paced"), draft.called("paced")
        raise InputError(where, f"{called}: such a job needs a duration above 0, as in 90s")
    values = {PARAMETER.get(n, n): draft.value(n) for n in _PLAIN if n in draft.given}
    try:
        spec = JobSpec(
            name=name,
            command=draft.value("command", ()),
            workdir=str(workdir),
            script=script,
            # A batch script finds what sbatch would have set.
            slurm_variables=draft.value("slurm_variables", bool(script)),
            gpus=gpus.asked,
            min_gpus=gpus.low,
            max_gpus=gpus.high,
            environment=draft.value("environment", ()),
            output=output_within(root, directory, workdir, name, draft.given.get("output")),
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
    usual: int = draft.value("ntasks", 1)
    said: Gpus = draft.value("gpus", Gpus(usual, usual, usual))
    low, high = draft.value("min_gpus", said.low), draft.value("max_gpus", said.high)
    asked = said.asked if "gpus" in draft.given else max(usual, low)
    if not 1 <= low <= asked <= high:
        where = next(draft.place(n) for n in ("min_gpus", "max_gpus", "gpus") if n in draft.given)
        raise InputError(where, f"at least {low} GPUs, at most {high}, asked for {asked}: no order")
    if low < high and not (draft.value("trains", False) or draft.value("paced", False)):
        raise InputError(
            draft.place("gpus"),
            "the number of GPUs can only change for a program written with dovetail.train",
            "say `trains: yes` if it is, or one number of GPUs",
        )
    return Gpus(low, asked, high)


def _check_tasks(draft: JobDraft, gpus: Gpus) -> None:
    """Raises InputError for tasks that the GPUs cannot be given to."""
    tasks: int = draft.value("ntasks", 0)
    where, called = draft.place("ntasks"), draft.called("ntasks")
    if tasks and (draft.value("trains", False) or draft.value("paced", False)):
        raise InputError(
            where,
            f"{called}: a program written with dovetail.train has one worker on each GPU",
            f"leave {called} out, or `trains`",
        )
    if tasks and gpus.asked % tasks:
        raise InputError(
            where,
            f"{called}: {tasks} tasks cannot share {gpus.asked} GPUs evenly",
            "ask for a number of tasks that divides the number of GPUs",
        )


def _script(draft: JobDraft, root: Path) -> str:
    """Returns the text of a batch script: read already, or of the file that a spec names."""
    given = draft.given.get("script")
    if given is None or draft.value("script_text") is not None:
        return str(draft.value("script_text", ""))
    return _text(file_within(root, given))


def _after(draft: JobDraft, number_of: Mapping[str, int]) -> tuple[Dependency, ...]:
    found: tuple[After, ...] = draft.value("after", ())
    return tuple(
        Dependency(a.kind, *(_job(a.job, number_of, draft.given["after"]) if a.job else ()))
        for a in found
    )


def _job(said: str, number_of: Mapping[str, int], given: FieldValue) -> tuple[int, int]:
    """Returns the number of a job, or its place in the file below 0; and a task of it, or -1."""
    name, _, index = said.rpartition("_")
    task = int(index) if name and is_number(index) and said not in number_of else -1
    name = name if task >= 0 else said
    if is_number(name):
        return int(name), task
    if number_of.get(name) == TWICE:
        called = given.called or "after"
        raise InputError(given.where, f"{called}: two jobs before it have the name '{name}'")
    if name in number_of:
        return number_of[name], task
    what = f"'{said}' is no number of a job, and no job before it in this file"
    raise InputError(given.where, f"{given.called or 'after'}: {what}")


def is_number(text: str) -> bool:
    """Tells whether a text is the number of a job, or of a task."""
    return text.isdecimal() and text.isascii() and len(text) < 16
