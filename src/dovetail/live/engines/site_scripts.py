"""The scripts of a site on each node: a check of its health, and what runs around each job there.

As Slurm's HealthCheckProgram, Prolog and Epilog: a script that fails, or takes too long, drains the
node with its first line of output as the reason. A check that succeeds again gives the node back.

The agent polls the scripts and never waits for one. Which they are stands in a file that is read
again before each run, so that agents need not be restarted for another script: `dovetail up` writes
it for the agents of its machine, and those of other machines when they have joined.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from dovetail.files.whole_file import PRIVATE, write_whole
from dovetail.live.node.launcher import BY_NODE, NOT_NOW, LaunchError
from dovetail.live.system.private_file import make_private_folder
from dovetail.wire.agent import CHECK, DRAIN, NodeFault, StartWorker
from dovetail.wire.codec import WireError, build
from dovetail.wire.site import AS_USUAL, SiteSettings

FILE = "site.json"
LINE_MAX = 200
FORGOTTEN_S = 10.0
"""An agent asks four times a second for a start that waits: after so long nobody wants it."""
TOLD_S = 60.0
"""How long a failure is reported."""


def read_site(file: Path) -> SiteSettings:
    """Returns what a file says; the defaults where there is none or it is damaged."""
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        return build(SiteSettings, said) if isinstance(said, dict) else AS_USUAL
    except (OSError, ValueError, WireError):
        return AS_USUAL


def write_site(settings: SiteSettings, file: Path) -> None:
    """Writes the file, or removes it if all is as without one. Raises OSError."""
    if settings != AS_USUAL:
        write_whole(file, json.dumps(asdict(settings)), mode=PRIVATE, synced=False)
    else:
        file.unlink(missing_ok=True)


class ScriptRun:
    """One run of a script, killed with all that it started once its time is over."""

    def __init__(self, path: str, out: Path, variables: Mapping[str, str], limit_s: float) -> None:
        self._path, self._out, self._limit_s = path, out, limit_s
        self._failed = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._give_up_s = time.monotonic() + limit_s
        try:
            if os.stat(path).st_mode & stat.S_IWOTH:
                self._failed = f"{path} can be changed by every user"
                return
            with out.open("wb") as file:
                self._process = subprocess.Popen(
                    [path],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **variables},
                    cwd="/",
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            self._failed = f"{path} cannot be run: {error}"

    def failed(self) -> str | None:
        """Returns None while it runs, then why it failed: empty if it did not."""
        process = self._process
        if process is None:
            return self._failed
        code = process.poll()
        if code is None and time.monotonic() < self._give_up_s:
            return None
        # What it left behind ends with it.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        self._process = None
        if code is None:
            process.wait()
            self._failed = f"{self._path} took longer than {self._limit_s:g} s"
        elif code:
            self._failed = self._line() or f"{self._path} ended with exit code {code}"
        return self._failed

    def _line(self) -> str:
        """Returns the first line of its output that is not empty."""
        try:
            with self._out.open("rb") as file:
                text = file.read(LINE_MAX * 8).decode("utf-8", "replace")
        except OSError:
            return ""
        lines = ("".join(c for c in line if c.isprintable()) for line in text.splitlines())
        return next((line.strip()[:LINE_MAX] for line in lines if line.strip()), "")


class HealthScript:
    """Runs the site's check again and again; `fault` is what the last run that ended found."""

    def __init__(self, file: Path, folder: Path, clock: Callable[[], float] = time.monotonic):
        self._file, self._folder, self._clock = file, folder, clock
        self._run: ScriptRun | None = None
        self._next_s = clock()
        self.fault: NodeFault | None = None
        self.ran = False

    @property
    def is_first(self) -> bool:
        """Returns whether the first run is under way: nothing is known of the node yet."""
        return self._run is not None and not self.ran

    def tick(self) -> None:
        """Begins a run that is due, and reads the end of one."""
        now = self._clock()
        if self._run is not None:
            why = self._run.failed()
            if why is not None:
                self._run, self.ran = None, True
                self.fault = NodeFault(-1, CHECK, DRAIN, f"health check: {why}") if why else None
        elif now >= self._next_s:
            scripts = read_site(self._file)
            self._next_s = now + scripts.health_every_s
            if scripts.health_check:
                make_private_folder(self._folder)
                out = self._folder / "health-check.out"
                self._run = ScriptRun(scripts.health_check, out, {}, scripts.script_limit_s)
            elif self.ran:
                self.fault = None  # The operator has taken the check away.


@dataclass(slots=True)
class _OnNode:
    """A job on this node: its workers that live, its GPUs, and the script that runs for it."""

    variables: dict[str, str]
    gpus: set[int]
    workers: set[int]
    prolog: ScriptRun | None = None
    epilog: ScriptRun | None = None
    is_ready: bool = False
    asked_s: float = 0.0


class JobScripts:
    """Runs the prolog before the first worker of a job on a node, and the epilog after its last.

    What is under way stands in `folder`, one file a job: an agent that starts later runs the epilog
    of a job whose last worker ended meanwhile, and a prolog that was interrupted once more.
    """

    def __init__(self, file: Path, folder: Path, names: tuple[str, ...]) -> None:
        self._file, self._folder, self._names = file, folder, names
        self._jobs: dict[int, _OnNode] = {}
        self._blamed: dict[str, tuple[NodeFault, float]] = {}
        self.adopted = False

    def must_wait(self, order: StartWorker) -> str:
        """Returns what a worker must wait for, empty if for nothing. Raises LaunchError."""
        for number, there in self._jobs.items():
            if there.epilog is not None and there.gpus.intersection(order.all_gpus):
                return f"the epilog of job {number} runs"
        job = self._jobs.get(order.job) or self._enter(order)
        if job is None:
            return ""
        job.gpus.update(order.local_gpus or order.all_gpus)
        job.asked_s = time.monotonic()
        if job.prolog is not None:
            why = job.prolog.failed()
            if why is None:
                return "the prolog runs"
            job.prolog = None
            if why:
                self._leave(order.job)
                self._blame("prolog", order.job, why)
                raise LaunchError(f"{BY_NODE}: prolog: {why}", NOT_NOW)
            job.is_ready = True
        return ""

    def _enter(self, order: StartWorker) -> _OnNode | None:
        """Begins with a job that is new here; None if the site has no scripts for jobs."""
        scripts = read_site(self._file)
        if not (scripts.prolog or scripts.epilog):
            return None
        gpus = order.local_gpus or order.all_gpus
        variables = {
            "DOVETAIL_JOB": str(order.job),
            "DOVETAIL_USER": order.user,
            "DOVETAIL_GPUS": ",".join(self._names[gpu] for gpu in gpus),
            "DOVETAIL_WORKDIR": order.workdir,
        }
        job = self._jobs[order.job] = _OnNode(variables, set(gpus), set())
        make_private_folder(self._folder.parent)
        make_private_folder(self._folder)
        with suppress(OSError):
            stored = {"variables": variables, "gpus": sorted(gpus)}
            write_whole(self._path(order.job), json.dumps(stored), mode=PRIVATE, synced=False)
        if scripts.prolog:
            out = self._folder / f"{order.job}.prolog.out"
            job.prolog = ScriptRun(scripts.prolog, out, variables, scripts.script_limit_s)
        else:
            job.is_ready = True
        return job

    def started(self, job: int, worker: int) -> None:
        """Counts a worker that starts, or that an earlier agent started."""
        known = self._jobs.get(job)
        if known is None and not self.adopted:
            known = self._restore(job)
        if known is not None:
            known.workers.add(worker)
            known.is_ready = True

    def ended(self, job: int, worker: int) -> None:
        """Runs the epilog of a job once its last worker here is gone."""
        known = self._jobs.get(job)
        if known is not None:
            known.workers.discard(worker)
            if not known.workers and known.is_ready and known.epilog is None:
                self._end(job, known)

    def _end(self, number: int, job: _OnNode) -> None:
        scripts = read_site(self._file)
        if not scripts.epilog:
            self._leave(number)
            return
        out = self._folder / f"{number}.epilog.out"
        job.prolog = None
        job.epilog = ScriptRun(scripts.epilog, out, job.variables, scripts.script_limit_s)

    def tick(self) -> None:
        """Reads the ends of epilogs, and of prologs whose job was taken away meanwhile."""
        now = time.monotonic()
        for name, (_, until_s) in list(self._blamed.items()):
            if now >= until_s:
                del self._blamed[name]
        for number, job in list(self._jobs.items()):
            if job.prolog is not None and now >= job.asked_s + FORGOTTEN_S:
                if job.prolog.failed() is not None:
                    self._end(number, job)
                continue
            why = job.epilog.failed() if job.epilog is not None else None
            if why is not None:
                self._leave(number)
                if why:
                    self._blame("epilog", number, why)

    @property
    def faults(self) -> tuple[NodeFault, ...]:
        """The failures of prologs and epilogs, each for a minute: a user's undo must last."""
        return tuple(fault for fault, _ in self._blamed.values())

    def finish_adopting(self) -> None:
        """Runs the epilogs of jobs whose workers ended while no agent ran."""
        self.adopted = True
        for file in sorted(self._folder.glob("*.json")):
            number = int(file.stem) if file.stem.isdecimal() else -1
            if number >= 0 and number not in self._jobs:
                job = self._restore(number)
                if job is not None:
                    self._end(number, job)

    def _restore(self, number: int) -> _OnNode | None:
        try:
            said = json.loads(self._path(number).read_text(encoding="utf-8"))
            variables = {str(name): str(value) for name, value in said["variables"].items()}
            job = _OnNode(variables, {int(gpu) for gpu in said["gpus"]}, set(), is_ready=True)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        self._jobs[number] = job
        return job

    def _leave(self, number: int) -> None:
        self._jobs.pop(number, None)
        for name in (f"{number}.json", f"{number}.prolog.out", f"{number}.epilog.out"):
            with suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)

    def _blame(self, script: str, job: int, why: str) -> None:
        fault = NodeFault(-1, script, DRAIN, f"{script} of job {job}: {why}")
        self._blamed[script] = fault, time.monotonic() + TOLD_S

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.json"
