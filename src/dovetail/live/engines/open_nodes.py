"""Opens the nodes that an agent process plays on this machine, with their control groups."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path

from dovetail.core.errors import DovetailError
from dovetail.live.engines.cgroup import MEMORY, PREFIX, SHARE, ControlGroups
from dovetail.live.engines.devices import Devices
from dovetail.live.engines.local import LocalNodes, LocalProcessSettings
from dovetail.live.engines.user_processes import UserJobs, UserProcessSettings
from dovetail.live.node.transport import EventLoop


def open_nodes(
    root: Path,
    folders: Sequence[Path],
    devices: Sequence[Devices],
    loop: EventLoop,
    clock: Callable[[], float],
    log: Callable[[str], None],
    *,
    home: Path | None = None,
    first: int = 0,
    leased: bool = False,
    users: UserJobs | None = None,
) -> LocalNodes:
    """Returns the nodes, which adopt the workers that run; `root` names their control groups.

    Workers run as the `users` who submitted them, without as the user of this process.
    """
    ControlGroups.sweep()
    groups = ControlGroups.below_own(f"{PREFIX}{sha256(bytes(root)).hexdigest()[:12]}")
    for what in (SHARE, MEMORY):
        if what not in groups.enforces and not devices[0].are_gpus:
            log(f"control groups are unavailable: limits on {what} are not enforced")
    if groups.tracking is None:
        log("control groups are unavailable: processes that leave their session outlive their job")
    settings: Callable[..., LocalProcessSettings] = LocalProcessSettings
    if users is not None:
        settings = partial(UserProcessSettings, users)
    elif os.geteuid() == 0:
        log("jobs run as root, the owner of this folder")
    try:
        nodes = LocalNodes(
            *(folders, devices, loop, clock, groups, home),
            first=first,
            leased=leased,
            settings=settings,
        )
    except DovetailError:
        groups.close()
        raise
    if nodes.alive:
        log(f"found {len(nodes.alive)} running workers")
    return nodes
