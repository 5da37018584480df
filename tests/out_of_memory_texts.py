"""What libraries write when a GPU has no room, and what looks like it but is something else."""

OOM = "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.2 GiB is free"
NO_ROOM = {
    "allocator": f"torch.OutOfMemoryError: CUDA out of memory. {OOM}",
    "allocator of old": f"torch.cuda.OutOfMemoryError: CUDA out of memory. {OOM}",
    "C++": "terminate called after throwing an instance of 'c10::OutOfMemoryError'",
    "context": (
        "torch.AcceleratorError: CUDA error: out of memory\n"
        "Search for `cudaErrorMemoryAllocation' in the CUDA runtime API documentation\n"
        "CUDA kernel errors might be asynchronously reported at some other API call\n"
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1"
    ),
    "cuBLAS": (
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
    ),
    "cuDNN": "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "NCCL": (
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled cuda error"
        " (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.3\n"
        "ncclUnhandledCudaError: Call to CUDA function failed.\n"
        "Last error:\n"
        "Cuda failure 2 'out of memory'"
    ),
    "driver": "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call failed: CUDA_ERROR_OUT_OF_MEMORY",
    "XLA": "jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate",
}
OTHERS = {
    "ECC": "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
    "NCCL": "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nunknown error",
    "launch": "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
    "host": "RuntimeError: DefaultCPUAllocator: can't allocate memory",
    "user": "ValueError: the batch is out of memory bounds",
}
