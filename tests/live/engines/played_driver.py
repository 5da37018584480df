"""NVML as a driver that frees the memory of processes when the test says so."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """What every call may raise."""


@dataclass
class PlayedDriver:
    """`pids` and `used_bytes` are those of each GPU, by UUID; `silent` calls raise an error."""

    pids: dict[str, list[int]] = field(default_factory=dict)
    used_bytes: dict[str, float] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    opened: int = 0

    NVMLError = NVMLError

    def nvmlInit(self) -> None:  # noqa: N802
        self._answer("init")
        self.opened += 1

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> str:  # noqa: N802
        return uuid.decode()

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: str) -> list[Any]:  # noqa: N802
        self._answer("processes")
        return [SimpleNamespace(pid=pid) for pid in self.pids.get(gpu, [])]

    def nvmlDeviceGetMemoryInfo(self, gpu: str) -> Any:  # noqa: N802
        self._answer("memory")
        return SimpleNamespace(total=80 << 30, used=self.used_bytes.get(gpu, 0))

    def _answer(self, call: str) -> None:
        if call in self.silent:
            raise NVMLError(f"{call}: Not Supported")
