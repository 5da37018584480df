"""How fast jobs run, what they lose to each other, and what fits into memory.

`placed.py` and `linear.py` are the entries: each gives a `Physics` for a table of jobs. `memory.py`
is the law of memory that all rooms share. `modelled/` has the five parts for jobs with a profile,
`speed/`, `sharing/`, `batches/` and `pipelines/` the laws behind them, `zoo/` the profiles, and
`beliefs/` what a policy believes instead of the truth.
"""
