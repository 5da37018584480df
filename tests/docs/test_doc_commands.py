"""Every command shown is one that the program takes, and every command and option is shown."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from doc_pages import PAGES, ROOT, blocks, command_lines, prose, title
from dovetail.cli.main import MOVED, cli
from papers.__main__ import reproduce
from tools.zoo.__main__ import zoo

INLINE = re.compile(r"`(dovetail [^`]+)`")
NOT_COMMANDS = re.compile(r"\.\.\.|…| \| |\[|^dovetail [A-Z]")
"""Shorthand: an ellipsis, alternatives, optional parts."""
HISTORY = ("CHANGELOG.md", "docs/decisions.md")
"""Pages that name commands of earlier versions."""
CHECKOUT = {"python -m papers": reproduce, "python -m tools.zoo": zoo}
"""What runs from a checkout, by how it is typed."""


def resolve(words: list[str]) -> tuple[click.Command, click.Context, list[str]]:
    """Returns the command that words name, its context, and the words left for it."""
    command: click.Command = cli
    context = click.Context(cli, info_name="dovetail")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            break
        context = click.Context(found, parent=context, info_name=words[0])
        command, words = found, words[1:]
    return command, context, words


def commands(
    group: click.Command = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yields every command with its words."""
    if not isinstance(group, click.Group):
        yield path, group
        return
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        assert found is not None
        yield from commands(found, (*path, name))


def shown(page: Path) -> list[str]:
    """Returns the whole `dovetail` command lines of a page's fenced blocks."""
    return [
        re.split(r"\s{2,}", line)[0]  # what stands far behind a command explains it
        for block in blocks(page)
        if block.info in ("", "sh", "sh run", "bash", "shell")
        for line in command_lines(block.text)
        if line.startswith("dovetail ") and not NOT_COMMANDS.search(line)
    ]


def mentioned(page: Path) -> list[str]:
    """Returns the command lines between backticks."""
    inside = [" ".join(line.split()) for line in INLINE.findall(prose(page))]
    return [line for line in inside if not NOT_COMMANDS.search(line)]


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_command_line_shown_is_taken(page: Path) -> None:
    for line in shown(page):
        command, context, words = resolve(shlex.split(line, comments=True)[1:])
        if isinstance(command, click.Group):
            # A group that does something by itself, as `dovetail models --profiles FILE`.
            asks = bool(words) and words[0] in ("--help", "--version")
            assert command.invoke_without_command or asks, f"{title(page)}: {line}"
        try:
            command.make_context(context.info_name, words, parent=context.parent)
        except click.exceptions.Exit:
            pass
        except click.ClickException as error:
            pytest.fail(f"{title(page)}: {line}: {error.format_message()}")


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_command_mentioned_exists_with_its_options(page: Path) -> None:
    for line in mentioned(page):
        command, _, words = resolve(line.split()[1:])
        if title(page) in HISTORY and words[:1] and words[0] in MOVED:
            continue
        assert command is not cli or words[0].startswith("-"), f"{title(page)}: {line}"
        known = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
        for word in words:
            if word.startswith("--"):
                assert word.partition("=")[0] in known | {"--help"}, f"{title(page)}: {line}"


@pytest.mark.parametrize("words", [" ".join(w) for w, _ in commands()])
def test_every_command_is_documented(words: str) -> None:
    whole = "\n".join(page.read_text() for page in PAGES)
    assert re.search(rf"dovetail {re.escape(words)}\b", whole), f"dovetail {words} is nowhere"


@pytest.mark.parametrize("name", ["simulate", "compare"])
def test_every_option_of_a_run_is_explained(name: str) -> None:
    guide = (ROOT / "docs/reference/run-options.md").read_text()
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            longest = max(parameter.opts, key=len)
            assert re.search(rf"{re.escape(longest)}\b", guide), f"{longest} of {name}"


@pytest.mark.parametrize("words", [" ".join(w) for w, _ in commands()])
def test_every_command_has_help_with_an_example_and_json(words: str) -> None:
    command, context, _ = resolve(words.split())
    said = command.get_help(context)
    assert "Example" in said
    assert "--json" in said or words in ("agent", "run")  # whose output is that of programs


@pytest.mark.parametrize("program", CHECKOUT)
def test_what_runs_from_a_checkout_is_shown_as_it_is_taken(program: str) -> None:
    shown = [
        re.split(r"\s{2,}|`|\)", found)[0].partition(" #")[0]
        for page in PAGES
        for found in re.findall(rf"{program}\b(.*)", page.read_text())
    ]
    assert len(shown) > 3
    for words in shown:
        arguments = [word for word in words.split() if word != "PAPER"]
        try:
            with CHECKOUT[program].make_context(program, arguments, resilient_parsing=False):
                pass
        except click.exceptions.Exit:
            pass
        except click.ClickException as error:
            pytest.fail(f"{program}{words}: {error.format_message()}")
