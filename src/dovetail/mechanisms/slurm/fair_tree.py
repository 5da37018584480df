"""Slurm's Fair Tree: users ranked by shares and usage, level by level of the tree of accounts.

At each level the children of an account are sorted by their level fair share, shares over usage,
both as parts of the siblings' sum. A walk in that order ranks the users; the factor of a user is
the rank over the number of users. Users with the same level fair share have the same rank, and so
has the first user behind an account that ties with what came before it.

Slurm's documentation says that accounts with the same level fair share are merged. No release up
to 26.05 does so (`_count_tied_accounts` stops at the first account), and neither do we: the first
user of the second account then has the rank of the last user of the first.

Source: https://slurm.schedmd.com/fair_tree.html; `fair_tree.c` of Slurm 22.05.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from dovetail.core.tenants import AccountSpec

ROOT = ""
Association = tuple[str, str]
"""(account, user). Slurm keeps shares, usage and limits by association."""


@dataclass(frozen=True, slots=True)
class FairNode:
    """An account with its children, or a user: the leaf whose usage has a number."""

    shares: int
    children: tuple[FairNode, ...] = ()
    leaf: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class FairTree:
    """The tree of accounts and users, and the number of each user's leaf."""

    root: FairNode
    leaf_of: Mapping[Association, int]

    @staticmethod
    def of(accounts: Sequence[AccountSpec], seen: Sequence[Association]) -> FairTree:
        """Returns the tree of the accounts given, and of associations met beside them.

        An account or a user that is not given has one share, an account of its own under the root.
        Users without an account are children of the root.
        """
        given = {account.name: account for account in accounts}
        users: dict[str, dict[str, int]] = {a.name: dict(a.users) for a in accounts}
        for account, user in seen:
            users.setdefault(account, {}).setdefault(user, 1)
        inside: dict[str, list[str]] = {}
        for name in users:
            if name != ROOT:
                spec = given.get(name)
                parent = spec.parent if spec is not None and spec.parent in given else ROOT
                inside.setdefault(parent, []).append(name)
        pairs = [(a.name, user) for a in accounts for user, _ in a.users]
        # In order of appearance, so that a leaf keeps its number when others join.
        leaf_of = {pair: leaf for leaf, pair in enumerate(dict.fromkeys([*pairs, *seen]))}

        def build(name: str) -> FairNode:
            leaves = [
                FairNode(shares, leaf=leaf_of[name, user])
                for user, shares in users.get(name, {}).items()
            ]
            below = tuple(build(child) for child in inside.get(name, ()))
            shares = given[name].shares if name in given else 1
            return FairNode(shares, (*leaves, *below))

        return FairTree(build(ROOT), leaf_of)

    def factors(self, usage: Sequence[float]) -> list[float]:
        """Returns the fair-share factor of each leaf, from 0 to 1, for the usage of each."""
        ranking = _Ranking(usage, len(self.leaf_of))
        ranking.visit(self.root, tied=False)
        return ranking.factors


class _Ranking:
    """The walk over the tree: the rank of the next user, and the rank if it ties."""

    def __init__(self, usage: Sequence[float], users: int) -> None:
        self._usage = usage
        self._users = self._rank = self._next_rank = users
        self.factors = [0.0] * users

    def visit(self, account: FairNode, *, tied: bool) -> None:
        """Ranks the users below an account; `tied`: the account ties with what came before it."""
        children = self._sorted(account.children)
        before: float | None = None
        for position, (level, child) in enumerate(children):
            same = (tied and position == 0) or before == level
            if child.leaf >= 0:
                if not same:
                    self._rank = self._next_rank
                self.factors[child.leaf] = self._rank / self._users
                self._next_rank -= 1
            else:
                self.visit(child, tied=same)
            before = level

    def _sorted(self, children: Sequence[FairNode]) -> list[tuple[float, FairNode]]:
        used = [self._used(child) for child in children]
        all_used, shares = sum(used), sum(child.shares for child in children)
        levels = [
            level_share(child.shares, shares, part, all_used)
            for child, part in zip(children, used, strict=True)
        ]
        # Users come before accounts that tie with them.
        order = sorted(range(len(children)), key=lambda i: (-levels[i], children[i].leaf < 0))
        return [(levels[i], children[i]) for i in order]

    def _used(self, node: FairNode) -> float:
        if node.leaf >= 0:
            return self._usage[node.leaf]
        return sum(self._used(child) for child in node.children)


def level_share(shares: int, all_shares: int, used: float, all_used: float) -> float:
    """Returns LF = S / U of fair_tree.html: above 1 is under-served, without usage infinite."""
    if not shares or not all_shares:
        return 0.0
    if not used or not all_used:
        return inf
    return (shares / all_shares) / (used / all_used)
