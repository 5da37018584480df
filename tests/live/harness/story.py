"""A story: everything that will happen in one run of the live cluster, drawn from a seed.

A story is a value. So it can be told again, cut down to the part that still fails, and printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from random import Random

POLICIES = (
    "fifo",
    "srtf",
    "tiresias",
    "afs-p:unit-s=20",
    "afs-l",
    "max-min",
    "sjf-bsbf",
    "sjf-ffs",
    "backfill",
    "gandiva:slice=15",
    "antman",
    "lucid",
    "muri-s:tick-s=15",
    "gimbal:inner=sjf-bsbf",
)
NODES, GPUS_PER_NODE = 2, 2
KINDS = {"machines": ("plain", "elastic", "elastic"), "emulated": ("paced",)}
ENGINES = ("machines", "machines", "emulated")
STOPPED = "agent stopped"
"""An agent that gets SIGSTOP, and SIGCONT later: what it is told meanwhile waits in its socket."""
GONE = "node gone"
"""A node that dies, as whoever started it says to the controller `pick` seconds later."""
GONE_LATE = "node gone, said late"
"""A node that dies and is back, and only then is said to be gone, `pick` seconds later."""
GONE_IN_ERROR = "node gone in error"
"""The same is said of a node that is cut off and lives."""
SUSPENDED = "machine suspended"
"""A machine that sleeps with all that runs on it, and later goes on."""
ORDERS_LOST = "controller killed, orders lost"
"""What no agent has read is lost with it from some order on: it had not left its memory."""
BUSY = "memory held"
"""GPUs of a node whose memory is held from outside: its agent starts nothing, and tries again."""
SHORT_S = 5.0
"""An agent that is back after so long has been missed by nobody."""
CALM_S = 90.0
"""From here on nothing more goes wrong, and what was held or drained is freed."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One user's submit. `gives_up` users do not ask again after a failure."""

    t: float
    kind: str  # one of KINDS
    gpus: int
    min_gpus: int
    max_gpus: int
    duration_s: float
    exit_code: int = 0
    after: str = ""  # the kind of its dependency on the submission before it
    held: bool = False
    time_limit_s: float = float("inf")
    retries: int = 3
    gives_up: bool = False
    twice: bool = False  # the request is sent again although it was answered
    tasks: int = 1  # of an array, if there are several


@dataclass(frozen=True, slots=True)
class Verb:
    """What a user asks of the job of a submission (`of`), or of a node."""

    t: float
    verb: str
    of: int = -1
    node: int = -1
    twice: bool = False
    argument: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong; see `scene.py` for each kind. `pick` chooses among what is there then."""

    t: float
    kind: str
    lasts_s: float = 0.0
    node: int = 0
    pick: int = 0

    @property
    def parts(self) -> bool:
        """Returns whether the controller cannot reach a node for so long that it gives it up."""
        if self.kind == STOPPED:
            return self.lasts_s > SHORT_S
        return self.kind.startswith(("node", "agent", "machine"))

    @property
    def is_harmless(self) -> bool:
        """Returns whether this may cost no job any work."""
        return self.kind.startswith(("controller", "disk")) or (
            self.kind == STOPPED and not self.parts
        )


@dataclass(frozen=True, slots=True)
class Weather:
    """How messages travel until `CALM_S`: delays drawn up to `late_s`, lost and doubled."""

    late_s: float = 0.0
    lost: float = 0.0
    doubled: float = 0.0


@dataclass(frozen=True, slots=True)
class Story:
    """One run. `crash_at` are counts of crash points at which the controller is killed."""

    seed: int
    policy: str
    submissions: tuple[Submission, ...]
    verbs: tuple[Verb, ...] = ()
    faults: tuple[Fault, ...] = ()
    crash_at: tuple[int, ...] = ()
    weather: Weather = Weather()
    engine: str = "machines"
    nodes: int = NODES
    lease_s: float = 0.0
    drift: float = 0.01

    @property
    def is_misled(self) -> bool:
        """Returns whether the controller is told of a node that is gone, and it is not."""
        return any(fault.kind == GONE_IN_ERROR for fault in self.faults)

    def told(self) -> str:
        """Returns the story in words, one event a line, in order of time."""
        events: list[tuple[float, str]] = []
        for i, s in enumerate(self.submissions):
            events.append((s.t, f"submission {i}: {_said(s)}"))
        events += [(v.t, f"verb {_said(v)}") for v in self.verbs]
        events += [(f.t, f"fault {_said(f)}") for f in self.faults]
        lines = [f"seed {self.seed}, policy {self.policy}, {self.engine}, {_said(self.weather)}"]
        if self.lease_s:
            lines.append(f"{self.nodes} nodes with leases of {self.lease_s:g} s")
        if self.crash_at:
            lines.append(f"killed at crash points {self.crash_at}")
        lines += [f"{t:8.2f} s  {text}" for t, text in sorted(events)]
        return "\n".join(lines)

    def smaller(self) -> Iterator[Story]:
        """Yields the stories that lack one thing each, what matters least last."""
        for name in ("faults", "verbs", "crash_at"):
            things = getattr(self, name)
            for i in range(len(things)):
                yield replace(self, **{name: things[:i] + things[i + 1 :]})
        if self.weather != Weather():
            yield replace(self, weather=Weather())
        for i in reversed(range(len(self.submissions))):
            if not any(v.of == i for v in self.verbs) and len(self.submissions) > 1:
                yield self._without(i)

    def _without(self, i: int) -> Story:
        kept = list(self.submissions[:i] + self.submissions[i + 1 :])
        if i < len(kept) and kept[i].after:
            kept[i] = replace(kept[i], after="")
        verbs = tuple(replace(v, of=v.of - 1) if v.of > i else v for v in self.verbs)
        return replace(self, submissions=tuple(kept), verbs=verbs)


def _said(thing: object) -> str:
    """Returns the fields of a thing that are not at their default."""
    named = [(f, getattr(thing, f.name)) for f in fields(thing) if f.name != "t"]  # type: ignore[arg-type]
    return " ".join(f"{f.name}={value}" for f, value in named if value != f.default) or "calm"


def story(seed: int, *, policies: tuple[str, ...] = POLICIES) -> Story:
    """Returns the story of a seed. A third of them have one kind of trouble, the others several."""
    rng = Random(seed)
    engine = rng.choice(ENGINES)
    submissions = tuple(sorted(draw_submissions(rng, engine), key=lambda s: s.t))
    kinds = [_kills, _crashes, _workers, _agents, _network, _disk]
    chosen = (
        [rng.choice(kinds)] if rng.random() < 0.33 else [k for k in kinds if rng.random() < 0.5]
    )
    faults: list[Fault] = []
    crash_at: list[int] = []
    for kind in chosen:
        if kind is _crashes:
            crash_at = sorted({rng.randrange(1, 120) for _ in range(rng.randint(1, 3))})
        else:
            faults += kind(rng)
    verbs = (*draw_verbs(rng, submissions), *_cancels(rng, faults, submissions))
    return Story(
        seed=seed,
        policy=policies[seed % len(policies)],
        submissions=submissions,
        verbs=tuple(sorted(verbs, key=lambda v: v.t)),
        faults=tuple(sorted(faults, key=lambda f: f.t)),
        crash_at=tuple(crash_at),
        weather=_weather(rng),
        engine=engine,
    )


def draw_submissions(rng: Random, engine: str) -> Iterator[Submission]:
    for i in range(rng.randint(4, 8)):
        kind = rng.choice(KINDS[engine])
        gpus = rng.choice((1, 1, 1, 2, 2, 4))
        elastic = kind != "plain" and rng.random() < 0.6
        yield Submission(
            t=round(rng.choice((0.0, rng.uniform(0, 40))), 2),
            kind=kind,
            gpus=gpus,
            min_gpus=1 if elastic else gpus,
            max_gpus=4 if elastic else gpus,
            duration_s=round(rng.uniform(*rng.choice(((0.2, 3.0), (2.0, 40.0), (2.0, 40.0)))), 1),
            exit_code=rng.choice((0,) * 9 + (3,)) if kind == "plain" else 0,
            after=rng.choice(("after", "afterok", "afterany", "afternotok"))
            if i and rng.random() < 0.15
            else "",
            held=rng.random() < 0.08,
            time_limit_s=round(rng.uniform(5, 60), 1) if rng.random() < 0.1 else float("inf"),
            retries=rng.choice((0, 1, 3, 3)),
            gives_up=rng.random() < 0.2,
            twice=rng.random() < 0.2,
        )


def draw_verbs(
    rng: Random, submissions: tuple[Submission, ...], nodes: int = NODES
) -> Iterator[Verb]:
    for _ in range(rng.choice((0, 0, 1, 2, 4))):
        verb = rng.choice(("cancel", "cancel", "hold", "release", "requeue", "drain", "undrain"))
        t = round(rng.uniform(0, 70), 2)
        if verb in ("drain", "undrain"):
            yield Verb(t, verb, node=rng.randrange(nodes), twice=rng.random() < 0.3)
        else:
            yield Verb(t, verb, of=rng.randrange(len(submissions)), twice=rng.random() < 0.3)


def _cancels(
    rng: Random, faults: list[Fault], submissions: tuple[Submission, ...]
) -> Iterator[Verb]:
    """Lets users give up on a job some time after a worker hung, or ceased to listen."""
    for fault in faults:
        if fault.kind in ("worker hangs", "worker stubborn") and rng.random() < 0.4:
            t = round(fault.t + rng.uniform(1, 30), 2)
            yield Verb(t, "cancel", of=rng.randrange(len(submissions)))


def _kills(rng: Random) -> Iterator[Fault]:
    for _ in range(rng.randint(1, 3)):
        lasts_s = rng.choice((0.0, 0.1, 2.0, 25.0))
        yield Fault(round(rng.uniform(0, 80), 3), "controller killed", lasts_s)


def _crashes(rng: Random) -> Iterator[Fault]:
    return iter(())


def _workers(rng: Random) -> Iterator[Fault]:
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(("worker killed", "worker killed", "worker hangs", "worker stubborn"))
        yield Fault(round(rng.uniform(0, 80), 2), kind, pick=rng.randrange(8))


def _agents(rng: Random) -> Iterator[Fault]:
    for _ in range(rng.randint(1, 2)):
        kind = rng.choice(("agent killed", "agent killed", "node reboots"))
        lasts_s = rng.choice((0.1, 1.0, 5.0, 40.0))
        yield Fault(round(rng.uniform(0, 80), 2), kind, lasts_s, node=rng.randrange(NODES))


def _network(rng: Random) -> Iterator[Fault]:
    for _ in range(rng.randint(1, 2)):
        lasts_s = rng.choice((1.0, 5.0, 45.0))
        kind = rng.choice(("node silent", "node deaf", "node cut off"))
        yield Fault(round(rng.uniform(0, 80), 2), kind, lasts_s, node=rng.randrange(NODES))


def _disk(rng: Random) -> Iterator[Fault]:
    yield Fault(round(rng.uniform(0, 80), 2), "disk full", rng.choice((0.5, 5.0, 20.0)))


def _weather(rng: Random) -> Weather:
    if rng.random() < 0.4:
        return Weather()
    return Weather(
        late_s=rng.choice((0.001, 0.05, 1.0, 4.0)),
        lost=rng.choice((0.0, 0.0, 0.02, 0.2)),
        doubled=rng.choice((0.0, 0.0, 0.05, 0.3)),
    )


def restarting(tale: Story) -> Story:
    """Returns a story in which programs with checkpoints of their own are resized by restarts."""
    rng = Random(f"restarting {tale.seed}")
    submissions = []
    for one in tale.submissions:
        if one.tasks == 1 and rng.random() < 0.8:
            most = max(4, one.max_gpus)
            one = replace(one, kind="restarting", min_gpus=1, max_gpus=most, exit_code=0)
        submissions.append(one)
    policy = rng.choice(("max-min", "afs-p:unit-s=20", "afs-l", "optimus", "themis:lease=15"))
    return replace(tale, policy=policy, submissions=tuple(submissions))


def interrupted(seed: int) -> Story:
    """Returns a story in which agents are stopped while controllers are killed.

    Some are stories of `story` with that beside their own troubles. The others have no other
    trouble, so that nothing may be lost; half of these have a policy that leaves alone what runs.
    """
    rng = Random(f"interrupted {seed}")
    tale = story(seed)
    starts_s = [t + round(rng.uniform(0.0, 9.0), 3) for t in rng.sample((0, 20, 40, 60), 2)]
    if rng.random() < 0.7:
        gangs = [_gang(rng, tale.engine, t) for t in starts_s]
        tale = replace(
            tale,
            policy=rng.choice(("fifo", "backfill", tale.policy, tale.policy)),
            submissions=tuple(sorted((*tale.submissions[:4], *gangs), key=lambda s: s.t)),
            verbs=(),
            faults=(),
            crash_at=(),
            weather=Weather(),
        )
    stops = [fault for t in starts_s for fault in _stops(rng, t)]
    return replace(tale, faults=tuple(sorted((*tale.faults, *stops), key=lambda f: f.t)))


def _gang(rng: Random, engine: str, t: float) -> Submission:
    """Returns a job of several workers that comes while its agents stand."""
    kind = rng.choice(KINDS[engine])
    gpus = rng.choice((2, 3, 4))
    return Submission(t + 0.01, kind, gpus, gpus, gpus, round(rng.uniform(0.2, 10.0), 1))


def _stops(rng: Random, t: float) -> Iterator[Fault]:
    """Stops agents, and kills controllers while they stand."""
    lasts_s = rng.choice((0.3, 1.0, 1.0, 4.0, 4.0, 30.0))
    # The agents of nodes that one machine plays are one process.
    for node in rng.choice(((0,), (1,), range(NODES), range(NODES))):
        yield Fault(t, STOPPED, lasts_s, node=node)
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        kind = rng.choice(("controller killed", ORDERS_LOST, ORDERS_LOST))
        at_s = t + rng.uniform(0.05, min(lasts_s, 2.0))
        yield Fault(round(at_s, 3), kind, rng.choice((0.0, 0.1, 2.0)))
