"""Errors that a user can fix: one sentence with the place, the problem and the remedy."""

from __future__ import annotations

from collections.abc import Iterable


class DovetailError(Exception):
    """The root of every error that Dovetail raises on purpose."""


class InputError(DovetailError):
    """Input of the user that cannot be used; the command line exits with code 2.

    `where` names the file, line or option; `what` the problem; `mend` the remedy.
    """

    def __init__(self, where: str, what: str, mend: str = "") -> None:
        self.where, self.what, self.mend = where, what, mend
        super().__init__(f"{where}: {what}" + (f" ({mend})" if mend else ""))

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str, str]]:
        return InputError, (self.where, self.what, self.mend)


class IllegalPlan(DovetailError):
    """A plan that breaks a rule; in simulation that is a bug of the policy."""


LISTED_MAX = 100
"""More names than these are not listed."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns a hint that names the known word nearest to `word`, or lists what is known."""
    import difflib  # needed only after a mistake, and every command imports this file

    options = sorted(known)
    close = difflib.get_close_matches(word, options, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    if len(options) <= LISTED_MAX:
        return f"known: {', '.join(options)}"
    few = difflib.get_close_matches(word, options, n=3, cutoff=0.0)
    return f"the nearest of {len(options)} known ones: {', '.join(few)}"
