"""The users: they submit and ask, ask again when no answer came, and remember what was promised."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from harness.killing import Killed
from harness.story import CALM_S, Story, Submission, Verb

from dovetail.core.errors import InputError
from dovetail.live.edges.protocols import StoreError
from dovetail.live.edges.virtual_time import Timeline
from dovetail.wire.spec import Dependency, JobSpec
from dovetail.wire.submission import Submission as Submitted

RESTART_S = 1.0
"""What a restart costs a program with checkpoints of its own: enough to be weighed."""
GRACE_S = 2.0
AGAIN_S = 0.7
"""A user whose request was not answered asks again after so long."""


class Office(Protocol):
    """Where requests are taken, while a controller runs: `live.intake`."""

    def submit(self, submissions: list[Submitted], *, key: str) -> tuple[int, ...]:
        """Returns the numbers of jobs that are on record."""
        ...

    def request(
        self, verb: str, *, jobs: tuple[int, ...] = (), node: int = -1, argument: str = "", key: str
    ) -> tuple[int, ...]:
        """Returns when a request is on record."""
        ...


@dataclass
class Promises:
    """What users were told, and what they may see although they were told nothing."""

    numbers: dict[int, int] = field(default_factory=dict)
    given_up: set[int] = field(default_factory=set)
    cancelled_s: dict[int, float] = field(default_factory=dict)
    requeued: dict[int, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class Users:
    """Everybody who asks something of the cluster in a story."""

    def __init__(
        self,
        line: Timeline,
        story: Story,
        office: Callable[[], Office | None],
        cancelled: Callable[[int], None],
    ) -> None:
        self._cancelled = cancelled
        self._line = line
        self._story = story
        self._office = office
        self.promises = Promises()
        self.open = 0
        self._repeated: set[str] = set()
        for i, submission in enumerate(story.submissions):
            self._soon(submission.t, lambda i=i: self._submit(i))
        for i, verb in enumerate(story.verbs):
            self._soon(verb.t, lambda i=i, verb=verb: self._ask(f"v{i}", verb))

    def _soon(self, time_s: float, do: Callable[[], None]) -> None:
        self.open += 1

        def doing() -> None:
            self.open -= 1
            do()

        self._line.at(time_s, doing)

    def _again(self, do: Callable[[], None]) -> None:
        self._soon(self._line.now + AGAIN_S, do)

    def _submit(self, i: int) -> None:
        submission, office = self._story.submissions[i], self._office()
        if office is None:
            self._unanswered(i, submission)
            return
        if i and submission.after and not self._known(i - 1) and self._may_come(i - 1):
            self._again(lambda: self._submit(i))
            return
        try:
            tasks = tuple(range(submission.tasks)) if submission.tasks > 1 else ()
            wanted = Submitted(self._spec(i, submission), array=tasks)
            number = office.submit([wanted], key=f"s{i}")[0]
        except StoreError:
            self._unanswered(i, submission)
            return
        except Killed:
            self._unanswered(i, submission)
            raise
        self._promised(i, number)
        self._repeat(f"s{i}", submission.twice, lambda: self._submit(i))

    def _promised(self, i: int, number: int) -> None:
        told = self.promises.numbers.setdefault(i, number)
        if told != number:
            self.promises.wrong.append(f"submission {i} was job {told}, and then job {number}")

    def _unanswered(self, i: int, submission: Submission) -> None:
        if submission.gives_up and i not in self.promises.numbers:
            self.promises.given_up.add(i)
        else:
            self._again(lambda: self._submit(i))

    def _known(self, i: int) -> bool:
        return i in self.promises.numbers

    def _may_come(self, i: int) -> bool:
        return i not in self.promises.given_up

    def _spec(self, i: int, s: Submission) -> JobSpec:
        before = self.promises.numbers.get(i - 1)
        after = (Dependency(s.after, before),) if s.after and before is not None else ()
        trains = s.kind == "elastic"
        plain = s.kind == "plain" or (s.kind == "restarting" and s.min_gpus == s.max_gpus)
        least, most = (s.gpus, s.gpus) if plain else (s.min_gpus, s.max_gpus)
        work = ("train", s.duration_s, s.gpus) if trains else ("work", s.duration_s, s.exit_code)
        return JobSpec(
            name=f"s{i}",
            command=() if s.kind == "paced" else (work[0], json.dumps(work[1:])),
            paced=s.kind == "paced",
            workdir="/",
            gpus=s.gpus,
            min_gpus=least,
            max_gpus=most,
            duration_s=s.duration_s,
            time_limit_s=s.time_limit_s,
            after=after,
            hold=s.held,
            retries=s.retries,
            shareable=True,
            grace_s=GRACE_S,
            trains=trains,
            restart_s=RESTART_S if s.kind == "restarting" and least < most else 0.0,
            # Of the others every second has one process with all of its GPUs.
            ntasks=s.gpus if plain and i % 2 == 0 else 0,
        )

    def _ask(self, key: str, verb: Verb) -> None:
        office, again = self._office(), lambda: self._ask(key, verb)
        if verb.of >= 0 and not self._known(verb.of):
            if self._may_come(verb.of) and self._line.now < 2 * CALM_S:
                self._again(again)
            return
        if office is None:
            self._again(again)
            return
        jobs = (self.promises.numbers[verb.of],) if verb.of >= 0 else ()
        try:
            office.request(verb.verb, jobs=jobs, node=verb.node, argument=verb.argument, key=key)
        except InputError:
            return
        except StoreError:
            self._again(again)
            return
        except Killed:
            self._again(again)
            raise
        if verb.verb == "cancel" and key not in self._repeated:
            self._cancelled(jobs[0])
        if verb.verb == "requeue" and key not in self._repeated:
            times = self.promises.requeued.get(jobs[0], 0)
            self.promises.requeued[jobs[0]] = times + 1
        self._repeat(key, verb.twice, again)

    def _repeat(self, key: str, twice: bool, again: Callable[[], None]) -> None:
        """Lets a user ask once more although there was an answer."""
        if twice and key not in self._repeated:
            self._repeated.add(key)
            self._again(again)
