"""The lines of a batch script: its directives before the first command, taken option by option.

Read as Slurm reads them: `#SBATCH` at the very beginning of a line, quotes and backslashes as in a
shell, the rest behind a `#` a comment. What looks like a directive and is none is said.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dovetail.core.errors import InputError
from dovetail.jobspec import values as read
from dovetail.jobspec.sbatch_options import BARE, KNOWN, NO_VALUE, REFUSED, near, option_of

_DIRECTIVE = re.compile(r"(?:(#SBATCH)(?=[\s-])|(#DOVETAIL)\s)(.*)")
_NEARLY = re.compile(r"\s*#\s*SBATCH\s", re.IGNORECASE)
_STARTER = re.compile(
    r"\s*(?:exec\s+|time\s+)*(srun|mpirun|mpiexec|torchrun|deepspeed|accelerate\s+launch|"
    r"python3?\s+-m\s+torch\.distributed\.\w+)\s"
)


@dataclass(slots=True)
class BatchScript:
    """The directives of one script, by option; of one given twice the last counts.

    `ignored` are sentences about options without effect, `notes` about what else a user of Slurm
    may not expect.
    """

    file: str
    said: dict[str, tuple[str, str]] = field(default_factory=dict)
    ours: list[tuple[str, list[str]]] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    starter: tuple[str, str] = ("", "")

    def value(self, option: str, usual: str = "") -> str:
        """Returns what was said for an option."""
        return self.said[option][0] if option in self.said else usual

    def where(self, *options: str) -> str:
        """Returns where the first of some options was said."""
        return next((self.said[o][1] for o in options if o in self.said), self.file)

    def ignore(self, option: str, why: str) -> None:
        """Says that an option has no effect."""
        self.ignored.append(f"{self.where(option)}: --{option} has no effect: {why}")

    def note(self, where: str, what: str) -> None:
        """Says what a user of Slurm may not expect."""
        self.notes.append(f"{where}: {what}")

    def at_least_one(self, option: str, usual: int) -> int:
        """Returns the number said for an option, which is 1 or more. Raises InputError."""
        if option not in self.said:
            return usual
        try:
            number = read.whole(self.said[option][0])
        except ValueError as error:
            raise InputError(self.where(option), f"--{option}: {error}") from None
        if not number:
            raise InputError(self.where(option), f"--{option} is 1 or more")
        return number


def read_lines(content: str, file: str) -> BatchScript:
    """Returns the directives of a script. Raises InputError."""
    script = BatchScript(file)
    began = False
    for number, line in enumerate(content.splitlines(), start=1):
        where = f"{file}, line {number}"
        began = began or bool(line.strip() and not line.lstrip().startswith("#"))
        found = _DIRECTIVE.match(line)
        if found and began:
            script.note(where, f"{found[1] or found[2]} behind the first command has no effect")
        elif found and found[1]:
            _take(script, where, _words(found[3], where))
        elif found:
            script.ours.append((where, _words(found[3], where)))
        elif _NEARLY.match(line) and not began:
            script.note(where, "this is a comment: a directive begins with #SBATCH, nothing else")
        starts = _STARTER.match(line)
        if starts and not script.starter[0]:
            script.starter = (starts[1], where)
    return script


def _words(text: str, where: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise InputError(where, f"the words cannot be parted: {error}") from None


def _take(script: BatchScript, where: str, words: Sequence[str]) -> None:
    """Takes the options of one line: `--name=value`, `--name value`, `-Nvalue`, `-N value`."""
    for option, value in _options(where, list(words)):
        script.said.pop(option, None)
        script.said[option] = (value, where)


def _options(where: str, rest: list[str]) -> Iterator[tuple[str, str]]:
    while rest:
        word = rest.pop(0)
        if word in ("hetjob", "packjob", ":"):
            what = "jobs of several parts are not supported"
            raise InputError(where, what, "submit one job that asks for all of their GPUs")
        if not word.startswith("-") or word in ("-", "--"):
            raise InputError(where, f"'{word[:60]}' is no option", "options begin with - or --")
        said, equals, value = word.partition("=")
        if not word.startswith("--"):
            said, value = word[:2], word[2:].removeprefix("=")
            equals = value
        option = option_of(said)
        if option not in KNOWN:
            raise InputError(where, f"unknown option '{said[:60]}'", near(said[:60]))
        if option in REFUSED:
            raise InputError(where, f"--{option} is not supported", REFUSED[option])
        if equals and option in NO_VALUE:
            raise InputError(where, f"--{option} takes no value")
        if not equals and option not in BARE:
            if not rest:
                raise InputError(where, f"--{option} needs a value")
            value = rest.pop(0)
        yield option, value
