"""Command lines of torchrun: which they are, and which of their options say how many start where.

torchrun reads each option from a variable as well (`PET_NNODES` for `--nnodes`). What is on its
command line goes first, so an option that fixes a size must not stay there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

NAMES = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
"""The program, and the modules that `python -m` runs."""
SIZES = (
    "nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port",
    "rdzv-backend", "rdzv-endpoint", "rdzv-id", "max-restarts",
)  # fmt: skip
"""Options with a value that fix the processes, or where they meet."""
SIZES_ALONE = ("standalone",)
VALUED = (
    *("rdzv-conf", "monitor-interval", "start-method", "event-log-handler", "role", "log-dir"),
    *("redirects", "tee", "local-ranks-filter", "duplicate-stdout-filters"),
    *("duplicate-stderr-filters", "local-addr", "logs-specs", "numa-binding"),
    *("signals-to-handle", "shutdown-timeout"),
)
"""Its other options with a value."""
ALONE = ("module", "no-python", "run-path", "virtual-local-rank")
SHORT_VALUED = ("-r", "-t")


def is_torchrun(command: Sequence[str]) -> bool:
    """Returns whether a command is torchrun, as a program or as a module of Python."""
    return _options_at(command) > 0


def fixed_sizes(command: Sequence[str]) -> tuple[str, ...]:
    """Returns the options of a torchrun command that fix a size, as they were written."""
    return tuple(word for word, _, is_size in _options(command) if is_size)


def without_sizes(command: Sequence[str]) -> tuple[str, ...]:
    """Returns a torchrun command without the options that fix a size."""
    at, kept = _options_at(command), list[str]()
    for word, value, is_size in _options(command):
        words = (word, *value)
        at += len(words)
        kept += () if is_size else words
    return (*command[: _options_at(command)], *kept, *command[at:])


def _options_at(command: Sequence[str]) -> int:
    """Returns where the options of torchrun begin in a command, 0 if it is not torchrun."""
    for at, word in enumerate(command[:8]):
        if at == 0 and word.rpartition("/")[2] == NAMES[0]:
            return 1
        if at > 0 and word in NAMES[1:] and command[at - 1] == "-m":
            return at + 1
    return 0


def _options(command: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    """Yields the options before the script: the word, its value if that is another, and if it
    fixes a size.
    """
    words = iter(command[_options_at(command) :])
    for word in words:
        if not word.startswith("-") or word == "--":
            return
        name, equals, _ = word.partition("=")
        known = _known(name)
        takes = not equals and (known in SIZES or known in VALUED or word in SHORT_VALUED)
        value = tuple(next(words, "") for _ in range(takes))
        yield word, value, known in SIZES or known in SIZES_ALONE


def _known(word: str) -> str:
    """Returns the option that a word is, or is the beginning of; "" if there is none."""
    name = word.removeprefix("--").replace("_", "-") if word.startswith("--") else ""
    every = (*SIZES, *SIZES_ALONE, *VALUED, *ALONE)
    if name in every:
        return name
    near = [option for option in every if name and option.startswith(name)]
    return near[0] if len(near) == 1 else ""
