"""What runs inside a training job: a loop in PyTorch that grows, shrinks and survives.

The only part of Dovetail that imports torch (extra `train`). It knows nothing of scheduling: it
speaks the messages of `dovetail.wire.worker` with the agent of its node, and with other workers.
"""

import os

from dovetail.train.job import Job
from dovetail.train.process import out_of_memory as no_room
from dovetail.wire.worker import SOCKET

__all__ = ["Job"]

if os.environ.get(SOCKET):
    no_room.watch()
