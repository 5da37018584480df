"""The process of a worker: environment, background threads, device memory and streams."""
