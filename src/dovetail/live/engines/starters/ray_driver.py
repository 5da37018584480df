"""A driver of a Ray cluster, as a process of its own: it lists nodes and starts agents on them.

Run as `python -m dovetail.live.engines.starters.ray_driver stranger|driver HOST:PORT`. It says
lines of JSON on its standard output and reads requests as such lines; it ends with its input.

It is no part of the controller's process, since Ray ends a driver whose raylet or GCS is gone, and
reads whether there is authentication from the environment, once for each process.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from time import sleep
from typing import TextIO

from dovetail.live.engines.starters.ray_actor import FAILED, AgentStarter

STRANGER, DRIVER = "stranger", "driver"
NAMESPACE = "dovetail"
LOOK_S = 2.0
START_S = 180.0
"""For an actor and an agent to start: both import first, on a machine that may be busy."""
PLACED_S = 60.0
"""For the actor of a node alone: it waits for ever if others hold GPUs of the node."""
END_S = 10.0
NO_TOKEN = (
    "it asks for a token, and this user has none",
    "copy the token of Ray's head to ~/.ray/auth_token, or set RAY_AUTH_TOKEN_PATH",
)
WRONG_TOKEN = (
    "it refuses the token of this user",
    "copy the token of Ray's head to ~/.ray/auth_token, or set RAY_AUTH_TOKEN_PATH",
)

Say = Callable[[Mapping[str, object]], None]


def main() -> None:
    """Does what the first argument names, for the cluster at the address of the second."""
    kind, address = sys.argv[1:]
    # Whatever Ray prints is no answer of ours.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()
    say = partial(_say, answers, lock)
    try:
        if kind == STRANGER:
            say({"admitted": admits_strangers(address)})
        else:
            _drive(address, say)
    except BaseException as error:
        traceback.print_exc()
        say({"failed": _short(error), "mend": ""})
    sys.stderr.flush()
    # Ray's own end of a process may wait for what is not there any more.
    os._exit(0)


def admits_strangers(address: str) -> bool:
    """Returns whether the cluster answers a client that has no token.

    Raises what Ray raises if it does not answer at all: only a refusal proves authentication.
    """
    from ray._raylet import GcsClient
    from ray.exceptions import AuthenticationError

    try:
        GcsClient(address=address).internal_kv_keys(b"", None, timeout=END_S)
    except AuthenticationError:
        return False
    return True


def _say(answers: TextIO, lock: threading.Lock, line: Mapping[str, object]) -> None:
    with lock:
        answers.write(json.dumps(line) + "\n")
        answers.flush()


def _drive(address: str, say: Say) -> None:
    """Lists the nodes and serves requests until the input ends."""
    import ray

    if refusal := _refusal(address):
        say({"failed": refusal[0], "mend": refusal[1]})
        return
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    except ConnectionError as error:
        traceback.print_exc()
        mend = f"start one: ray start --address {address} --num-cpus 0"
        say({"failed": f"no node of it runs on this machine ({_short(error)})", "mend": mend})
        return
    threading.Thread(target=_list, args=(say,), daemon=True).start()
    for line in sys.stdin:
        threading.Thread(target=_serve, args=(json.loads(line), say), daemon=True).start()
    leaving = threading.Thread(target=ray.shutdown, daemon=True)
    leaving.start()
    leaving.join(END_S)


def _refusal(address: str) -> tuple[str, str] | None:
    """Returns why the token of this user does not do, and the mend; None if it does."""
    from ray._raylet import AuthenticationTokenLoader, GcsClient
    from ray.exceptions import AuthenticationError

    # A client without any token would abort the process.
    try:
        if not AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True):
            return NO_TOKEN
    except AuthenticationError as error:
        return _short(error), NO_TOKEN[1]
    try:
        GcsClient(address=address)
    except AuthenticationError:
        return WRONG_TOKEN
    return None


def _list(say: Say) -> None:
    """Says which nodes are alive, again and again; nothing while Ray does not know."""
    import ray

    here = ray.util.get_node_ip_address()
    while True:
        try:
            # Ray writes some names of fields both ways.
            nodes = [{name.lower(): v for name, v in node.items()} for node in ray.nodes()]
            alive = [_node(node) for node in nodes if node["alive"]]
            say({"nodes": alive, "here": here})
        except Exception:
            traceback.print_exc()
        sleep(LOOK_S)


def _node(node: Mapping[str, object]) -> Mapping[str, object]:
    resources = node["resources"]
    assert isinstance(resources, Mapping)
    return {
        "id": node["nodeid"],
        "name": node.get("nodename", ""),
        "host": node["nodemanagerhostname"],
        "address": node["nodemanageraddress"],
        "gpus": float(resources.get("GPU", 0.0)),
        "cpus": float(resources.get("CPU", 0.0)),
    }


def _serve(request: Mapping[str, str], say: Say) -> None:
    """Serves a request, and says how it ended."""
    how, detail = "", ""
    try:
        if request["do"] == "start":
            how, detail = _start(request)
        else:
            _end(request)
    except Exception as error:
        traceback.print_exc()
        how, detail = FAILED, _short(error)
    say({"id": request["id"], "how": how, "detail": detail})


def _start(request: Mapping[str, str]) -> tuple[str, str]:
    """Starts an agent by the actor of its node, made if it is not there; returns as that does."""
    import ray
    from ray.exceptions import GetTimeoutError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    gpus = float(request["gpus"])
    options = {
        "name": f"dovetail-{request['cluster']}-{request['node']}",
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "get_if_exists": True,
        "num_cpus": 0,
        # All of them: Ray gives none to anybody else while the actor lives.
        "num_gpus": int(gpus) if gpus.is_integer() else gpus,
        "max_restarts": 0,
        "max_concurrency": 2,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(request["node"], soft=False),
    }
    actor = ray.remote(AgentStarter).options(**options).remote()
    try:
        ray.get(actor.ping.remote(), timeout=PLACED_S)
    except GetTimeoutError:
        ray.kill(actor)
        held = "; other work of Ray may hold some of its GPUs (see: ray status)" if gpus else ""
        return FAILED, f"Ray placed no actor on it within {PLACED_S:g} s{held}"
    # As an argument of a method: those of a constructor are kept in Ray's own store.
    word, slots = request["word"], int(request["slots"])
    how, detail = ray.get(actor.start.remote(word, request["name"], slots), timeout=START_S)
    return str(how), str(detail)


def _end(request: Mapping[str, str]) -> None:
    """Ends the actors of a cluster, which remove their join words first."""
    import ray

    named = ray.util.list_named_actors()
    actors = [ray.get_actor(n) for n in named if n.startswith(f"dovetail-{request['cluster']}-")]
    removed = [actor.end.remote() for actor in actors]
    if removed:
        ray.wait(removed, num_returns=len(removed), timeout=END_S)
    for actor in actors:
        ray.kill(actor)


def _short(error: BaseException) -> str:
    """Returns what an error says, on one line."""
    text = str(error)
    if missing := re.search(r"No module named '(dovetail[\w.]*)'", text):
        return f"the Python of Ray there has no {missing[1]}: install this version of dovetail"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines or ['no reason given'])[0][:300]}"


if __name__ == "__main__":
    main()
