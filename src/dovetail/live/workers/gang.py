"""The gang of a job: brings what is there into line with what the plan wants.

Gangs are pure state machines without policy, clock or other jobs. Callers pass in what the plan
wants, what agents report, and the time; `step` decides, and `live.workers.gang_orders` lists the
orders to send. Every order is repeated until its effect is seen, so lost, doubled and reordered
messages do no harm. A worker is gone only when its agent reports its end.
"""

from __future__ import annotations

from dovetail.live.workers.elastic_gang import ElasticGang
from dovetail.live.workers.first_worker import FirstWorker
from dovetail.live.workers.node_addresses import NodeAddresses
from dovetail.live.workers.plain_gang import PlainGang
from dovetail.live.workers.roster import Roster
from dovetail.live.workers.rules import Rules
from dovetail.wire.agent import StartWorker

Gang = PlainGang | ElasticGang


def make_gang(
    launch: StartWorker,
    rules: Rules,
    *,
    generation: int = 0,
    fixed: bool = False,
    hands_over: bool = False,
    first: FirstWorker | None = None,
    hosts: NodeAddresses | None = None,
) -> Gang:
    """Returns an elastic gang for workers that speak `wire.worker`, else a plain one.

    `launch` is the order that starts a worker of the job, without what differs among its workers;
    `first` decides whether one worker is started before the others.
    """
    roster = Roster(launch, rules, generation=generation, first=first, hosts=hosts)
    if launch.trains:
        return ElasticGang(roster, fixed=fixed, hands_over=hands_over)
    return PlainGang(roster)
