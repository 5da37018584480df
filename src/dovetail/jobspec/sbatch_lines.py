"""Parses the directives of a batch script, which precede its first command.

The syntax is Slurm's: `#SBATCH` at the very beginning of a line, quotes and backslashes as in a
shell, and a comment after `#`. Lines that only look like directives get a warning.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from dovetail.core.errors import InputError
from dovetail.jobspec import values as read
from dovetail.jobspec.draft import parsing
from dovetail.jobspec.sbatch_options import BARE, KNOWN, NO_VALUE, REFUSED, near, option_of

_DIRECTIVE = re.compile(r"(?:(#SBATCH)(?=[\s-])|(#DOVETAIL)\s)(.*)")
_NEARLY = re.compile(r"\s*#\s*SBATCH\s", re.IGNORECASE)
_STARTER = re.compile(
    r"\s*(?:exec\s+|time\s+)*(srun|mpirun|mpiexec|torchrun|deepspeed|accelerate\s+launch|"
    r"python3?\s+-m\s+torch\.distributed\.\w+)\s"
)


@dataclass(slots=True)
class BatchScript:
    """The directives of one script; of a repeated option, the last counts.

    `options` has the value of each option with its file and line, `dovetail_lines` the words of
    each `#DOVETAIL` line. `ignored` lists options without effect, `notes` other behaviour that may
    surprise a user of Slurm. `starter` is the first command that starts tasks, such as srun.
    """

    file: str
    options: dict[str, tuple[str, str]] = field(default_factory=dict)
    dovetail_lines: list[tuple[str, list[str]]] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    starter: tuple[str, str] = ("", "")

    def value(self, option: str, default: str = "") -> str:
        """Returns the value of an option."""
        return self.options[option][0] if option in self.options else default

    def where(self, *options: str) -> str:
        """Returns the file and line of the first of some options that is set."""
        return next((self.options[o][1] for o in options if o in self.options), self.file)

    def ignore(self, option: str, why: str) -> None:
        """Adds a warning that an option has no effect."""
        self.ignored.append(f"{self.where(option)}: --{option} has no effect: {why}")

    def note(self, where: str, what: str) -> None:
        """Adds a note."""
        self.notes.append(f"{where}: {what}")

    def at_least_one(self, option: str, default: int) -> int:
        """Returns the number of an option, which is 1 or more. Raises InputError."""
        if option not in self.options:
            return default
        with parsing(self.where(option), f"--{option}"):
            number = read.whole(self.options[option][0])
        if not number:
            raise InputError(self.where(option), f"--{option} must be 1 or more")
        return number


def read_lines(content: str, file: str) -> BatchScript:
    """Returns the directives of a script. Raises InputError."""
    script = BatchScript(file)
    began = False
    for number, line in enumerate(content.splitlines(), start=1):
        where = f"{file}, line {number}"
        began = began or bool(line.strip() and not line.lstrip().startswith("#"))
        directive = _DIRECTIVE.match(line)
        if directive and began:
            script.note(
                where, f"{directive[1] or directive[2]} after the first command has no effect"
            )
        elif directive and directive[1]:
            for option, value in _options(where, _words(directive[3], where)):
                # The last value counts, and errors name options in the order of their last lines.
                script.options.pop(option, None)
                script.options[option] = (value, where)
        elif directive:
            script.dovetail_lines.append((where, _words(directive[3], where)))
        elif _NEARLY.match(line) and not began:
            script.note(where, "this line is a comment: a directive begins with exactly #SBATCH")
        starts = _STARTER.match(line)
        if starts and not script.starter[0]:
            script.starter = (starts[1], where)
    return script


def _words(text: str, where: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise InputError(where, f"cannot split the text into words: {error}") from None


def _options(where: str, rest: list[str]) -> Iterator[tuple[str, str]]:
    """Yields the options in words: `--name=value`, `--name value`, `-Nvalue` and `-N value`."""
    while rest:
        word = rest.pop(0)
        if word in ("hetjob", "packjob", ":"):
            what = "heterogeneous jobs are not supported"
            raise InputError(where, what, "submit one job that requests all GPUs")
        if not word.startswith("-") or word in ("-", "--"):
            raise InputError(where, f"'{word[:60]}' is not an option", "options begin with - or --")
        name, equals, value = word.partition("=")
        if not word.startswith("--"):
            name, value = word[:2], word[2:].removeprefix("=")
            equals = value
        option = option_of(name)
        if option not in KNOWN:
            raise InputError(where, f"unknown option '{name[:60]}'", near(name[:60]))
        if option in REFUSED:
            raise InputError(where, f"--{option} is not supported", REFUSED[option])
        if equals and option in NO_VALUE:
            raise InputError(where, f"--{option} takes no value")
        if not equals and option not in BARE:
            if not rest:
                raise InputError(where, f"--{option} needs a value")
            value = rest.pop(0)
        yield option, value
