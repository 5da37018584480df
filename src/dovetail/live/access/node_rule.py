"""What the agent of several users takes from no controller: the rule of its own node.

The agent is root and its controller is not, so a controller in wrong hands must not get to be root
by what it says: who may run jobs, which scripts root runs, and where root makes folders is decided
by files that root has put on the node.
"""

from __future__ import annotations

import stat
from contextlib import AbstractContextManager
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.live.access.shared_home import PASSED_BY_ALL, check_roots, make_for
from dovetail.live.access.shared_jobs import access_of_controller
from dovetail.live.access.user_list import ROOT, StoredUsers
from dovetail.wire.site import CONTAINER_RUNTIMES, SiteSettings


class NodeRule:
    """The users of a node, and the folder that has their file and the site's scripts."""

    def __init__(self, file: Path) -> None:
        self.file = file.absolute()
        self._stored = StoredUsers.for_root(self.file)
        self.users = self._stored.users

    def why_not(self, site: SiteSettings) -> str:
        """Returns why this node does not do what a controller has set, empty if it does."""
        if site.container_runtime not in CONTAINER_RUNTIMES:
            return f"the container runtime {site.container_runtime[:80]!r} is none"
        for name, path in site.scripts.items():
            if Path(path).parent != self.file.parent or not _is_roots(Path(path)):
                folder = self.file.parent
                return f"the {name} {path} is not a file of root's in {folder}, as {self.file}"
        return ""

    def check_access(self, check: Path) -> AbstractContextManager[None]:
        """Returns what a check of the shared folder is answered in."""
        return access_of_controller(check, self.users().controller)


def _is_roots(path: Path) -> bool:
    """True for a plain file that root alone can change, in a folder of which that is so too."""
    try:
        seen, above = path.lstat(), path.parent.lstat()
    except OSError:
        return False
    plain = stat.S_ISREG(seen.st_mode) and stat.S_ISDIR(above.st_mode)
    return plain and all(s.st_uid == ROOT and not s.st_mode & 0o022 for s in (seen, above))


def make_agent_folder(folder: Path) -> None:
    """Makes the folder of the agent of several users, which they may pass. Raises InputError."""
    try:
        folder.mkdir(mode=PASSED_BY_ALL, parents=True, exist_ok=True)
        for above in (folder, *folder.parents):
            check_roots(above)
        for own in (folder, folder / "jobs"):
            make_for(own, PASSED_BY_ALL, ROOT, ROOT)
    except OSError as error:
        raise InputError(str(folder), f"cannot be used: {error.strerror}") from None
