"""An error of a group that broke keeps no group: the training thread would destroy it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch.distributed import HashStore, PrefixStore  # noqa: E402

from dovetail.train.sync import process_group  # noqa: E402
from dovetail.train.sync.process_group import (  # noqa: E402
    PATIENT,
    GroupBroken,
    WorkerGroup,
    connect,
)

CPU = torch.device("cpu")
USES: dict[str, Callable[[WorkerGroup], object]] = {
    "sum of flags": lambda group: group.sum_control(torch.zeros(1)).wait(),
    "sum of gradients": lambda group: group.sum_gradients(torch.zeros(1)).wait(),
    "gather": lambda group: group.gather(torch.zeros(1)),
    "message sent": lambda group: group.send(torch.zeros(1), 1, 0).wait(),
    "message received": lambda group: group.receive(torch.zeros(1), 1, 0).wait(),
}


def two_workers() -> tuple[WorkerGroup, WorkerGroup]:
    """Two groups of one generation, connected within this process."""
    store = HashStore()

    def one(rank: int) -> WorkerGroup:
        return connect(
            lambda prefix: PrefixStore(prefix, store),
            generation=1,
            rank=rank,
            size=2,
            host="127.0.0.1",
            device=CPU,
        )

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(one, range(2))
    return first, second


# A wait for a message has no reason to give up.
CASES = [(use, "peer gone") for use in USES] + [
    (use, "given up") for use in USES if not use.startswith("message")
]


@pytest.mark.parametrize(("use", "how"), CASES)
def test_an_error_keeps_no_process_group(
    use: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disposed: list[list[object]] = []
    monkeypatch.setattr(process_group, "dispose", lambda holder, **_: disposed.append(holder))
    group, peer = two_workers()
    if how == "peer gone":
        peer.discard()
        disposed.pop().clear()
    group.patience = replace(PATIENT, gives_up=lambda: "another worker is gone")
    with pytest.raises(GroupBroken) as caught:
        USES[use](group)
    assert caught.value.__traceback__ is not None
    group.discard(broken=True)
    ((*groups,),) = disposed
    disposed.clear()
    # That of the list, that of the loop, and that of the call.
    counts = [sys.getrefcount(one) for one in groups]
    # The peer first: the destructor of a group with a pending operation waits for it.
    peer.discard()
    for holder in disposed:
        holder.clear()
    groups.clear()
    assert counts == [3, 3]
