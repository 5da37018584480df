"""The tables of jobs and nodes in `ls`, `top`, `nodes` and `history`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dovetail.cli.terminal import UNBOUNDED
from dovetail.cli.text_table import Column, Line, Piece, cut, table_lines
from dovetail.core.units import NEVER_S
from dovetail.live.jobs.lifecycle import State

if TYPE_CHECKING:
    from dovetail.live.jobs.drain_reason import DrainReason
    from dovetail.live.server.messages.cluster import NodeRow
    from dovetail.live.server.messages.listing import JobRow
    from dovetail.live.server.messages.tenants import TenantList

STYLE: dict[str, str] = {
    State.RUNNING: "green",
    State.CONFIGURING: "yellow",
    State.COMPLETING: "yellow",
    State.PENDING: "",
    State.COMPLETED: "dim",
}
PALETTE = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_blue")


def span(seconds: float) -> str:
    """Returns a duration as Slurm prints it: `0:07`, `1:02:03`, `2-01:00:00`."""
    if not 0 <= seconds < NEVER_S:
        return "-"
    whole = int(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{whole % 60:02}"
    if hours:
        return f"{hours}:{minutes:02}:{whole % 60:02}"
    return f"{minutes}:{whole % 60:02}"


def gpus_text(row: JobRow) -> str:
    """Returns allocated and requested GPUs: `2`, `2 of 4`, or `2 of 1..4` for an elastic job."""
    requested = f"{row.min_gpus}..{row.max_gpus}" if row.min_gpus < row.max_gpus else str(row.gpus)
    if not row.held_gpus or (requested == str(row.held_gpus)):
        return requested
    return f"{row.held_gpus} of {requested}"


def progress_text(row: JobRow) -> str:
    """Returns the completed share of a job in percent, `-` if unknown."""
    return "-" if row.progress < 0 else f"{row.progress:.0%}"


def jobs_lines(rows: Sequence[JobRow], now_s: float, width: int) -> list[Line]:
    """Returns a table of jobs in the given order; with a column of users if there are several."""
    users = len({row.user for row in rows}) > 1
    names = ("job", "name", "user", "state", "time", "gpus", "where", "done", "left", "reason")
    cells = [
        (
            _text(row.called),
            _plain(row.name, 20 if width < UNBOUNDED else UNBOUNDED),
            *([_plain(row.user, 12 if width < UNBOUNDED else UNBOUNDED)] if users else []),
            _state(row),
            _text(span(time_in_state(row, now_s))),
            _text(gpus_text(row)),
            _text(row.where or "-"),
            _text(progress_text(row)),
            _text(span(row.left_s)),
            _text(row.reason or "-"),
        )
        for row in rows
    ]
    return table_lines([_COLUMNS[n] for n in names if n != "user" or users], cells, width)


def time_in_state(row: JobRow, now_s: float) -> float:
    """Returns the run time of a job; its waiting time if it is pending or never started."""
    if row.start_s == NEVER_S or row.state == State.PENDING:
        return max(0.0, min(row.end_s, now_s) - row.submit_s - row.ran_s)
    return row.ran_s


def ended_lines(rows: Iterable[JobRow], width: int) -> list[Line]:
    """Returns a table of ended jobs; `start` and `end` are in cluster time."""
    names = (
        *("job", "name", "user", "state", "gpus", "waited", "start", "end", "ran", "gpu-h"),
        *("exit", "reason"),
    )
    cells = []
    for row in rows:
        started = row.start_s < NEVER_S
        row_cells = (
            _text(row.called),
            _plain(row.name, 24),
            _plain(row.user, 12),
            _state(row),
            _text(gpus_text(row)),
            _text(span((row.start_s if started else row.end_s) - row.submit_s)),
            _text(span(row.start_s)),
            _text(span(row.end_s)),
            _text(span(row.ran_s) if started else "-"),
            _text(f"{row.gpu_hours:.2f}"),
            _text("-" if row.exit_code is None else str(row.exit_code)),
            _text(row.reason or "-"),
        )
        cells.append(row_cells)
    return table_lines([_COLUMNS[name] for name in names], cells, width)


def tenants_lines(reply: TenantList, width: int) -> list[Line]:
    """Returns a table of tenants, each below the one that it belongs to."""
    names = ("tenant", "tier", "weight", "guaranteed", "limit", "deserves", "holds", "waits for")
    counts = reply.half_life_s > 0
    cells = [
        (
            _plain("  " * (len(row.path) - 1) + (row.path[-1] or "(other)"), 40),
            _text(row.tier),
            _text(f"{row.weight:g}"),
            _text(row.guaranteed or "-"),
            _text(f"{row.most_gpus:.0f}" if row.most_gpus < NEVER_S else "-"),
            _text(f"{row.deserves_gpus:.1f}"),
            _text(str(row.held_gpus)),
            _text(str(row.waiting_gpus)),
            *([_text(f"{row.used_gpus:.2f}")] if counts else []),
        )
        for row in reply.tenants
    ]
    columns = [_COLUMNS[name] for name in (*names, *(["used"] if counts else []))]
    return table_lines(columns, cells, width)


def nodes_lines(nodes: Sequence[NodeRow], width: int) -> list[Line]:
    """Returns a table of nodes with a cell for each GPU: its jobs, or a dot."""
    names = ("node", "state", "type", "gpus (jobs on each)", "heard")
    cells = []
    for node in nodes:
        style = {"up": "green", "draining": "yellow"}.get(node.state, "red")
        heard = "never" if node.silent_s < 0 else f"{node.silent_s:.0f} s ago"
        row_cells = (
            _text(node.label),
            [(node.state, style)],
            _text(node.gpu_type or "-"),
            gpu_cells(node),
            _text(heard),
        )
        cells.append(row_cells)
    notes = [_drain_line(node.label, note) for node in nodes for note in node.drains]
    notes += [
        ((f"node {node.label}, {warning}", "yellow"),)
        for node in nodes
        for warning in node.warnings
    ]
    return [*table_lines([_COLUMNS[name] for name in names], cells, width), *notes]


def _drain_line(node: str, note: DrainReason) -> Line:
    where = f"node {node}" if note.gpu < 0 else f"GPU {note.gpu} of node {node}"
    by = f" by {note.by}" if note.by else ""
    why = f": {note.reason}" if note.reason else ""
    return ((f"{where} was drained{by} at {span(note.since_s)}{why}", "yellow"),)


def gpu_cells(node: NodeRow) -> list[Piece]:
    """Returns one cell for each GPU, coloured by job; a shared GPU shows both jobs, a drained x."""
    pieces: list[Piece] = []
    drained = {note.gpu for note in node.drains}
    for gpu, (jobs, names) in enumerate(zip(node.jobs, node.called, strict=True)):
        pieces.append(("[", ""))
        for i, (job, name) in enumerate(zip(jobs, names, strict=True)):
            pieces.append(("+" if i else "", ""))
            pieces.append((name, PALETTE[job % len(PALETTE)]))
        if gpu in drained:
            pieces.append(("x", "yellow"))
        pieces.append(("]" if jobs or gpu in drained else ".]", ""))
    return pieces


def counts_text(counts: Iterable[tuple[str, int]]) -> str:
    """Returns the number of jobs in each state: `2 running, 5 pending, 7 completed`."""
    texts = [f"{jobs} {state.lower()}" for state, jobs in counts]
    return ", ".join(texts) or "no jobs"


_COLUMNS = {
    column.name: column
    for column in (
        # Columns without `stays` remain on the narrowest terminal: job, state and reason.
        Column("job"),
        Column("name", least=8, stays=6),
        Column("user", least=6, stays=5),
        Column("state"),
        Column("time", right=True, stays=4),
        Column("gpus", stays=7),
        Column("where", least=5, stays=3),
        Column("done", right=True, stays=1),
        Column("left", right=True, stays=2),
        Column("reason", least=9),
        Column("waited", right=True, stays=1),
        Column("ran", right=True, stays=4),
        Column("start", right=True, stays=6),
        Column("end", right=True, stays=6),
        Column("gpu-h", right=True, stays=6),
        Column("exit", stays=3),
        Column("node"),
        Column("type", least=6, stays=1),
        Column("gpus (jobs on each)", least=12),
        Column("heard", stays=2),
        Column("tenant", least=8),
        Column("tier", stays=2),
        Column("weight", right=True, stays=3),
        Column("guaranteed", stays=4),
        Column("limit", right=True, stays=1),
        Column("deserves", right=True, stays=6),
        Column("holds", right=True),
        Column("waits for", right=True, stays=5),
        Column("used", right=True),
    )
}


def _state(row: JobRow) -> list[Piece]:
    return [(row.state, STYLE.get(row.state, "red"))]


def _text(words: str) -> list[Piece]:
    return [(words, "")]


def _plain(words: str, width: int) -> Line:
    """Returns text of a user without control characters, cut to `width`."""
    return cut(_text("".join(c if c.isprintable() else "?" for c in words)), width)
