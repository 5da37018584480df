"""How rows of a running cluster are drawn, by `ls`, `top`, `nodes` and `history`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.cli.text_table import LEAST, Column, Piece, Table, cut
from dovetail.live.door.verbs import NEVER, JobRow, NodeRow
from dovetail.live.lifecycle import State

STYLE: dict[str, str] = {
    State.RUNNING: "green",
    State.CONFIGURING: "yellow",
    State.COMPLETING: "yellow",
    State.PENDING: "",
    State.COMPLETED: "dim",
}
PALETTE = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_blue")


def span(seconds: float) -> str:
    """Returns a length of time as Slurm prints it: `0:07`, `1:02:03`, `2-01:00:00`."""
    if not 0 <= seconds < NEVER:
        return "-"
    whole = int(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{whole % 60:02}"
    if hours:
        return f"{hours}:{minutes:02}:{whole % 60:02}"
    return f"{minutes}:{whole % 60:02}"


def job_name(row: JobRow) -> str:
    """Returns the number a user types: `12`, or `12_3` for a task of an array."""
    return f"{row.array_of}_{row.array}" if row.array >= 0 else str(row.job)


def gpus_text(row: JobRow) -> str:
    """Returns the GPUs a job holds and asked for: `2`, `2/4`, or `2 of 1..4` if elastic."""
    asked = f"{row.min_gpus}..{row.max_gpus}" if row.min_gpus < row.max_gpus else str(row.gpus)
    if not row.held_gpus or (asked == str(row.held_gpus)):
        return asked
    return f"{row.held_gpus} of {asked}"


def progress_text(row: JobRow) -> str:
    """Returns how much is done, where it is known."""
    return "-" if row.progress < 0 else f"{row.progress:.0%}"


def jobs_table(rows: Sequence[JobRow], now_s: float) -> Table:
    """Returns the jobs as a table in the order given; users only where there are several."""
    users = len({row.user for row in rows}) > 1
    names = ("job", "name", "user", "state", "time", "gpus", "where", "done", "left", "reason")
    table = _table(*(n for n in names if n != "user" or users))
    for row in rows:
        table.add(
            job_name(row),
            _plain(row.name, 20),
            *([_plain(row.user, 12)] if users else []),
            [(row.state, STYLE.get(row.state, "red"))],
            span(time_in_state(row, now_s)),
            gpus_text(row),
            row.where or "-",
            progress_text(row),
            span(row.left_s),
            row.reason or "-",
        )
    return table


def time_in_state(row: JobRow, now_s: float) -> float:
    """Returns how long a job has waited, or since its start, or lasted from start to end."""
    if row.start_s == NEVER:
        return max(0.0, min(row.end_s, now_s) - row.submit_s)
    return max(0.0, min(row.end_s, now_s) - row.start_s)


def ended_table(rows: Iterable[JobRow]) -> Table:
    """Returns jobs that are over, with how long they waited and ran."""
    table = _table("job", "name", "user", "state", "gpus", "waited", "ran", "exit", "reason")
    for row in rows:
        started = row.start_s < NEVER
        table.add(
            job_name(row),
            _plain(row.name, 24),
            _plain(row.user, 12),
            [(row.state, STYLE.get(row.state, "red"))],
            gpus_text(row),
            span((row.start_s if started else row.end_s) - row.submit_s),
            span(row.end_s - row.start_s) if started else "-",
            "-" if row.exit_code is None else str(row.exit_code),
            row.reason or "-",
        )
    return table


def nodes_table(nodes: Sequence[NodeRow]) -> Table:
    """Returns the nodes with a cell for each GPU: the jobs on it, or a dot."""
    table = _table("node", "state", "type", "gpus (jobs on each)", "heard")
    for node in nodes:
        style = {"up": "green", "draining": "yellow"}.get(node.state, "red")
        heard = "never" if node.silent_s < 0 else f"{node.silent_s:.0f} s ago"
        table.add(
            str(node.node),
            [(node.state, style)],
            node.gpu_type or "-",
            gpu_cells(node),
            heard,
        )
    return table


def gpu_cells(node: NodeRow) -> list[Piece]:
    """Returns one cell for each GPU, coloured by job; a shared GPU names both."""
    found: list[Piece] = []
    for jobs in node.jobs:
        found.append(("[", ""))
        for i, job in enumerate(jobs):
            found.append(("+" if i else "", ""))
            found.append((str(job), PALETTE[job % len(PALETTE)]))
        found.append(("]" if jobs else ".]", ""))
    return found


def counts_text(counts: Iterable[tuple[str, int]]) -> str:
    """Returns how many jobs are where: `2 running, 5 pending, 7 completed`."""
    said = [f"{jobs} {state.lower()}" for state, jobs in counts]
    return ", ".join(said) or "no jobs"


def _table(*names: str) -> Table:
    wrapping = {"reason": 9, "where": 5}
    return Table(
        [
            Column(
                name,
                right=name in ("time", "done", "left", "waited", "ran"),
                wraps=name in wrapping,
                # What is most asked for is the last to be cut in a narrow terminal.
                least=wrapping.get(name, LEAST),
            )
            for name in names
        ]
    )


def _plain(words: str, width: int) -> list[Piece]:
    """Returns text of a user as it is: no control characters, and not too long."""
    return list(cut([("".join(c if c.isprintable() else "?" for c in words), "")], width))
