"""Other quotas and guarantees of queues and accounts, as changes to the cluster's file.

A text is `NAME[:TYPE]=GPUS`, several at once joined by `+`; `+8` and `-8` change what the file has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError, nearest
from dovetail.core.tenants import AccountSpec, GpusByType, QueueSpec, Tenants

ACCOUNT = "account/"
_AS_IN = (
    "as in research=32, vision:a100=+8, account/lab=16, research=none, or research=32+ml=16 at once"
)
_AT_ONCE = re.compile(r"\+(?=[^+=]+=)")
_ONE = re.compile(r"(?P<name>[^=:]+)(?::(?P<type>[^=:]+))?=(?P<gpus>none|[+-]?\d{1,7})")


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """The most GPUs of a queue or an account, of one type or of any (""), None for no limit.

    With `relative` it is added to what the cluster's file has.
    """

    name: str
    gpu_type: str
    gpus: int | None
    relative: bool = False

    def __str__(self) -> str:
        if self.gpus is None:
            return f"{self.name} no{f' {self.gpu_type}' if self.gpu_type else ''} quota"
        number = f"{self.gpus:+d}" if self.relative else str(self.gpus)
        return f"{self.name} {number} {f'{self.gpu_type} ' if self.gpu_type else ''}GPUs"

    def new(self, option: str, before: int | None) -> int | None:
        """Returns the new number, given the one of the file. Raises InputError."""
        if not self.relative or self.gpus is None:
            return self.gpus
        if before is None:
            kind = f" of type {self.gpu_type}" if self.gpu_type else ""
            what = f"'{self.name}' has none{kind} yet that {self.gpus:+d} could change"
            raise InputError(option, what, f"give the whole number, as in {self.name}=32")
        if before + self.gpus <= 0:
            raise InputError(option, f"'{self.name}' has {before} GPUs, {self.gpus:+d} leaves none")
        return before + self.gpus


def parse_quotas(option: str, text: str) -> tuple[QuotaChange, ...]:
    """Returns the changes that are made at once. Raises InputError."""
    found = []
    for part in _AT_ONCE.split(text):
        match = _ONE.fullmatch(part.strip())
        number = match["gpus"] if match else ""
        if match is None or (number.lstrip("+-") != "none" and not int(number)):
            raise InputError(option, f"'{part.strip()}' is not QUEUE=GPUS", _AS_IN)
        gpus = None if number == "none" else int(number)
        name, gpu_type = match["name"].strip(), (match["type"] or "").strip().lower()
        found.append(QuotaChange(name, gpu_type, gpus, number[0] in "+-"))
    names = [(change.name, change.gpu_type) for change in found]
    if len(set(names)) < len(names):
        raise InputError(option, f"'{text}' changes a quota twice", _AS_IN)
    return tuple(found)


def with_quotas(cluster: Cluster, option: str, changes: Sequence[QuotaChange]) -> Cluster:
    """Returns the cluster with other quotas, or guarantees. Raises InputError."""
    types = sorted({group.gpu_type for group in cluster.groups if group.gpu_type})
    for change in changes:
        if change.gpu_type and change.gpu_type not in types:
            mend = nearest(change.gpu_type, types) if types else "its GPUs have no types"
            raise InputError(option, f"the cluster has no GPU type '{change.gpu_type}'", mend)
        if change.name.startswith(ACCOUNT):
            cluster = _with_account(cluster, option, change)
        else:
            cluster = _with_queue(cluster, option, change)
    tenants = Tenants(
        cluster.queues, cluster.accounts, cluster.qos, cluster.reservations, cluster.users
    )
    tenants.check(option, cluster.groups)
    return cluster


def _with_queue(cluster: Cluster, option: str, change: QuotaChange) -> Cluster:
    queues = {queue.name: queue for queue in cluster.queues}
    queue = queues.get(change.name, QueueSpec(change.name))
    if option == "--guarantee":
        queue = replace(queue, guaranteed=_changed(queue.guaranteed, option, change))
    elif change.gpu_type:
        queue = replace(queue, limits=_changed(queue.limits, option, change))
    else:
        kept = tuple(pair for pair in queue.limits if pair[0])
        before = [gpus for kind, gpus in queue.limits if not kind]
        before += [queue.quota_gpus] if queue.quota_gpus else []
        new = change.new(option, min(before, default=None))
        queue = replace(queue, limits=kept, quota_gpus=new or 0)
    queues[change.name] = queue
    return replace(cluster, queues=tuple(queues.values()))


def _with_account(cluster: Cluster, option: str, change: QuotaChange) -> Cluster:
    name = change.name.removeprefix(ACCOUNT)
    if change.gpu_type or option == "--guarantee":
        # An account has no more than a number of GPUs: the rest are terms of a queue that owns it.
        queue = _own_queue(cluster, option, name)
        if queue not in cluster.queues:
            cluster = replace(cluster, queues=(*cluster.queues, queue))
        return _with_queue(cluster, option, replace(change, name=queue.name))
    accounts = {account.name: account for account in cluster.accounts}
    account = accounts.get(name, AccountSpec(name))
    new = change.new(option, account.max_gpus or None)
    accounts[name] = replace(account, max_gpus=new or 0)
    return replace(cluster, accounts=tuple(accounts.values()))


def _own_queue(cluster: Cluster, option: str, account: str) -> QueueSpec:
    """Returns the queue of an account alone, a new one if it has none. Raises InputError."""
    owner = next((queue for queue in cluster.queues if account in queue.accounts), None)
    if owner is None:
        return QueueSpec(f"{ACCOUNT}{account}", accounts=(account,))
    if owner.accounts != (account,) or owner.users:
        what = f"account '{account}' shares queue '{owner.name}' with others"
        raise InputError(option, what, f"name the queue, as in {owner.name}=32")
    return owner


def _changed(pairs: GpusByType, option: str, change: QuotaChange) -> GpusByType:
    values = dict(pairs)
    new = change.new(option, values.get(change.gpu_type))
    if new is None:
        values.pop(change.gpu_type, None)
    else:
        values[change.gpu_type] = new
    return tuple(values.items())


def bound_above(cluster: Cluster, changes: Cluster) -> list[str]:
    """Returns which quotas cannot be used up, as a queue above allows less, as sentences."""
    before = {queue.name: queue for queue in cluster.queues}
    queues = {queue.name: queue for queue in changes.queues}
    texts = []
    for queue in changes.queues:
        if queue == before.get(queue.name):
            continue
        above = queue.parent
        while above:
            for kind, gpus in _most(queue).items():
                least = _most(queues[above]).get(kind)
                if least is not None and least < gpus:
                    what = f"{gpus} {f'{kind} ' if kind else ''}GPUs"
                    texts.append(f"'{queue.name}' may have {what}, but '{above}' above it {least}")
            above = queues[above].parent
    return texts


def _most(queue: QueueSpec) -> dict[str, int]:
    most = dict(queue.limits)
    if queue.quota_gpus:
        most[""] = min(most.get("", queue.quota_gpus), queue.quota_gpus)
    return most
