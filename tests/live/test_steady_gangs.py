"""The short way for gangs that merely train on: what is ordered, and when, is as without it.

A report that confirms a steady gang is taken in, and the gang is not asked. If anything could have
followed from it, a wake-up would be lost. So seeded stories, and gangs between random events, are
played twice: with the short way, and with every gang asked after every report.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from harness.killing import KillingPost
from harness.partitions import parted
from harness.scene import Scene
from harness.stage import folder_in_memory
from harness.story import Story, interrupted, story
from hypothesis import given, settings
from hypothesis import strategies as st
from test_gang import JOB, RULES

from dovetail.core.units import NEVER_S
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob
from dovetail.live.jobs.record import GangMember
from dovetail.live.workers.elastic_gang import ElasticGang
from dovetail.live.workers.gang import Gang, make_gang
from dovetail.live.workers.gang_events import GangEvent, GangStalled, NodeOrder
from dovetail.live.workers.gang_orders import due_orders, next_resend_s
from dovetail.live.workers.inventory_check import check_inventory, confirms, take_training
from dovetail.live.workers.plain_gang import PlainGang
from dovetail.live.workers.worker_state import Desired
from dovetail.wire.agent import (
    AgentOrder,
    StartWorker,
    WorkerEnded,
    WorkerReport,
    WorkerState,
)
from dovetail.wire.worker import (
    Entered,
    Finished,
    Lost,
    Meeting,
    Ready,
    Saved,
    Training,
    WorkerLeft,
)

# Whole clusters.

SEEDS = 6
HEARD_AT_LEAST = 200
"""Times that gangs are merely heard in those stories, or they show little."""


@dataclass
class Played:
    """What a controller ordered, and how often it merely heard a gang."""

    orders: list[tuple[float, int, AgentOrder]] = field(default_factory=list)
    tale: tuple[str, ...] = ()
    heard: int = 0


def play(tale: Story) -> Played:
    played = Played()
    send, hear = KillingPost.send, LiveGangs.hear
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="dovetail-", dir=folder_in_memory()) as folder,
    ):
        scene = Scene(tale, Path(folder) / "store.db")

        def sent(post: KillingPost, node: int, order: AgentOrder) -> None:
            played.orders.append((scene.line.now, node, order))
            send(post, node, order)

        def heard(gangs: LiveGangs, job: LiveJob) -> None:
            played.heard += 1
            hear(gangs, job)

        patch.setattr(KillingPost, "send", sent)
        patch.setattr(LiveGangs, "hear", heard)
        played.tale = scene.play().tale
    return played


def ask_always(patch: pytest.MonkeyPatch) -> None:
    """Takes the short way out of the code."""
    for kind in (ElasticGang, PlainGang):
        patch.setattr(kind, "is_steady", property(lambda gang: False))
        patch.setattr(kind, "trains_on", lambda gang, report: False)


def difference(tale: Story) -> tuple[str, int]:
    """Returns how the two ways differ in a story (empty: not at all), and how much was heard."""
    short = play(tale)
    with pytest.MonkeyPatch.context() as patch:
        ask_always(patch)
        asked = play(tale)
    assert asked.heard == 0
    if short.orders == asked.orders and short.tale == asked.tale:
        return "", short.heard
    both = zip(short.orders, asked.orders, strict=False)
    first = next(((a, b) for a, b in both if a != b), "one is longer")
    return f"{first}\n{tale.told()}", short.heard


def first_difference(stories: Sequence[Story]) -> tuple[str, int]:
    total = 0
    for tale in stories:
        found, heard = difference(tale)
        total += heard
        if found:
            return found, total
    return "", total


def of_block(block: int) -> list[Story]:
    seeds = range(block * SEEDS, (block + 1) * SEEDS)
    kinds = (story, interrupted, parted)
    return [kinds[seed % 3](seed) for seed in seeds]


def test_a_controller_that_does_not_ask_steady_gangs_orders_the_same() -> None:
    found, heard = first_difference(of_block(0))
    assert not found, found
    assert heard >= HEARD_AT_LEAST


@pytest.mark.slow
@pytest.mark.parametrize("block", range(1, 51))
def test_in_many_more_stories_it_orders_the_same(block: int) -> None:
    found, _ = first_difference(of_block(block))
    assert not found, found


# One gang.

LAUNCH = StartWorker(
    JOB, -1, -1, -1, ("python", "x.py"), "/f", "/o", "/w", trains=True, grace_s=5.0
)
PLACES = tuple((node, gpu) for node in (0, 1) for gpu in (0, 1))


class Asked:
    """A gang as the controller treats it: asked after reports that may matter, and when due."""

    def __init__(self, launch: StartWorker, *, short: bool) -> None:
        self.gang: Gang = make_gang(launch, RULES)
        self.short = short
        self.held: set[tuple[int, int]] = set()
        self.said: list[tuple[float, NodeOrder | GangEvent]] = []
        self.saved_step = -1
        self.heard = 0
        self._due_s = NEVER_S

    def ask(self, now: float) -> None:
        """Lets the gang decide, and sends what it orders."""
        self._take_events(now)
        self.gang.step(now, self._is_free, lambda node: 0.0, lambda node, gpu, bound: True)
        self._take_events(now)
        self.said += [(now, order) for order in due_orders(self.gang, now)]
        self._due_s = min(self.gang.next_s(now), next_resend_s(self.gang, now))

    def _is_free(self, node: int, gpu: int) -> bool:
        return (node, gpu) not in self.held

    def _take_events(self, now: float) -> None:
        for event in self.gang.roster.take_events():
            if isinstance(event, Saved):
                if event.step <= self.saved_step:
                    # Inventories repeat it, and nothing follows.
                    continue
                self.saved_step = event.step
            self.said.append((now, event))

    def pass_until(self, now: float) -> None:
        """Asks the gang whenever it is due before an instant."""
        while self._due_s < now:
            self.ask(self._due_s)

    def take(self, report: WorkerReport, now: float) -> None:
        """Takes in what a worker says."""
        is_steady = self.short and self.gang.trains_on(report)
        self.gang.receive(report, now)
        self._hear_or_ask(now, is_steady=is_steady)

    def compare(self, node: int, rows: Sequence[WorkerState], now: float) -> None:
        """Takes in the inventory of a node."""
        is_known = self.short and confirms(self.gang, node, rows, self.saved_step)
        if is_known:
            for row in rows:
                take_training(self.gang, row, now)
        else:
            check_inventory(self.gang, node, rows, now)
        self._hear_or_ask(now, is_steady=is_known)

    def _hear_or_ask(self, now: float, *, is_steady: bool) -> None:
        if is_steady and now < self._due_s:
            self.heard += 1
            self._take_events(now)
        else:
            self.ask(now)

    def want(self, desired: Desired, now: float) -> None:
        """Takes what the plan wants."""
        self.gang.want(desired, now)
        self.ask(now)

    def started(self, number: int, generation: int, now: float) -> None:
        """Takes in that a worker runs."""
        if self.gang.roster.started(number, generation, now):
            self.ask(now)

    def ended(self, node: int, end: WorkerEnded, now: float) -> None:
        """Takes in that a worker is gone."""
        self.gang.ended(node, end, now)
        self.ask(now)

    def lose(self, node: int, now: float) -> None:
        """Takes in that a node is down."""
        self.gang.lose(node)
        self.ask(now)

    def hold(self, place: tuple[int, int], now: float) -> None:
        """Takes in that another job holds a GPU, or that it is free; who waits is asked."""
        self.held ^= {place}
        wanted = self.gang.roster.wanted
        if wanted is not None and not set(wanted.numbers) <= self.gang.roster.workers.keys():
            self.ask(now)


class Pair:
    """The same gang twice, once without the short way, and workers that do what they are told."""

    def __init__(self, *, trains: bool) -> None:
        launch = replace(LAUNCH, trains=trains)
        self.short, self.asked = Asked(launch, short=True), Asked(launch, short=False)
        self.now, self.step, self.next = 0.0, 0, 0
        self.rows: dict[int, WorkerState] = {}
        self.nodes: dict[int, int] = {}

    # What both are given.

    def each(self, do: Callable[[Asked], None]) -> None:
        """Lets something happen to both, and lets the agents read what they are sent."""
        before = len(self.short.said)
        do(self.short)
        do(self.asked)
        assert self.short.said[before:] == self.asked.said[before:]
        news = [what for _, what in self.short.said[before:]]
        for what in news:
            if isinstance(what, tuple) and isinstance(order := what[1], StartWorker):
                row = self.rows.setdefault(order.worker, WorkerState(JOB, order.worker, -1, 0))
                limits = max(row.generation, order.generation)
                self.rows[order.worker] = replace(row, generation=limits, gpu=order.gpu)
                self.nodes[order.worker] = what[0]
        dead = {what.worker for what in news if isinstance(what, WorkerEnded)}
        wanted = self.short.gang.roster.wanted
        if dead and wanted is not None:
            self.want([(m.node, m.gpu) for m in wanted.members], dead)

    def want(self, places: Sequence[tuple[int, int]], dead: Collection[int] = ()) -> None:
        """Lets the plan give the job these GPUs."""
        wanted = self.short.gang.roster.wanted
        there = {} if wanted is None else {(m.node, m.gpu): m.worker for m in wanted.members}
        members = []
        for node, gpu in places:
            number = there.get((node, gpu), -1)
            if number < 0 or number in dead:
                number, self.next = self.next, self.next + 1
            members.append(GangMember(number, node, gpu))
        desired = Desired(tuple(members))
        self.each(lambda one: one.want(desired, self.now))

    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        self.now += seconds
        self.each(lambda one: one.pass_until(self.now))

    def hold(self, place: tuple[int, int]) -> None:
        """Lets another job take a GPU, or leave it."""
        self.each(lambda one: one.hold(place, self.now))

    def lose(self, node: int) -> None:
        """Lets a node be down: its workers are not known any more."""
        for number in [n for n, on in self.nodes.items() if on == node]:
            self.rows.pop(number, None)
        self.each(lambda one: one.lose(node, self.now))

    def inventory(self, node: int, *, without: bool) -> None:
        """Lets an agent say what it has, perhaps from before its newest worker."""
        rows = [row for number, row in sorted(self.rows.items()) if self.nodes[number] == node]
        self.each(lambda one: one.compare(node, rows[:-1] if without else rows, self.now))

    # What workers do.

    def start(self) -> None:
        """Lets all workers run that were ordered."""
        for number, row in sorted(self.rows.items()):
            generation = row.generation
            self.each(lambda one, n=number, g=generation: one.started(n, g, self.now))  # type: ignore[misc]

    def enter(self, *, says_so: bool = True) -> None:
        """Lets the members of the newest generation meet, and enter it.

        If not all they say arrives, their training and inventories show that they have entered.
        """
        target = self.short.gang.roster.target
        if target is None or not self.rows.keys() >= set(target.members):
            return
        self.say(target.members[0], meeting=Meeting(target.generation, "here:1"))
        for number in target.members:
            self.say(number, ready=Ready(target.generation))
        for number in target.members:
            if says_so:
                self.say(number, entered=Entered(target.generation, 0, 0))
            else:
                self.rows[number] = replace(self.rows[number], entered=target.generation)

    def train(self, pick: int, iteration_s: float) -> None:
        """Lets the first worker, or another, say how training goes."""
        there = [n for n in sorted(self.rows) if self.rows[n].entered >= 0]
        if there:
            number = there[pick // 4 % len(there) if pick % 3 == 0 else 0]
            self.step += 1
            generation = self.rows[number].entered
            progress = Training(generation, self.step, self.step, 1.0, iteration_s)
            lost = Lost(generation, "reset") if pick % 7 == 6 else None
            self.say(number, training=progress, lost=lost)

    def save(self) -> None:
        """Lets the first worker say that it has saved."""
        there = [n for n in sorted(self.rows) if self.rows[n].entered >= 0]
        if there:
            self.say(there[0], saved=Saved(self.step, self.step))

    def break_off(self, pick: int) -> None:
        """Lets a worker say that it lost its collectives."""
        there = [n for n in sorted(self.rows) if self.rows[n].entered >= 0]
        if there:
            number = there[pick % len(there)]
            self.say(number, lost=Lost(self.rows[number].entered, "reset"))

    def change_unheard(self, pick: int) -> None:
        """Lets something happen to a worker of which inventories alone will tell."""
        if self.rows:
            number = sorted(self.rows)[pick % len(self.rows)]
            row = self.rows[number]
            self.rows[number] = (
                replace(row, exit_code=-9),
                replace(row, left=WorkerLeft(row.entered, self.step)),
                replace(row, finished=Finished(self.step, self.step)),
                replace(row, lost=Lost(row.entered, "reset")),
                replace(row, saved=Saved(self.step, self.step)),
            )[pick // 4 % 5]

    def end(self, pick: int, code: int) -> None:
        """Lets a worker end."""
        if self.rows:
            number = sorted(self.rows)[pick % len(self.rows)]
            row = self.rows.pop(number)
            ended = WorkerEnded(JOB, number, row.generation, code, "")
            node = self.nodes[number]
            self.each(lambda one: one.ended(node, ended, self.now))

    def say(self, worker: int, **words: object) -> None:
        """Lets a worker say something, which its agent remembers."""
        if worker not in self.rows:
            return
        stage = {name: words[name].generation for name in ("ready", "entered") if name in words}  # type: ignore[attr-defined]
        kept = {n: word for n, word in words.items() if n not in stage and word is not None}
        self.rows[worker] = replace(self.rows[worker], **stage, **kept)  # type: ignore[arg-type]
        report = WorkerReport(JOB, worker, **words)  # type: ignore[arg-type]
        self.each(lambda one: one.take(report, self.now))

    def happen(self, what: str, pick: int) -> None:
        """Lets one thing happen."""
        place = PLACES[pick % len(PLACES)]
        match what:
            case "want":
                self.want([p for i, p in enumerate(PLACES) if (pick % 15 + 1) >> i & 1])
            case "start":
                self.start()
            case "enter":
                self.enter()
            case "train":
                self.train(pick, (0.1, 1.0, 20.0, 60.0)[pick % 4])
            case "save":
                self.save()
            case "break off":
                self.break_off(pick)
            case "end":
                self.end(pick, (0, 1, -9)[pick % 3])
            case "change unheard":
                self.change_unheard(pick)
            case "lose":
                self.lose(place[0])
            case "hold":
                self.hold(place)
            case "late enter":
                self.enter(says_so=False)
            case "inventory":
                self.inventory(place[0], without=pick % 3 == 0)


KINDS = (
    *("want", "start", "enter", "late enter", "train", "inventory"),
    *("save", "break off", "end", "change unheard", "lose", "hold"),
)
HAPPENS = st.tuples(
    st.sampled_from((0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 7.0, 90.0)),
    st.sampled_from((*KINDS, "train", "inventory", "train", "inventory")),
    st.integers(0, 60),
)


def steady(*, trains: bool) -> Pair:
    """Returns a gang on two nodes that trains, and has said so."""
    pair = Pair(trains=trains)
    for what in ("want", "start", "enter", "train", "train"):
        pair.happen(what, 4)
    assert pair.short.gang.is_steady
    return pair


@settings(max_examples=30, deadline=None)
@given(trains=st.sampled_from((True, True, True, False)), events=st.lists(HAPPENS, max_size=30))
def test_a_gang_that_is_not_asked_while_it_is_steady_orders_the_same(
    trains: bool, events: list[tuple[float, str, int]]
) -> None:
    pair = steady(trains=trains)
    for seconds, what, pick in events:
        pair.wait(seconds)
        pair.happen(what, pick)
    pair.wait(700.0)


@pytest.mark.parametrize("what", KINDS)
def test_whatever_happens_to_a_steady_gang_it_orders_the_same(what: str) -> None:
    for pick, trains in itertools.product(range(22), (True, False)):
        pair = steady(trains=trains)
        pair.happen(what, pick)
        for node in (0, 1) if pick % 2 else ():
            pair.inventory(node, without=False)
        pair.wait(5.0)
        pair.happen("inventory", pick)
        pair.wait(20.0)


def test_a_gang_whose_iterations_become_short_stalls_no_later() -> None:
    pair = Pair(trains=True)
    for what in ("want", "start", "enter"):
        pair.happen(what, 6)
    pair.train(0, 60.0)
    pair.wait(150.0)
    pair.train(0, 0.1)
    pair.wait(1000.0)
    stalls = [t for t, what in pair.short.said if isinstance(what, GangStalled)]
    assert stalls[0] == 150.0 + RULES.stall_s
