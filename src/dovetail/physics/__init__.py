"""The speed of jobs, their losses to each other, and their memory.

`placed.py` and `linear.py` are the entries: each gives a `Physics` for a table of jobs. `memory.py`
is the law of memory that all rooms share. `modelled/` has the five parts for jobs with a profile,
`speed/`, `sharing/`, `batches/` and `pipelines/` the laws behind them, `zoo/` the profiles, and
`beliefs/` the physics that a policy sees instead of the truth.
"""
