"""`ssh:FILE`: agents are started on plain machines by the OpenSSH client of this one.

Which keys, which jump hosts and whose host keys are trusted stays the user's ssh configuration;
nothing is asked for. A connection lasts until the agent runs there, and no longer. The join word
goes over standard input: command lines and environments can be read by other users.
"""

from __future__ import annotations

import logging
import re
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from dovetail.core.errors import DovetailError
from dovetail.live.engines.node_file import NodeEntry, read_node_file
from dovetail.live.join.word import JoinWord
from dovetail.live.system.daemon import RUNS_ALREADY
from dovetail.version import __version__

LOG = logging.getLogger(__name__)
AT_ONCE = 16
CONNECT_S = 10
START_S = 180.0
"""An agent imports first, on a machine that may be busy, from a disk that may be slow."""
END_S = 30.0
FOLDERS = ".dovetail-agents"
"""In the home directory there; below it one folder for each cluster and node."""
OPTIONS = (
    "-T", "-a", "-x",
    "-o", "BatchMode=yes",
    "-o", f"ConnectTimeout={CONNECT_S}",
    "-o", "ServerAliveInterval=10",
    "-o", "ControlMaster=no",
    "-o", "ControlPath=none",
    "-o", "ClearAllForwardings=yes",
    "-o", "RemoteCommand=none",
)  # fmt: skip
"""No connection is shared: agents must not hang by one that lives longer or ends earlier."""
SSH_FAILED = 255
NO_FOLDER, NO_COMMAND, NO_VERSION, NOT_OURS, NO_WORD = 91, 92, 93, 94, 95
VERSION_LINE = "dovetail-there "

START = """\
umask 077
mkdir -p {folder} || exit {no_folder}
command -v {command} >/dev/null 2>&1 || exit {no_command}
there=$({command} --version) || exit {no_version}
printf '{version_line}%s\\n' "$there"
if test -s {folder}/join; then grep -q {fingerprint} {folder}/join || exit {not_ours}; fi
rm -f {folder}/join.new
(set -C; cat >{folder}/join.new) && mv -f {folder}/join.new {folder}/join || exit {no_word}
unset SSH_CLIENT SSH_CONNECTION SSH_TTY
exec {command} agent --join {folder}/join --folder {folder}{options} --daemon </dev/null
"""
"""Makes no file through another user's link, even in a folder that others may write: `set -C`."""
START_BY_NODE = """\
unset SSH_CLIENT SSH_CONNECTION SSH_TTY
exec {start}
"""
END = """\
cd {folder} 2>/dev/null || exit 0
grep -q {fingerprint} join 2>/dev/null || exit 0
rm -f join
process=$(cat agent.lock) || exit 0
test -n "$process" || exit 0
tr '\\0' ' ' <"/proc/$process/cmdline" 2>/dev/null | grep -q ' agent --join ' || exit 0
kill "$process"
"""
"""Ends an agent that was not dismissed. It has no workers: only an idle cluster is ended."""


@dataclass(frozen=True, slots=True)
class SshOutput:
    """How a script ended on another machine: its exit code and the end of what it wrote."""

    code: int
    said: str
    errors: str

    @property
    def last_error(self) -> str:
        """The last line on standard error: before it may be a banner."""
        lines = [line.strip() for line in self.errors.splitlines() if line.strip()]
        return lines[-1].removeprefix("dovetail: ") if lines else ""


class SshStarter:
    """Starts the agents of the nodes in a file."""

    owns_agents = True
    lists_all = True
    starts_at_once = AT_ONCE
    gate_host = ""

    def __init__(self, file: Path) -> None:
        self._entries: Mapping[str, NodeEntry] = {node.name: node for node in read_node_file(file)}
        self._fingerprint = ""
        self._told: set[str] = set()

    def nodes(self) -> Sequence[str]:
        """Returns the names in the file, as it was when this controller started."""
        return tuple(self._entries)

    def start(self, name: str, word: Path) -> None:
        """Starts an agent and returns when it runs. Raises DovetailError, which says why not."""
        node, join = self._entries[name], JoinWord.read(word)
        self._fingerprint = join.fingerprint
        result = run_there(node, start_script(node, join.fingerprint), START_S, join.text + "\n")
        version = _version_in(result.said)
        if result.code == 0:
            if version not in ("", __version__) and name not in self._told:
                self._told.add(name)
                LOG.warning(
                    "node %s has dovetail %s, and this one is %s", name, version, __version__
                )
            return
        if RUNS_ALREADY in result.errors:
            folder = folder_of(node, join.fingerprint)
            LOG.warning(
                "the agent of node %s runs, and has not joined; see %s/agent.log there",
                name,
                folder,
            )
            return
        raise DovetailError(_failure(node, result, version, join.fingerprint))

    def gone(self) -> Sequence[str]:
        """Returns none: a machine that does not answer may be cut off, and train."""
        return ()

    def close(self, *, end: bool) -> None:
        """Removes the join words there, and ends agents that could not be dismissed."""
        if not end or not self._fingerprint:
            return
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="ssh") as pool:
            # An agent that the node's own command starts is root's: it ends when it is dismissed.
            list(pool.map(self._end, (n for n in self._entries.values() if not n.start)))

    def _end(self, node: NodeEntry) -> None:
        try:
            result = run_there(node, end_script(node, self._fingerprint), END_S)
        except DovetailError as error:
            LOG.error("an agent may still run on node %s: %s", node.name, error)
            return
        if result.code == SSH_FAILED:
            LOG.error("an agent may still run on node %s: %s", node.name, result.last_error)


def run_there(node: NodeEntry, script: str, timeout_s: float, given: str = "") -> SshOutput:
    """Runs a script of sh on the machine of a node. Raises DovetailError if ssh cannot be run."""
    # Whatever the login shell there is, it has to take one quoted word of one line and no more.
    line = "; ".join(script.splitlines())
    words = ["ssh", *OPTIONS]
    words += ["-p", str(node.port)] if node.port else []
    words += ["-l", node.user] if node.user else []
    words += ["--", node.address or node.name, f"exec sh -c {quote(line)}"]
    try:
        done = subprocess.run(
            words,
            input=given.encode(),
            capture_output=True,
            timeout=timeout_s,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise DovetailError(f"ssh {_place(node)} did not end within {timeout_s:g} s") from None
    except OSError as error:
        mend = "install the OpenSSH client on this machine"
        raise DovetailError(f"ssh cannot be run: {error.strerror}; {mend}") from None
    out, errors = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
    return SshOutput(done.returncode, out, errors)


def folder_of(node: NodeEntry, fingerprint: str) -> str:
    """Returns the folder of an agent, relative to the home directory there unless absolute.

    By default each cluster has its own: nodes of two may have one name and one home directory.
    """
    return (node.folder or f"{FOLDERS}/{fingerprint[:12]}/{node.name}").removeprefix("~/")


def start_script(node: NodeEntry, fingerprint: str) -> str:
    """Returns what starts an agent, with the join word as standard input."""
    if node.start:
        return START_BY_NODE.format(start=node.start)
    slots = f" --slots {node.slots}" if node.slots else ""
    host = f" --host {quote(node.host)}" if node.host else ""
    return START.format(
        folder=_path(folder_of(node, fingerprint)),
        command=_path(node.command),
        fingerprint=fingerprint,
        options=slots + host,
        version_line=VERSION_LINE,
        no_folder=NO_FOLDER,
        no_command=NO_COMMAND,
        no_version=NO_VERSION,
        not_ours=NOT_OURS,
        no_word=NO_WORD,
    )


def end_script(node: NodeEntry, fingerprint: str) -> str:
    """Returns what leaves no join word and no agent."""
    return END.format(folder=_path(folder_of(node, fingerprint)), fingerprint=fingerprint)


def _path(text: str) -> str:
    """Returns a path of that machine as a word of sh; no word may be taken for an option."""
    path = text.removeprefix("~/")
    is_own = path != text or path.startswith("-")
    return f'"$HOME"/{quote(path)}' if is_own else quote(path)


def _place(node: NodeEntry) -> str:
    host = node.address or node.name
    user, port = f"{node.user}@" if node.user else "", f", port {node.port}" if node.port else ""
    return f"{user}{host}{port}"


def _version_in(text: str) -> str:
    """Returns the version of `dovetail` there; empty if it was not asked."""
    found = re.search(rf"^{VERSION_LINE}.*?(\d\S*)\s*$", text, re.MULTILINE)
    return found[1] if found else ""


def _failure(node: NodeEntry, result: SshOutput, version: str, fingerprint: str) -> str:
    """Returns why an agent was not started, and what to do."""
    place, last = _place(node), result.last_error
    folder, command = folder_of(node, fingerprint), node.command
    if result.code == SSH_FAILED:
        return f"ssh {place}: {last or 'the connection was lost'}{_mend_of_ssh(place, last)}"
    reasons = {
        NO_FOLDER: f"the folder {folder} cannot be made: {last}",
        NO_COMMAND: f"{command} is not found; install dovetail {__version__} there, or give its "
        "path as command",
        NO_VERSION: f"{command} --version fails: {last}",
        NOT_OURS: f"the folder {folder} has the agent of another cluster; give the node another "
        "folder, or remove it if that cluster is no more",
        NO_WORD: f"the join word cannot be written into {folder}: {last}",
    }
    if result.code in reasons:
        return f"{place}: {reasons[result.code]}"
    differs = f" (dovetail {version} is there, and {__version__} here)"
    is_other = version not in ("", __version__)
    return f"{place}: {last or f'exit code {result.code}'}{differs * is_other}"


def _mend_of_ssh(place: str, last: str) -> str:
    if "Permission denied" in last:
        return f"; it must work without a password: ssh -o BatchMode=yes {place.split(',')[0]} true"
    if "Host key verification failed" in last:
        return f"; log in once to check its key: ssh {place.split(',')[0]}"
    return ""
