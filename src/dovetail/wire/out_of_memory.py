"""The error texts of programs that found no memory on their GPU, by library.

PyTorch has a class for it (`torch.OutOfMemoryError`) that only its own allocator raises. When a
CUDA context, cuBLAS, cuDNN or NCCL finds no room that is a `RuntimeError` (or a subclass) whose
text alone shows the cause, and other libraries have texts of their own.
"""

from __future__ import annotations

import re

_TEXTS = re.compile(
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
    """Returns whether a text reports that a GPU had no memory left."""
    return _TEXTS.search(text) is not None
