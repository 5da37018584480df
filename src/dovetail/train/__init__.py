"""The training library: a loop in PyTorch that survives workers joining, leaving and failing.

The only part of Dovetail that imports torch (extra `train`). It knows nothing of scheduling: it
exchanges the messages of `dovetail.wire.worker` with the agent of its node, and data with the
other workers.
"""

import os

from dovetail.train.job import Job
from dovetail.train.process import out_of_memory
from dovetail.wire.worker import SOCKET

__all__ = ["Job"]

if os.environ.get(SOCKET):
    out_of_memory.watch()
