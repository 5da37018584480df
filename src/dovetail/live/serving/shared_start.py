"""The start of a cluster of several users: what root does before an account without rights goes on.

Root shares out the folders and starts the agent of this machine. The controller, which reads what
everybody sends, never is root.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.access.shared_home import SharedHome
from dovetail.live.access.shared_jobs import make_shared_jobs
from dovetail.live.access.user_entry import UserEntry, become
from dovetail.live.access.user_list import ROOT, read_user_list
from dovetail.live.serving.serve import check
from dovetail.live.serving.up_request import UpRequest


def check_as_controller(request: UpRequest) -> None:
    """Checks a request; if we are root, starts the agent and becomes the controller's account.

    Raises InputError for a request that cannot work, or for another user.
    """
    controller = read_user_list(Path(request.users)).controller
    if os.geteuid() == controller.uid:
        check(request)
        return
    if os.geteuid() != ROOT:
        what = f"root starts a cluster of several users, or {controller.name} where its agent runs"
        raise InputError("--users", what, "run it as root")
    SharedHome(request.home).make(controller)
    if request.joins and request.jobs and not request.join.ships:
        make_shared_jobs(Path(request.jobs), controller)
    engine = request.engine_here
    _check_in_child(request, controller)
    engine.start_agents()
    become(controller)


def _check_in_child(request: UpRequest, controller: UserEntry) -> None:
    """Checks a request as the controller will: the files that it needs must be open to it."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        os.write(write_end, json.dumps(_refusal(request, controller)).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    refusal = json.loads(said or '["", "its check ended without a word"]')
    if len(refusal) == 3:
        raise InputError(*refusal)
    if refusal:
        raise DovetailError(": ".join(filter(None, refusal)))


def _refusal(request: UpRequest, controller: UserEntry) -> list[str]:
    """Returns why a request cannot work, in the words of an InputError; empty if it can."""
    try:
        become(controller)
        check(request)
    except InputError as error:
        return [error.where, error.what, error.mend]
    except Exception as error:
        return [type(error).__name__, str(error)]
    return []
