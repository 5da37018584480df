"""The judgement on a run that is over: what was promised, and what became of it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

from harness.story import SHORT_S, Fault, Story, Weather

from dovetail.live.jobs.lifecycle import TERMINAL, State

if TYPE_CHECKING:
    from harness.scene import Scene

SMALL_S = 1e-6


def judge(scene: Scene) -> None:
    """Notes every breach of a promise."""
    with closing(sqlite3.connect(scene.path)) as database:
        kept = dict(database.execute("SELECT number, name FROM jobs"))
        still_open = database.execute("SELECT verb, job FROM requests WHERE done = 0").fetchall()
    for verb, job in still_open:
        scene.truth.breach(f"the request to {verb} (job {job}) was never carried out")
    _submits(scene, kept)
    for number in kept:
        _ends(scene, number)
        _adopts(scene, number)
        _work(scene, number)


def _submits(scene: Scene, kept: dict[int, str]) -> None:
    truth, numbers = scene.truth, scene.users.promises.numbers
    for submission, number in numbers.items():
        if kept.get(number) != f"s{submission}":
            truth.breach(f"submission {submission} was job {number}, and is not on record")
    for name, times in Counter(kept.values()).items():
        if times != scene.story.submissions[int(name[1:])].tasks:
            truth.breach(f"submission {name[1:]} is on record {times} times")


def _adopts(scene: Scene, number: int) -> None:
    """Holds that nobody was started twice where nothing but controllers and disks failed."""
    truth, story = scene.truth, scene.story
    moves = not scene.policy.powers.isdisjoint(("preempt", "migrate", "resize", "share"))
    harmless = story.weather == Weather() and all(f.is_harmless for f in story.faults)
    promises = scene.users.promises
    if moves or not harmless or number in promises.cancelled_s or number in promises.requeued:
        return
    record, started = truth.records.get(number), truth.starts.get(number, 0)
    if record is not None and record.state is State.COMPLETED and started != truth.size[number]:
        truth.breach(f"job {number} of {truth.size[number]} workers had {started}")


def _ends(scene: Scene, number: int) -> None:
    truth = scene.truth
    record = truth.records.get(number)
    if record is None or record.state not in TERMINAL:
        truth.breach(f"job {number} is not over")
        return
    ends, again = truth.ended.get(number, 0), scene.users.promises.requeued.get(number, 0)
    if not 1 <= ends <= 1 + again:
        truth.breach(f"job {number} has {ends} ends on record, and was requeued {again} times")


def _work(scene: Scene, number: int) -> None:
    """Holds the state of a job against the work that was really done."""
    truth, promises = scene.truth, scene.users.promises
    record = truth.records.get(number)
    if record is None:
        return
    work, story = scene.floor.really(number), scene.story
    did_it = work.times > 0 and work.code == 0
    known = not any(_parts(story, fault) for fault in story.faults)
    if record.state is State.COMPLETED and not did_it:
        truth.breach(f"job {number} is COMPLETED, and its work is not done")
    if number in promises.cancelled_s or number in promises.requeued:
        return
    over = [State.COMPLETED, State.TIMEOUT]
    harmed = any(fault.kind.startswith("worker") for fault in story.faults)
    if harmed:
        # Who is left may still come to the end while a job that failed is being ended; and one
        # killed between its last step and its exit is not known to have done its part.
        over.append(State.FAILED)
    if did_it and known and record.state not in over:
        truth.breach(f"job {number} did its work and is {record.state}")
    # In bad weather a job may be preempted after its end, before the news of that arrives.
    calm = story.weather == Weather()
    if did_it and known and calm and not harmed and not work.told_late and work.times > 1:
        truth.breach(f"job {number} was done {work.times} times")
    harmless = calm and all(fault.is_harmless for fault in story.faults)
    if harmless and work.lost_s > SMALL_S and record.state is State.COMPLETED:
        truth.breach(f"job {number} lost {work.lost_s:.3f} s of work, and no worker was harmed")


def _parts(story: Story, fault: Fault) -> bool:
    """Tells whether after a fault nobody can know what became of the workers of a node."""
    if fault.kind == "agent killed":
        return story.engine == "emulated" or fault.lasts_s > SHORT_S
    return fault.parts
