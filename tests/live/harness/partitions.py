"""Stories of nodes with leases that are cut off, one way or both, and come back late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from harness.story import (
    BUSY,
    GONE,
    GONE_IN_ERROR,
    GONE_LATE,
    POLICIES,
    STOPPED,
    SUSPENDED,
    Fault,
    Story,
    Submission,
    Verb,
    Weather,
    draw_submissions,
    draw_verbs,
)

MOST_NODES = 50
CUTS = ("node silent", "node deaf", "node cut off", "node apart", "node apart")
DRIFTS = (0.001, 0.01, 0.05)
"""How wrong clocks may go: each that of `Rules.clock_drift`, and that of some nodes."""


def parted(seed: int) -> Story:
    """Returns the story of a seed, of 3 to 50 nodes.

    Of three stories one is mixed, one is of long cuts and long programs, and one of messages that
    are so late that they overtake each other. One in 12 has a starter that errs: it says of nodes
    that they are gone, and they live.
    """
    rng = Random(f"parted {seed}")
    tale = (_mixed, _long_cuts, _late)[seed % 3](rng, seed)
    if seed % 12 == 3:
        tale = _misled(rng, tale)
    if seed % 5 == 1:
        tale = replace(tale, faults=(*tale.faults, *_late_words(Random(f"late {seed}"), tale)))
    if seed % 4 == 2:
        tale = replace(tale, faults=(*tale.faults, *_busy(Random(f"busy {seed}"), tale.nodes)))
    verbs = tuple(sorted(_verbs(rng, tale.submissions, tale.nodes), key=lambda v: v.t))
    faults = tuple(sorted(tale.faults, key=lambda f: f.t))
    submissions = tuple(sorted(tale.submissions, key=lambda s: s.t))
    return replace(tale, submissions=submissions, faults=faults, verbs=verbs)


def _mixed(rng: Random, seed: int) -> Story:
    """Controllers stay away for longer than any lease, agents die or stand, machines sleep."""
    few = rng.choice((3, 3, 4, 5, 8))
    nodes = {1: 12, 6: MOST_NODES, 11: 20, 16: 33}.get(seed // 3 % 20, few)
    lease_s = rng.choice((12.0, 20.0, 30.0))
    faults = list(_cuts(rng, nodes, lease_s))
    if rng.random() < 0.5:
        faults += _absences(rng, lease_s)
    if rng.random() < 0.5:
        faults += _deaths(rng, nodes, lease_s)
    if rng.random() < 0.25:
        faults.append(_gone(rng, nodes))
    return Story(
        seed=seed,
        policy=rng.choice(POLICIES),
        submissions=tuple(_submissions(rng, nodes)),
        faults=tuple(faults),
        weather=_weather(rng),
        nodes=nodes,
        lease_s=lease_s,
        drift=rng.choice(DRIFTS),
    )


def _long_cuts(rng: Random, seed: int) -> Story:
    """Nodes are cut off for longer than their lease while programs have hours to go.

    Other nodes have room for these programs, and of some nodes the agent is dead as well.
    """
    nodes, lease_s = rng.choice((4, 6)), rng.choice((12.0, 30.0))
    submissions = []
    for _ in range(rng.randint(4, 6)):
        kind, gpus = rng.choice(("plain", "plain", "elastic")), rng.choice((1, 1, 2))
        t, duration_s = round(rng.uniform(0, 10), 2), round(rng.uniform(100, 200), 1)
        most = 3 if kind == "elastic" and rng.random() < 0.5 else gpus
        submissions.append(Submission(t, kind, gpus, min(1, gpus), most, duration_s))
    faults = []
    for node in rng.sample(range(nodes), nodes // 2):
        t, kind = round(rng.uniform(12, 40), 2), rng.choice(CUTS)
        faults.append(Fault(t, kind, lease_s + rng.uniform(15, 40), node=node))
        if rng.random() < 0.5:
            dies_s = round(t + rng.uniform(-1.0, 3.0), 2)
            faults.append(Fault(dies_s, "agent killed", 2 * lease_s, node=node))
    if rng.random() < 0.4:
        faults += _absences(rng, lease_s)
    weather = rng.choice((Weather(), Weather(0.05), Weather(1.0, 0.02, 0.05)))
    return Story(
        seed=seed,
        policy=rng.choice(("fifo", "backfill", "srtf", "afs-p:unit-s=20", "sjf-bsbf")),
        submissions=tuple(submissions),
        faults=tuple(faults),
        weather=weather,
        nodes=nodes,
        lease_s=lease_s,
        drift=rng.choice(DRIFTS),
    )


def _late(rng: Random, seed: int) -> Story:
    """Messages are up to 15 s late: orders to start come after their node was lost and is back."""
    nodes, lease_s = rng.choice((3, 3, 4)), rng.choice((20.0, 30.0))
    submissions = []
    for _ in range(rng.randint(8, 14)):
        kind, gpus = rng.choice(("plain", "plain", "elastic")), rng.choice((1, 1, 2))
        t, duration_s = round(rng.uniform(0, 70), 2), round(rng.uniform(5, 60), 1)
        most = 4 if kind == "elastic" and rng.random() < 0.6 else gpus
        submissions.append(Submission(t, kind, gpus, min(1, gpus), most, duration_s))
    faults = []
    for _ in range(rng.randint(4, 8)):
        t, kind = round(rng.uniform(5, 75), 2), rng.choice(("node silent", "node cut off"))
        lasts_s = round(rng.uniform(9.0, 14.0), 2)
        faults.append(Fault(t, kind, lasts_s, node=rng.randrange(nodes)))
    if rng.random() < 0.4:
        faults += [replace(_gone(rng, nodes), lasts_s=rng.choice((0.5, 2.0, 5.0)), pick=0)]
    if rng.random() < 0.4:
        faults += _deaths(rng, nodes, lease_s)
    return Story(
        seed=seed,
        policy=rng.choice(("srtf", "tiresias", "afs-p:unit-s=20", "afs-l", "max-min")),
        submissions=tuple(submissions),
        faults=tuple(faults),
        weather=Weather(15.0, rng.choice((0.0, 0.02, 0.2)), rng.choice((0.0, 0.05, 0.3))),
        nodes=nodes,
        lease_s=lease_s,
        drift=rng.choice(DRIFTS),
    )


def _misled(rng: Random, tale: Story) -> Story:
    """Says of nodes that are cut off from all others that they are gone; all jobs train."""
    submissions = tuple(replace(s, kind="elastic", tasks=1) for s in tale.submissions)
    faults = list(tale.faults)
    for node in rng.sample(range(tale.nodes), rng.choice((1, 2))):
        t = round(rng.uniform(5, 60), 2)
        faults.append(Fault(t, "node apart", tale.lease_s + 10.0, node=node))
        faults.append(Fault(round(t + rng.uniform(0, 20), 2), GONE_IN_ERROR, node=node))
    return replace(tale, submissions=submissions, faults=tuple(faults))


def _gone(rng: Random, nodes: int) -> Fault:
    t, lasts_s = round(rng.uniform(0, 70), 2), rng.choice((5.0, 60.0))
    return Fault(t, GONE, lasts_s, node=rng.randrange(nodes), pick=rng.randrange(15))


def _weather(rng: Random) -> Weather:
    if rng.random() < 0.3:
        return Weather()
    return Weather(
        late_s=rng.choice((0.001, 0.05, 1.0, 4.0, 15.0)),
        lost=rng.choice((0.0, 0.02, 0.2)),
        doubled=rng.choice((0.0, 0.05, 0.3)),
    )


def _submissions(rng: Random, nodes: int) -> Iterator[Submission]:
    for one in list(draw_submissions(rng, "machines"))[:6]:
        most = min(2 * nodes, rng.choice((4, 6)))
        yield replace(
            one,
            max_gpus=most if one.min_gpus < one.max_gpus else one.max_gpus,
            duration_s=round(rng.uniform(5.0, 90.0), 1),
            time_limit_s=float("inf"),
            after="",
            held=False,
            tasks=3 if one.kind == "plain" and rng.random() < 0.3 else 1,
        )


def _verbs(rng: Random, submissions: tuple[Submission, ...], nodes: int) -> list[Verb]:
    drawn = draw_verbs(rng, submissions, nodes)
    # The users of the harness remember what they asked of one job, not of the tasks of an array.
    return [v for v in drawn if v.of < 0 or submissions[v.of].tasks == 1]


def _cuts(rng: Random, nodes: int, lease_s: float) -> Iterator[Fault]:
    """Cuts nodes off: some come back before they are missed, some long after their lease."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        t, kind = round(rng.uniform(0, 70), 2), rng.choice(CUTS)
        lasts_s = rng.choice((3.0, 15.0, lease_s + rng.uniform(-3, 8), 2 * lease_s + 20.0))
        most = rng.choice((1, 1, 2, nodes))
        for node in rng.sample(range(nodes), min(most, nodes)):
            yield Fault(round(t + rng.uniform(0, 2), 2), kind, round(lasts_s, 2), node=node)


def _late_words(rng: Random, tale: Story) -> Iterator[Fault]:
    """Lets a node be back when it is said that it is gone."""
    for node in rng.sample(range(tale.nodes), 2):
        t, lasts_s = round(rng.uniform(15, 60), 2), rng.choice((0.5, 3.0, 14.0))
        pick = round(tale.weather.late_s) + rng.randrange(1, 12)
        yield Fault(t, GONE_LATE, lasts_s, node=node, pick=pick)


def _busy(rng: Random, nodes: int) -> Iterator[Fault]:
    """Lets agents keep orders to start that come while something else holds their GPUs."""
    for _ in range(rng.randint(2, 4)):
        t, lasts_s = round(rng.uniform(0, 60), 2), rng.choice((2.0, 12.0, 25.0))
        yield Fault(t, BUSY, lasts_s, node=rng.randrange(nodes))


def _absences(rng: Random, lease_s: float) -> Iterator[Fault]:
    for _ in range(rng.randint(1, 2)):
        lasts_s = rng.choice((0.0, 3.0, 15.0, lease_s + rng.uniform(0, 10), 3 * lease_s))
        yield Fault(round(rng.uniform(0, 80), 3), "controller killed", round(lasts_s, 2))


def _deaths(rng: Random, nodes: int, lease_s: float) -> Iterator[Fault]:
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(("agent killed", "agent killed", STOPPED, SUSPENDED, "node reboots"))
        lasts_s = rng.choice((0.1, 5.0, 30.0, lease_s + 15.0))
        yield Fault(round(rng.uniform(0, 80), 2), kind, lasts_s, node=rng.randrange(nodes))
