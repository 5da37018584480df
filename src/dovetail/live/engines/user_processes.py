"""Workers that run as the submitters of their jobs, started by an agent that is root.

The agent goes by its own copy of who may use the cluster, never by what the controller says: that
can have jobs run as any user in the list, and as nobody else. Root itself makes the folder of a job
and gives it to its owner; all else (script, output, program) is done by the worker's process after
it has become the user, and files travel with the rights of the user.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from dovetail.live.access.file_access import file_access_of
from dovetail.live.access.shared_jobs import is_shared_out
from dovetail.live.access.user_entry import NOBODY, UID_MIN, UserEntry, user_entry
from dovetail.live.access.user_list import ROOT, UserList
from dovetail.live.engines.cgroup import ControlGroups
from dovetail.live.engines.devices import Devices
from dovetail.live.engines.gpu_release import GpuRelease
from dovetail.live.engines.keeper import KeeperOrder
from dovetail.live.engines.local import LocalProcessSettings
from dovetail.live.engines.site_scripts import JobScripts
from dovetail.live.engines.stored_lease import StoredLease
from dovetail.live.jobs.lineage import take_up_lineage
from dovetail.live.node.launcher import NOT_NOW, LaunchError
from dovetail.live.node.rendezvous_addresses import LOOPBACK
from dovetail.wire.agent import StartWorker

INHERITED = ("PATH", "LANG", "LC_", "TZ", "LD_LIBRARY_PATH", "CUDA_", "NVIDIA_", "NCCL_")
"""Prefixes of the variables of the agent that workers of users inherit: nothing else of root's."""
JOB_FOLDER, OWN_JOB_FOLDER = 0o2750, 0o700
"""Its owner's, and readable to the group of the controller, also what is made in it later; or its
owner's alone, where the controller is on another machine.
"""


@dataclass(frozen=True, slots=True)
class UserJobs:
    """Who may run jobs, and the folder of root's below which each job has its own.

    With `joins` that is so for files that travel; else it is in the folder that nodes share.
    """

    users: Callable[[], UserList]
    folder: Path
    log: Callable[[str], None] = lambda text: None
    joins: bool = False


class UserProcessSettings(LocalProcessSettings):
    """The settings of workers that run as the submitters of their jobs."""

    def __init__(
        self,
        user_jobs: UserJobs,
        devices: Devices,
        socket: Path,
        groups: ControlGroups,
        release: GpuRelease | None = None,
        lease: StoredLease | None = None,
        host: str = LOOPBACK,
        scripts: JobScripts | None = None,
    ) -> None:
        inherited = {n: v for n, v in os.environ.items() if n.startswith(INHERITED)}
        super().__init__(devices, socket, groups, inherited, release, lease, host, scripts)
        self._jobs = user_jobs
        self._uids: dict[tuple[int, int], int] = {}
        self.uids = self._uids

    def must_wait(self, order: StartWorker) -> str:
        """Returns what a worker waits for. Raises LaunchError for one that may not run."""
        if order.ships or order.container_image:
            # Files come before the worker starts, into a folder of its owner's; and a runtime of
            # containers is asked only as somebody who may run jobs.
            try:
                self.make_folder(order)
            except ValueError as error:
                raise LaunchError(str(error)) from None
            except OSError as error:
                raise LaunchError(f"{error.filename}: {error.strerror}", NOT_NOW) from None
        return super().must_wait(order)

    def make_folder(self, order: StartWorker) -> None:
        """Makes the folder of a job for its owner. Raises OSError, and ValueError for a refusal."""
        entry = self._entry(order)
        is_shared = self._jobs.joins and not order.ships
        jobs = self.shared if is_shared else self._jobs.folder
        if jobs is None or Path(order.folder) != jobs / str(order.job):
            raise ValueError(self._refused(order, f"{order.folder} is not the folder of its job"))
        above = os.open(jobs, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            # It was named by the controller: root makes folders only where root has said so.
            if is_shared and not is_shared_out(above):
                raise ValueError(self._refused(order, f"{jobs} was not shared out by root"))
            self._give_folder(order, above, entry)
        finally:
            os.close(above)
        if is_shared and order.trains and order.lineage:
            with file_access_of(entry.uid, entry.gid):
                take_up_lineage(Path(order.folder), order.lineage)

    def _give_folder(self, order: StartWorker, above: int, entry: UserEntry) -> None:
        name = str(order.job)
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=above)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(name, flags, dir_fd=above)
        try:
            # Root's if an agent was killed in between; another user's is refused.
            owner = os.fstat(folder).st_uid
            if owner == ROOT:
                reader = entry.gid if order.ships else self._jobs.users().controller.gid
                os.fchown(folder, entry.uid, reader)
                os.fchmod(folder, OWN_JOB_FOLDER if order.ships else JOB_FOLDER)
            elif owner != entry.uid:
                raise ValueError(self._refused(order, f"{order.folder} belongs to another user"))
        finally:
            os.close(folder)

    def owner(self, order: StartWorker) -> int:
        """Returns the uid of a worker; of one that is not known it is nobody's."""
        return self._uids.get((order.job, order.worker), NOBODY)

    def prepare(self, order: StartWorker, token: str, folder: Path) -> KeeperOrder:
        """Returns what the keeper of a worker needs; it becomes the user before anything else."""
        entry = self._entry(order)
        prepared = super().prepare(order, token, folder)
        prepared["run_as"] = {
            "uid": entry.uid,
            "gid": entry.gid,
            "groups": list(entry.groups),
            "script": order.script,
            "path": str(Path(order.folder, "script")),
        }
        self._uids[order.job, order.worker] = entry.uid
        return prepared

    def _of_user(self, order: StartWorker) -> Mapping[str, str]:
        entry = self._entry(order)
        return {
            "HOME": entry.home,
            "USER": entry.name,
            "LOGNAME": entry.name,
            "SHELL": entry.shell or "/bin/sh",
        }

    def _container_user(self, order: StartWorker) -> UserEntry | None:
        return self._entry(order)

    def _entry(self, order: StartWorker) -> UserEntry:
        """Returns the user as whom a worker runs. Raises ValueError if it may not run."""
        entry = user_entry(order.user)
        why_not = self._jobs.users().why_not_run(order.user)
        if entry is not None and not why_not and ROOT in (entry.gid, *entry.groups):
            why_not = f"no job runs as user {entry.name}, who is in the group of root"
        if entry is not None and not why_not and order.uid not in (-1, entry.uid):
            why_not = (
                f"user {entry.name} has uid {entry.uid} on this node, and {order.uid} on the "
                "controller's machine: give users one uid everywhere"
            )
        if entry is None or why_not:
            raise ValueError(self._refused(order, why_not))
        return entry

    def _refused(self, order: StartWorker, why: str) -> str:
        self._jobs.log(f"refused: job {order.job} of user {order.user!r}: {why}")
        return why

    def limit(self, order: StartWorker) -> None:
        """Changes weight and memory bound of a running worker; it may be from an earlier agent."""
        entry = user_entry(order.user)
        if entry is not None:
            self._uids[order.job, order.worker] = entry.uid
        super().limit(order)

    def clear(self, job: int, worker: int) -> None:
        """Forgets a worker that has ended."""
        self._uids.pop((job, worker), None)
        super().clear(job, worker)


def owner_access(folder: Path) -> AbstractContextManager[None] | None:
    """Returns the access to a job's folder that its owner has, None while it is not given yet.

    The folder is in one of root's, so that nobody can put another in its place.
    """
    try:
        seen = folder.lstat()
    except OSError:
        return None
    return file_access_of(seen.st_uid, seen.st_gid) if seen.st_uid >= UID_MIN else None
