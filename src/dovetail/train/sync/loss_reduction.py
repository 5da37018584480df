"""Detects a loss that is a sum over samples: its gradient would depend on how samples are split.

On one worker a sum trains as well as a mean. Split among workers, its size changes with their
number, and its value does not show that. The autograd graph that computed it does.
"""

from __future__ import annotations

from torch import Tensor

SUM = 2
"""The value of `reduction="sum"` in torch's autograd nodes."""
TERMS_MAX = 100


def is_sum(loss: Tensor, samples: int) -> bool:
    """Returns whether a term of the loss is a plain sum over `samples` samples."""
    terms = [loss.grad_fn]
    for _ in range(TERMS_MAX):
        term = terms.pop() if terms else None
        if term is None:
            return False
        # One of several terms may be a penalty on parameters that happens to have as many rows.
        is_only_term = term is loss.grad_fn
        is_rows = is_only_term and term.name() == "SumBackward0" and _rows(term) == samples
        if term.name().startswith(("AddBackward", "SubBackward")):
            terms += [node for node, _ in term.next_functions if node is not None]
        elif is_rows or getattr(term, "_saved_reduction", None) == SUM:
            return True
    return False


def _rows(term: object) -> int:
    shape = tuple(getattr(term, "_saved_self_sym_sizes", ()))
    return int(shape[0]) if shape else 0
