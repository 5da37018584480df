"""Writes the generated tables of docs/reference from the code, or compares them with it.

Run:  python -m tools.reference [--check]

A page holds hand-written text, and between `<!-- generated: NAME -->` and `<!-- end -->` what the
section of that name gives. A test in tests/docs holds the pages to the code.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import is_dataclass
from io import StringIO
from pathlib import Path
from textwrap import fill
from typing import ClassVar, get_args, get_origin, get_type_hints

import click

import dovetail.cli
import dovetail.live
import dovetail.policies  # registers the policies
from dovetail.cli.job_selection import ABBREVIATIONS
from dovetail.cli.main import COMMANDS, cli, run
from dovetail.core import messages as facts
from dovetail.core.placement import Interleave, Placement
from dovetail.core.policy import registered
from dovetail.live.client import Client
from dovetail.live.jobs.lifecycle import State
from dovetail.live.server.explain import SENTENCES
from dovetail.live.server.messages import changes, cluster, listing, one_job, output, reason
from dovetail.record.log import FactLines
from tools import reference_words as words

assert dovetail.policies

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs"
_SECTION = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_ABOUT_RUNS = ("simulate", "compare", "whatif", "bound")
"""The commands that share the options of a run."""
_EVERYWHERE = {"--json", "--home"}
"""Options that a sentence of the page describes once."""


def item(text: str) -> str:
    """Returns an entry of a Markdown list, in lines of the width of the prose."""
    return (
        fill(
            text,
            120,
            initial_indent="- ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )


# Commands


def _leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        full = (*path, name)
        if not isinstance(command, click.Group):
            yield " ".join(full), command
            continue
        if command.invoke_without_command:
            yield " ".join(full), command
        yield from _leaves(command, full)


def _options(command: click.Command) -> dict[str, click.Option]:
    found = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    return {max(option.opts, key=len): option for option in found}


def _same(options: Sequence[click.Option]) -> bool:
    return len({(o.help, str(o.default), o.nargs) for o in options}) == 1


def _run_options() -> dict[str, click.Option]:
    """Returns the options that all commands about a run share."""
    of = [_options(c) for name, c in _leaves(cli) if name in _ABOUT_RUNS]
    return {
        name: option
        for name, option in of[0].items()
        if name not in _EVERYWHERE and all(name in o for o in of) and _same([o[name] for o in of])
    }


def _list(options: dict[str, click.Option]) -> str:
    return "".join(_line(option) for option in options.values())


def _line(option: click.Option) -> str:
    spelled = ", ".join(f"`{word}`" for word in sorted(option.opts, key=len))
    text = (option.help or "").rstrip(".").replace("*", "\\*")
    if isinstance(option.type, click.Choice):
        text += f": {' or '.join(option.type.choices)}"
    default = option.default
    if isinstance(default, str | int | float) and not isinstance(default, bool):
        text += f" (`{default}`)" if default not in ("", 0, -1) else ""
    return item(f"{spelled}: {text}")


def commands() -> str:
    """Returns a table of all commands, and under a heading for each the list of its options."""
    shared = _run_options()
    rows, parts = [], [f"\n### Options of a run\n\n{_list(shared)}"]
    for name, command in _leaves(cli):
        usage = command.collect_usage_pieces(click.Context(command))
        own = {
            option: o
            for option, o in _options(command).items()
            if option not in _EVERYWHERE and not (name in _ABOUT_RUNS and option in shared)
        }
        spelled = " ".join([name, *(u for u in usage if u != "[OPTIONS]")])
        short = COMMANDS[name][1] if name in COMMANDS else command.get_short_help_str(200)
        rows.append((f"`{spelled}`", short.rstrip(".")))
        if own:
            note = "With the options of a run.\n\n" if name in _ABOUT_RUNS else ""
            parts.append(f"\n### {name}\n\n{note}{_list(own)}")
    return table(("command", "does"), rows) + "".join(parts)


# States and reasons


def states() -> str:
    """Returns the states of a live job with the letters of squeue."""
    letters = {state: short for short, state in ABBREVIATIONS.items()}
    _same_names("states", {str(s) for s in State}, words.STATES)
    rows = [(f"`{s}`", f"`{letters[s]}`", words.STATES[s]) for s in map(str, State)]
    return table(("state", "letters", "means"), rows)


def reasons() -> str:
    """Returns the reasons of jobs that wait, are starting, or ended badly."""
    coded = {*SENTENCES, *words.END_REASONS, *words.START_REASONS}
    _same_names("reasons", _camel_case(), coded)
    rows = [(f"`{code}`", text) for code, text in SENTENCES.items()]
    rows += [(f"`{code}`", text) for code, text in words.START_REASONS.items()]
    ends = [(f"`{code}`", text) for code, text in words.END_REASONS.items()]
    waiting = table(("a job that waits", "means"), rows)
    return waiting + "\n" + table(("a job that ended", "means"), ends)


def _camel_case() -> set[str]:
    """Returns the texts in the live side's code that are spelled as reasons are."""
    files = Path(dovetail.live.__path__[0]).rglob("*.py")
    nodes = (n for file in files for n in ast.walk(ast.parse(file.read_text())))
    texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    found = {text for text in texts if re.fullmatch(r"([A-Z][a-z]+){2,}", text)}
    return (found | SENTENCES.keys()) - words.NOT_REASONS


def _same_names(what: str, coded: set[str], written: Iterable[str]) -> None:
    known = set(written)
    if coded != known:
        sys.exit(f"{what}: without words {coded - known}, not in the code {known - coded}")


# JSON


LIVE_JSON = {
    "submit": "`jobs`, `ignored`, `notes`, with `--wait` also `ended` (jobs, state, exit code)",
    "up": "`home`, `pid`, `address`",
    "down": "`down`, `left_running`",
    "drain": "`node`, `draining`",
    "top": "`cluster` (as `ping` of the client), `nodes` (as `nodes`), `jobs` (as `ls`)",
    "history JOB, --events": "one record of the [event log](event-log.md) a line",
    "history --export, --trace": "`export`, `lines`; `trace`, `jobs`, `guessed` (lengths)",
    "profile --learned": "`models`, `pairs`, `profile`",
}
MESSAGES: dict[str, type] = {
    "ls, history": listing.JobList,
    "show": one_job.ShowReply,
    "why": reason.ExplainReply,
    "nodes": cluster.NodeList,
    "cancel, requeue, hold, release": changes.ChangeReply,
    "logs": output.LogsReply,
    "ping": cluster.PingReply,
}


def live_json() -> str:
    """Returns the fields of what commands of a live cluster print."""
    lines = [item(f"`{name}`: {_fields(message)}") for name, message in MESSAGES.items()]
    lines += [item(f"`{name}`: {text}") for name, text in LIVE_JSON.items()]
    commands = Path(dovetail.cli.__path__[0]).glob("*.py")
    code = "".join(file.read_text() for file in commands)
    named = {n for text in LIVE_JSON.values() for n in re.findall(r"`(\w+)`", text)} - {
        "ls",
        "ping",
    }
    _same_names("JSON of live commands", {n for n in named if f'"{n}"' in code}, named)
    return "".join(lines) + item(f"a job row, in `ls` and `show`: {_fields(listing.JobRow)}")


def _fields(message: type) -> str:
    return ", ".join(f"`{name}{_inside(hint)}`" for name, hint in _hints(message).items())


def _hints(message: type) -> dict[str, object]:
    hints = get_type_hints(message).items()
    return {name: hint for name, hint in hints if get_origin(hint) is not ClassVar}


def _inside(hint: object) -> str:
    """Returns the names of the fields of the messages that a field lists, but for job rows."""
    listed = [a for a in get_args(hint) if is_dataclass(a) and a is not listing.JobRow]
    return f"[{', '.join(_hints(listed[0]))}]" if listed else ""  # type: ignore[arg-type]


_TRACE = "job_id,submit_s,gpus,duration_s\n0,0,1,10\n1,1,2,20\n2,5,1,30\n"
OFFLINE = (
    "compare t.csv -p fifo,srtf --processes 1",
    "whatif t.csv -p fifo --cluster 1x4 --nodes +1 --processes 1",
    "chargeback out",
    "bound t.csv",
    "replay out/events.jsonl",
    "trace import t.csv -o i.csv",
    "trace describe t.csv --cluster 1x4",
    "trace generate poisson --jobs 50 --days 2 --cluster 2x4 -o g.csv",
    "trace slice t.csv --jobs 2 -o s.csv",
    "trace scale t.csv --compress 2 -o s.csv",
    "trace convert t.csv s.parquet",
    "trace forecast g.csv",
    "policies fifo",
    "models",
    "models devices",
    "models show resnet50",
)
"""Command lines whose JSON is read for its fields, on a trace of three jobs."""
BY_NAME = {
    "runs",
    "counts",
    "source_counts",
    "bounds",
    "policies",
    "speed",
    "memory_bytes",
    "provenance",
    "fields",
    "all",
    "errors",
    "by_evidence",
}
"""Fields that are objects with names of the data as keys."""


def offline_json() -> str:
    """Returns the fields of what commands about traces and runs print, as they print them."""
    lines = []
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("t.csv").write_text(_TRACE)
        _printed("simulate t.csv -p fifo -o out --no-report")
        for line in OFFLINE:
            name = re.match(r"(?:(?:trace|models) [a-z]+|[a-z]+)", line)
            assert name is not None
            lines.append(item(f"`{name[0]}`: {_keys(json.loads(_printed(line)))}"))
    return "".join(lines)


def _printed(line: str) -> str:
    out = StringIO()
    with redirect_stdout(out), redirect_stderr(StringIO()) as err:
        code = run([*line.split(), "--json"])
    if code:
        sys.exit(f"dovetail {line}: {err.getvalue()}")
    return out.getvalue()


def _keys(value: dict[str, object]) -> str:
    shown = []
    for key, inner in value.items():
        first = inner[0] if isinstance(inner, list) and inner else inner
        if isinstance(first, dict) and key == "policies" and "avg_jct_s" in first:
            shown.append(f"`{key}` (columns of [the comparison](metrics.md#the-comparison))")
        elif isinstance(first, dict) and key in BY_NAME and not isinstance(inner, list):
            shown.append(f"`{key}{{}}`")
        elif isinstance(first, dict):
            shown.append(f"`{key}[{', '.join(first)}]`")
        else:
            shown.append(f"`{key}`")
    return ", ".join(shown)


# The rest


def environment() -> str:
    """Returns the environment variables of ours that the code names."""
    files = [f for place in ("src", "papers", "benchmarks") for f in (ROOT / place).rglob("*.py")]
    named = {v for f in files for v in re.findall(r'"(DOVETAIL_[A-Z_]*[A-Z])"', f.read_text())}
    _same_names("environment variables", named, words.ENVIRONMENT)
    rows = [(f"`{name}`", *said) for name, said in words.ENVIRONMENT.items()]
    return table(("variable", "read by", "means (default)"), rows)


def policies() -> str:
    """Returns all policies of the package: what each is, knows and may do."""
    lines = []
    pages = {entry.cls: name for name, entry in registered().items() if not entry.is_preset}
    for name, entry in registered().items():
        if entry.module.startswith("dovetail.policies."):
            policy = entry()
            summary = " ".join(entry.page.split("\n\n")[0].split()).rstrip(".")
            knows = ", ".join(sorted(policy.knows)) or "nothing"
            powers = ", ".join(sorted(policy.powers)) or "start"
            summary = re.sub(rf"^{name}: ", "", summary, flags=re.IGNORECASE)
            link = f"[{name}](../policies/{pages[entry.cls]}.md)"
            lines.append(item(f"{link}: {summary}. Knows *{knows}*; may *{powers}*."))
    return "".join(lines)


def _examples(cls: type) -> Iterator[tuple[object, ...]]:
    """Yields values for the fields of a fact: plain ones, and such as show every field."""
    plain = Placement(((0, 1),))
    full = Placement(((0, 1),), ((0,),), 2, (0.5,), (1,), Interleave(0, 0), 8, 0.5)
    of = {float: (0.0, 1.0), int: (0, 1), str: ("", "x"), Placement: (plain, full)}
    of |= {tuple[int, ...]: ((), (7,)), tuple[tuple[int, int, str], ...]: ((), ((0, 0, "down"),))}
    of |= {tuple[float, ...]: ((), (1.0,))}
    kinds = [get_type_hints(cls)[name] for name in cls._fields]  # type: ignore[attr-defined]
    for i in (0, 1):
        yield tuple(of[k][i] if k in of else (facts.Reason("x", 0, 0, 0),) for k in kinds)


PLACEMENT = (
    "`on`, [`gpu_ids`], [`steps`], [`gpu_part`], [`fractions`], [`samples`], [`batch`], [`seat`]"
)


def events() -> str:
    """Returns the records of the event log with their fields; optional ones in brackets."""
    rows = []
    spell = FactLines(lambda job: '"7"', lambda fact: json.dumps(_submitted(fact)))
    for cls in get_args(facts.Fact):
        plain, full = (json.loads(spell.line(cls(*e))) for e in _examples(cls))
        names = [f"`{n}`" if n in plain else f"[`{n}`]" for n in full if n not in ("t", "e")]
        fields = ", ".join(names).replace(PLACEMENT, "a placement")
        rows.append((f"`{full['e']}`", fields, words.EVENTS[full["e"]]))
    _same_names("events", {row[0].strip("`") for row in rows}, words.EVENTS)
    said = item(f"a placement: {PLACEMENT}")
    return table(("`e`", "fields beside `t`", "means"), rows) + "\n" + said


def _submitted(fact: facts.Submitted) -> dict[str, object]:
    told = {"distribution": fact.distribution} if fact.distribution else {}
    request = {"t": 0.0, "e": "submitted", "job": "7", "gpus": 1, "work_s": 1.0}
    return {**request, "length_s": 1.0, **told}


def python() -> str:
    """Returns the public names of the notebook's module, the client and the training library."""
    import dovetail.api
    import dovetail.train

    def members(cls: type) -> list[str]:
        return [f"`{n}`" for n in dir(cls) if not n.startswith("_")]

    arguments = list(inspect.signature(dovetail.train.Job.__init__).parameters)[1:]
    lines = (
        ("`import dovetail`", [f"`{n}`" for n in dovetail.__all__ if n != "__version__"]),
        ("`dovetail.live.client.Client`", members(Client)),
        ("arguments of `dovetail.train.Job`", [f"`{n}`" for n in arguments]),
        ("its members", members(dovetail.train.Job)),
    )
    return "".join(item(f"{name}: {', '.join(of)}") for name, of in lines)


SECTIONS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "states": states,
    "reasons": reasons,
    "live-json": live_json,
    "offline-json": offline_json,
    "environment": environment,
    "policies": policies,
    "events": events,
    "python": python,
}


def written(page: Path) -> str:
    """Returns a page as it should be."""
    text = page.read_text()
    return _SECTION.sub(lambda found: f"{found[1]}\n{SECTIONS[found[2]]()}\n{found[3]}", text)


def generated_pages() -> list[Path]:
    """Returns the pages that have a generated section."""
    return sorted(p for p in PAGES.rglob("*.md") if _SECTION.search(p.read_text()))


def main() -> int:
    """Returns the exit code: 1 if `--check` finds a page that differs from the code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    stale = [page for page in generated_pages() if page.read_text() != written(page)]
    for page in stale:
        print(f"{'differs' if check else 'written'}: {page.relative_to(ROOT)}")
        if not check:
            page.write_text(written(page))
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
