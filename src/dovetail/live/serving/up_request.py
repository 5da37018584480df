"""The request for a live cluster, as `dovetail up` states it, and the folders it needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.live.access.shared_home import SharedHome
from dovetail.live.access.shared_jobs import adopt_shared_jobs
from dovetail.live.access.user_list import read_user_list
from dovetail.live.engines.engine import Engine, open_engine
from dovetail.live.engines.engine_spec import EngineSpec
from dovetail.live.engines.joined_engine import JoinSettings
from dovetail.live.engines.local_engine import check_sockets
from dovetail.live.engines.shared_engine import SharedEngine, engine_of_users
from dovetail.live.join.shared_folder import declare
from dovetail.live.store.folder import Folder
from dovetail.live.system.file_system import check_local
from dovetail.study.option_texts import OptionTexts
from dovetail.wire.site import SiteSettings


@dataclass(frozen=True, slots=True)
class UpRequest:
    """The command line of `dovetail up`."""

    home: Path
    policy: str
    engine: str
    options: OptionTexts
    listen: str = ""
    share_between_users: bool = False
    join: JoinSettings = field(default_factory=JoinSettings)
    site: SiteSettings = field(default_factory=SiteSettings)
    jobs: str = ""
    users: str = ""

    @property
    def folder(self) -> Folder:
        """Returns the folder of the controller: a part of the home if several users share it.

        Files of jobs that travel are the controller's own.
        """
        if not self.users:
            return Folder(self.home)
        shared = SharedHome(self.home)
        if not self.joins:
            return shared.folder
        return Folder(shared.controller, None if self.join.ships else Path(self.jobs))

    @property
    def joins(self) -> bool:
        """True if the nodes are other machines."""
        return EngineSpec.parse(self.engine).joins

    @property
    def engine_here(self) -> Engine:
        """Returns the engine. Raises InputError."""
        given = dict(self.options)
        if self.users:
            home = SharedHome(self.home)
            if self.joins:
                return engine_of_users(self.engine, home.controller, self.join, self.site)
            return SharedEngine(self.engine, home, Path(self.users), given, self.site)
        return open_engine(self.engine, self.folder.home, given, self.join, self.site)


def make_folder(request: UpRequest) -> Folder:
    """Makes and returns the folder of a cluster; makes nothing for a request that cannot work."""
    folder, agents = request.folder, request.home
    if request.users:
        agents = SharedHome(request.home).agent
        SharedHome(request.home).check(read_user_list(Path(request.users)).controller)
        _check_jobs(request)
    elif SharedHome(request.home).controller.is_dir():
        what = "it is the folder of a cluster of several users"
        raise InputError(str(request.home), what, "give --users FILE, or another --home")
    check_local(folder.home)
    check_sockets(agents, EngineSpec.parse(request.engine))
    folder.make()
    if request.jobs and not request.join.ships:
        (adopt_shared_jobs if request.users else declare)(folder.home, Path(request.jobs))
    return request.folder


def _check_jobs(request: UpRequest) -> None:
    """Raises InputError where the folders of several users' jobs cannot be."""
    if request.jobs and not request.joins:
        what = "jobs of several users on this machine have theirs in HOME/jobs"
        raise InputError("--jobs", what, "leave it out")
    if request.joins and not request.jobs:
        what = "nodes do not see HOME/jobs, and jobs of several users need folders of their own"
        raise InputError("--users", what, "give --jobs DIR that they share, or --jobs none")
