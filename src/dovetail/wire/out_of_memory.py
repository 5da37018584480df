"""What programs say that found no room on their GPU, by whatever library noticed.

PyTorch has a class for it (`torch.OutOfMemoryError`) that only its own allocator raises. When a
CUDA context, cuBLAS, cuDNN or NCCL finds no room that is a `RuntimeError` (or a subclass) whose
text alone tells, and a program that is not PyTorch has its own words.
"""

from __future__ import annotations

import re

_SAID = re.compile(
    r"\b(CUDA|HIP) out of memory"
    r"|\b(CUDA|HIP) error: out of memory"
    r"|\b(torch(\.cuda)?\.|c10::)OutOfMemoryError\b"
    r"|\bcudaErrorMemoryAllocation\b"
    r"|\bCUDA_ERROR_OUT_OF_MEMORY\b"
    r"|\b(CUBLAS|CUDNN|CUSOLVER|CUSPARSE)_STATUS_ALLOC_FAILED\b"
    r"|\bCUFFT_ALLOC_FAILED\b"
    r"|\bCuda failure (\d+ )?'out of memory'"
    r"|\bRESOURCE_EXHAUSTED: .*out of memory",
    re.IGNORECASE,
)


def tells_of_no_room(text: str) -> bool:
    """Returns whether a text says that there was no room on a GPU."""
    return _SAID.search(text) is not None
