"""The options of a run: everything but the policy and the trace, as the manifest records it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import InputError, nearest
from dovetail.core.placing import Placing
from dovetail.core.policy import POWERS
from dovetail.core.switching import Switching
from dovetail.core.tenants import AccountSpec, QosSpec, QueueSpec, ReservationSpec, UserLimits
from dovetail.core.trace import Trace
from dovetail.physics.beliefs.blur import Blur
from dovetail.physics.sharing.interference import parse_interference
from dovetail.physics.sharing.turns import InterleaveRule
from dovetail.physics.zoo.models import shipped
from dovetail.record.metrics import Window
from dovetail.traces.transform import adopted as draw_flags

TenantSpec = QueueSpec | AccountSpec | QosSpec | ReservationSpec | UserLimits
CANCELLED_CHOICES = ("work", "clock")
PHYSICS_CHOICES = ("placed", "counted", "linear")
"""placed: model and placement decide the speed; counted: model and GPU count; linear: GPUs."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run; the defaults are those of the command line, except `forecast`.

    A study in code says what its policies are told; the command line tells them what a site has.
    `adopt` is the fraction of jobs to flag, by flag; empty keeps the flags of the trace. `without`
    lists powers that no policy may use. `left_out_max` is the share of jobs or GPU-hours that
    commands may leave out; it changes no result, so no manifest has it. `infer_capacity` takes the
    changes of capacity from the record of the trace. `type_speeds` are the speeds of jobs of one
    GPU type on another, in small letters.
    """

    cluster: Cluster
    placing: Placing = field(default_factory=Placing)
    switching: Switching = field(default_factory=Switching)
    forecast: str = "known"
    belief: str = "exact"
    adopt: tuple[tuple[str, float], ...] = ()
    cancelled: str = "work"
    capacity: Sequence[tuple[float, Sequence[tuple[int, str]]]] = ()
    infer_capacity: bool = False
    coalesce_s: float = 0.0
    interference: str | float = "measured"
    cycle: str = "overlapped"
    physics: str = "placed"
    profiles: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()
    window: Window = field(default_factory=Window)
    seed: int = 0
    left_out_max: float = 1.0
    type_speeds: tuple[tuple[str, str, float], ...] = ()

    def __post_init__(self) -> None:
        if self.cancelled not in CANCELLED_CHOICES:
            raise InputError(
                "--cancelled",
                f"unknown '{self.cancelled}'",
                nearest(self.cancelled, CANCELLED_CHOICES),
            )
        if self.physics not in PHYSICS_CHOICES:
            raise InputError(
                "--physics", f"unknown '{self.physics}'", nearest(self.physics, PHYSICS_CHOICES)
            )
        if not 0 <= self.coalesce_s < float("inf"):
            raise InputError("--coalesce-s", "it must be 0 or more")
        parse_interference(self.interference)
        InterleaveRule.parse(self.cycle)
        Blur.parse(self.belief)
        for power in self.without:
            if power not in POWERS:
                raise InputError("--without", f"unknown power '{power}'", nearest(power, POWERS))

    def manifest(self) -> dict[str, object]:
        """Returns the options as JSON values."""
        cluster = self.cluster
        return {
            "cluster": {
                "nodes": cluster.nodes,
                "gpus": cluster.gpus,
                "groups": [_group_dict(g) for g in cluster.groups],
                "links": [asdict(link) for link in cluster.links],
                "queues": [_stated(q, QueueSpec(""), _ALWAYS) for q in cluster.queues],
                **_tenants_dict(cluster),
                "states": [list(s) for s in cluster.states],
            },
            "placement": str(self.placing),
            "switching": asdict(self.switching),
            "forecast": self.forecast,
            "belief": self.belief,
            "adopt": dict(self.adopt),
            "cancelled": self.cancelled,
            "capacity_changes": len(self.capacity),
            "coalesce_s": self.coalesce_s,
            "interference": self.interference,
            "cycle": self.cycle,
            "physics": self.physics,
            "profiles": list(self.profiles),
            "without": sorted(self.without),
            "warm_up_s": self.window.warm_up_s,
            "drain_s": self.window.drain_s,
            "seed": self.seed,
            **({"type_speeds": list(self.type_speeds)} if self.type_speeds else {}),
        }


_ALWAYS = ("name", "quota_gpus", "priority")


def _tenants_dict(cluster: Cluster) -> dict[str, object]:
    """Returns accounts, QOS, users and reservations; a cluster without tenants has none."""
    nobody = ReservationSpec("", 0.0, 0.0, ())
    kinds = {
        "accounts": [_stated(a, AccountSpec("")) for a in cluster.accounts],
        "qos": [_stated(q, QosSpec("")) for q in cluster.qos],
        "users": [_stated(u, UserLimits("")) for u in cluster.users],
        "reservations": [
            _stated(r, nobody, ("name", "start_s", "end_s", "nodes")) for r in cluster.reservations
        ],
    }
    return {kind: values for kind, values in kinds.items() if values}


_IF_STATED = ("price_per_gpu_h", "gpus_per_island")


def _group_dict(group: NodeGroup) -> dict[str, object]:
    """Returns the fields of a group; price and islands only if there are any."""
    values = asdict(group)
    return {k: v for k, v in values.items() if k not in _IF_STATED or v}


def _stated(
    spec: TenantSpec, plain: TenantSpec, always: Sequence[str] = ("name",)
) -> dict[str, object]:
    """Returns the fields of a spec, without those that have their default."""
    values, defaults = asdict(spec), asdict(plain)
    return {k: v for k, v in values.items() if k in always or v != defaults[k]}


ADOPTED = ("elastic", "shareable")


def parse_adopt(text: str) -> tuple[tuple[str, float], ...]:
    """Returns the fractions of a text like `elastic:0.5,shareable:1`. Raises InputError."""
    shares: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, number = part.partition(":")
        if name not in ADOPTED:
            raise InputError("--adopt", f"unknown flag '{name}'", nearest(name, ADOPTED))
        if name in shares:
            raise InputError("--adopt", f"'{name}' occurs twice")
        try:
            shares[name] = float(number)
        except ValueError:
            raise InputError("--adopt", f"'{part}' needs a fraction", "as in elastic:0.5") from None
        if not 0 <= shares[name] <= 1:
            raise InputError("--adopt", f"'{part}' must be between 0 and 1")
    return tuple(sorted(shares.items()))


def adopted(trace: Trace, adopt: tuple[tuple[str, float], ...], seed: int) -> Trace:
    """Returns the trace with flags drawn by seed.

    An elastic job may use as many GPUs as the trace or the profile of its model allows.
    """
    if not adopt:
        return trace
    shares = dict(adopt)
    return draw_flags(
        trace,
        elastic=shares.get("elastic", 0.0),
        shareable=shares.get("shareable", 0.0),
        seed=seed,
        max_gpus=_useful_gpus,
    )


def _useful_gpus(model: str) -> int:
    profile = shipped().find(model)
    return 0 if profile is None else profile.max_gpus.value
