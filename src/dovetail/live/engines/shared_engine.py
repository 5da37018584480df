"""The engine of a cluster of several users: root runs the agents, another account the controller.

Root starts the agents before the controller; an agent that ends is root's to start again (a unit of
systemd with `Restart=always`). The controller only connects.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.access.shared_home import SharedHome
from dovetail.live.access.user_list import ROOT
from dovetail.live.engines.engine_spec import EMULATED, NODES, SSH, EngineSpec
from dovetail.live.engines.joined_engine import JoinedEngine, JoinSettings
from dovetail.live.engines.local_engine import (
    AGAIN_S,
    DOWN_WITHIN_S,
    GRACE_S,
    LocalEngine,
    control_socket,
)
from dovetail.live.engines.node_file import check_started_by_node
from dovetail.wire.site import AS_USUAL, SiteSettings

LOG = logging.getLogger(__name__)


ANSWER_WITHIN_S = 30.0
"""Agents that root has just started again may still be importing."""


def engine_of_users(
    text: str, home: Path, join: JoinSettings, site: SiteSettings = AS_USUAL
) -> JoinedEngine:
    """Returns the engine of nodes on which root's agents run jobs of several users.

    Raises InputError. `home` is the controller's folder.
    """
    spec = EngineSpec.parse(text)
    if spec.kind not in (NODES, SSH):
        what = f"a cluster on {spec.kind} serves its owner, as whom agents are started there"
        raise InputError("--users", what, "choose --engine nodes:FILE or ssh:FILE")
    if spec.kind == SSH:
        check_started_by_node(Path(spec.target))
    return JoinedEngine(spec, home, replace(join, has_users=True), site)


class SharedEngine(LocalEngine):
    """The agents in a shared home, which run jobs as the users of a file."""

    def __init__(
        self,
        text: str,
        home: SharedHome,
        users: Path,
        given: Mapping[str, object] | None = None,
        site: SiteSettings = AS_USUAL,
    ) -> None:
        super().__init__(text, home.agent, given, site)
        if self._spec.kind == EMULATED:
            what = "emulated nodes run nobody's programs, so there is nothing to share out"
            raise InputError("--users", what, "leave it out, or choose another --engine")
        self._agent_options = ("--users", str(users))
        self._socket = control_socket(home.agent)

    def start_agents(self) -> None:
        """Starts the agents if we are root, else waits for them. Raises InputError."""
        if os.geteuid() == ROOT:
            super().start_agents()
            return
        give_up_s = time.monotonic() + ANSWER_WITHIN_S
        while not self._listens():
            if time.monotonic() > give_up_s:
                raise InputError(
                    str(self._socket),
                    "no agent listens, and only root may start it",
                    "as root: dovetail up --users FILE, or start its unit",
                )
            time.sleep(AGAIN_S)

    def _check_home(self) -> None:
        """Does nothing: whoever made the shared home has looked at its owners and modes."""

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            try:
                link.connect(os.fspath(self._socket))
            except OSError:
                return False
        return True

    def _revive(self) -> None:
        LOG.error("the agent does not answer; only root may start it again")

    def stop_agents(self, *, end: bool) -> None:
        """Ends workers and agents if we are root; the controller leaves both running."""
        if not end or os.geteuid() != ROOT or not self._listens():
            return
        link = self._link(lambda incoming: None, lambda: None)
        link.dismiss(GRACE_S)
        give_up_s = time.monotonic() + DOWN_WITHIN_S
        while self._socket.exists() and time.monotonic() < give_up_s:
            time.sleep(AGAIN_S)
        link.close()
        if self._socket.exists():
            raise DovetailError(f"agents still run after {DOWN_WITHIN_S:g} s; see their log")
