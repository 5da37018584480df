"""What the driver says of GPUs while they run, played on the level of its library's calls."""

# ruff: noqa: N801, N802, N815 (the names are those of the library)

from dataclasses import dataclass, field
from typing import Any

import pytest

from dovetail.live.engines.gpu_health import FATAL_XIDS, OF_PROGRAMS, GpuHealth, GpuMonitor
from dovetail.wire.agent import DRAIN, FATAL, WARNING, NodeFault
from patience import until

XID, OTHER_EVENT = 8, 2


class NVMLError(Exception):
    """What every call may raise."""


class NVMLError_GpuIsLost(NVMLError):
    """The GPU has fallen off the bus."""


class NVMLError_Timeout(NVMLError):
    """No event came in time."""


class NVMLError_NotSupported(NVMLError):
    """GPUs of this kind do not know this."""


@dataclass
class Board:
    """One GPU: what the driver would answer. None: it does not know this."""

    events: list[tuple[int, int]] = field(default_factory=list)
    ecc: int | None = 0
    rows: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    throttled: int | None = 0
    use: int | None = 0
    lost: bool = False
    trouble: str = ""


@dataclass
class PlayedNvml:
    """The library. Handles and sets of events are the boards themselves."""

    boards: dict[str, Board]

    NVMLError = NVMLError
    NVMLError_GpuIsLost = NVMLError_GpuIsLost
    NVMLError_NotSupported = NVMLError_NotSupported
    NVMLError_Timeout = NVMLError_Timeout
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    nvmlEventTypeXidCriticalError = XID
    nvmlClocksThrottleReasonHwSlowdown = 8
    nvmlClocksThrottleReasonSwThermalSlowdown = 32
    nvmlClocksThrottleReasonHwThermalSlowdown = 64
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 128

    def nvmlInit(self) -> None:
        self.sets: list[Board] = []

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> Board:
        return self.boards[uuid.decode()]

    def nvmlDeviceGetMemoryInfo(self, board: Board) -> Any:
        if board.lost:
            raise NVMLError_GpuIsLost("GPU is lost")
        if board.trouble:
            raise NVMLError(board.trouble)
        return None

    def nvmlEventSetCreate(self) -> list[Board]:
        return []

    def nvmlDeviceRegisterEvents(self, board: Board, kinds: int, events: list[Board]) -> None:
        assert kinds == XID
        events.append(board)

    def nvmlEventSetWait_v2(self, events: list[Board], wait_ms: int) -> Any:
        assert wait_ms == 0
        if not events[0].events:
            raise NVMLError_Timeout("timeout")
        kind, data = events[0].events.pop(0)
        return type("Event", (), {"eventType": kind, "eventData": data})

    def nvmlDeviceGetTotalEccErrors(self, board: Board, kind: int, since: int) -> int:
        assert (kind, since) == (1, 0)
        if board.ecc is None:
            raise NVMLError_NotSupported("Not Supported")
        return board.ecc

    def nvmlDeviceGetUtilizationRates(self, board: Board) -> Any:
        if board.use is None:
            raise NVMLError_NotSupported("Not Supported")
        return type("Rates", (), {"gpu": board.use})

    def nvmlDeviceGetRemappedRows(self, board: Board) -> Any:
        if board.rows is None:
            raise NVMLError_NotSupported("Not Supported")
        return board.rows

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, board: Board) -> int:
        if board.throttled is None:
            raise NVMLError_NotSupported("Not Supported")
        return board.throttled


def looked(*boards: Board) -> list[tuple[int, str, str]]:
    return told(health(*boards))


def health(*boards: Board) -> GpuHealth:
    names = [f"GPU-{i}" for i in range(len(boards))]
    return GpuHealth(PlayedNvml(dict(zip(names, boards, strict=True))), names)


def told(health: GpuHealth) -> list[tuple[int, str, str]]:
    return [(f.gpu, f.severity, f.what) for f in health.look()]


def test_healthy_gpus_and_old_ones_that_know_nothing_have_no_faults() -> None:
    assert looked(Board(), Board(ecc=None, rows=None, throttled=None)) == []


@pytest.mark.parametrize("xid", sorted(OF_PROGRAMS))
def test_a_fault_of_a_program_is_none_of_its_gpu(xid: int) -> None:
    assert looked(Board([(XID, xid)])) == []


@pytest.mark.parametrize("xid", [*sorted(FATAL_XIDS), 63, 94, 997])
def test_every_other_xid_drains_its_gpu_and_some_end_the_jobs_there(xid: int) -> None:
    ((gpu, severity, what),) = looked(Board(), Board([(OTHER_EVENT, 1), (XID, 31), (XID, xid)]))
    assert gpu == 1 and what.startswith(f"XID {xid}: ")
    assert severity == (FATAL if xid in FATAL_XIDS else DRAIN)


def test_an_xid_is_told_once_and_stays_a_fault() -> None:
    board = Board([(XID, 79)])
    watched = health(board)
    first = told(watched)
    assert told(watched) == first and board.events == []
    board.events.append((XID, 79))
    assert told(watched) == first, "the same one again is no other fault"


def test_a_lost_gpu_is_fatal_and_one_that_does_not_answer_a_warning() -> None:
    assert looked(Board(lost=True), Board(trouble="in use by another client")) == [
        (0, FATAL, "the driver has lost the GPU"),
        (1, WARNING, "the driver does not answer: in use by another client"),
    ]


@pytest.mark.parametrize(
    ("board", "what"),
    [
        (Board(ecc=2), "2 uncorrectable memory errors since the last reset"),
        (Board(rows=(1, 0, 1, 0)), "remapped memory rows await a reset"),
        (Board(rows=(1, 0, 1, 1)), "a memory row could not be remapped"),
    ],
)
def test_worn_memory_drains_its_gpu_until_it_is_mended(board: Board, what: str) -> None:
    watched = health(board)
    assert told(watched) == [(0, DRAIN, what)]
    board.ecc, board.rows = 0, (1, 0, 0, 0)
    assert told(watched) == [], "after a reset"


@pytest.mark.parametrize(
    ("reasons", "what"),
    [(64 | 8, "too hot"), (32, "too hot"), (128 | 8, "power"), (8, "hardware"), (4 | 1, "")],
)
def test_a_slow_gpu_is_a_warning(reasons: int, what: str) -> None:
    found = looked(Board(throttled=reasons))
    assert [severity for _, severity, _ in found] == [WARNING] * bool(what)
    assert not found or what in found[0][2]


def test_the_use_of_gpus_is_told_where_the_driver_knows_it() -> None:
    watched = health(Board(use=97), Board(use=None), Board(use=0), Board(lost=True))
    watched.look()
    assert watched.used == {0: 97.0, 2: 0.0}


def test_the_thread_keeps_looking_and_a_machine_without_a_binding_has_none() -> None:
    def absent() -> Any:
        raise ImportError

    assert GpuMonitor.open(["GPU-0"], absent) is None
    board = Board()
    watch = GpuMonitor(health(board), every_s=0.01)
    try:
        until(lambda: watch.faults == ())
        board.lost = True
        lost = NodeFault(0, "device", FATAL, "the driver has lost the GPU")
        until(lambda: watch.faults == (lost,))
    finally:
        watch.close()
