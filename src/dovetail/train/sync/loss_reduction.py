"""Whether a loss looks like a sum over samples: its gradient would depend on who computes how many.

Alone a sum trains as well as a mean. Shared out among workers it has another size with each number
of them, and nothing in the numbers tells; but what it was computed by does.
"""

from __future__ import annotations

from torch import Tensor

SUM = 2
"""What torch calls `reduction="sum"` inside."""
TERMS_MAX = 100


def is_sum(loss: Tensor, samples: int) -> bool:
    """Returns whether a term of a loss is a plain sum over so many samples."""
    terms = [loss.grad_fn]
    for _ in range(TERMS_MAX):
        term = terms.pop() if terms else None
        if term is None:
            return False
        # A term among others may be a penalty on parameters, of as many rows by chance.
        alone = term is loss.grad_fn
        is_rows = alone and term.name() == "SumBackward0" and _rows(term) == samples
        if term.name().startswith(("AddBackward", "SubBackward")):
            terms += [node for node, _ in term.next_functions if node is not None]
        elif is_rows or getattr(term, "_saved_reduction", None) == SUM:
            return True
    return False


def _rows(term: object) -> int:
    shape = tuple(getattr(term, "_saved_self_sym_sizes", ()))
    return int(shape[0]) if shape else 0
