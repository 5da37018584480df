"""Which GPUs a machine has for us: the driver's library played, as its binding shows it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dovetail.live.engines.devices import slug
from dovetail.live.engines.nvml import NO_BINDING, GpuDevice, gpus, visible

GIB = 1 << 30


class NVMLError(Exception):
    """What every call may raise."""


class NVMLError_NotSupported(NVMLError):  # noqa: N801 (the binding's own name)
    """The GPU is of a kind that does not know this."""


@dataclass(frozen=True)
class Board:
    """One GPU as the driver knows it. `instances` None: of a kind that cannot be partitioned."""

    uuid: str
    name: str | bytes = "NVIDIA H100 80GB HBM3"
    gib: float = 80
    used_gib: float = 0.4
    mode: int = 0
    instances: "tuple[Board | None, ...] | None" = ()
    partitioned: bool = False
    trouble: str = ""


@dataclass
class PlayedNvml:
    """The library. Handles are the boards themselves."""

    boards: tuple[Board, ...]
    trouble: str = ""
    closed: int = 0
    asked: list[str] = field(default_factory=list)

    NVMLError = NVMLError
    NVMLError_NotSupported = NVMLError_NotSupported
    NVML_DEVICE_MIG_ENABLE = 1
    NVML_COMPUTEMODE_DEFAULT = 0
    NVML_COMPUTEMODE_PROHIBITED = 2
    NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3

    def nvmlInit(self) -> None:  # noqa: N802
        if self.trouble:
            raise NVMLError(self.trouble)

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.closed += 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Board:  # noqa: N802
        if self.boards[index].trouble:
            raise NVMLError(self.boards[index].trouble)
        return self.boards[index]

    def nvmlDeviceGetUUID(self, board: Board) -> str | bytes:  # noqa: N802
        if board.trouble:
            raise NVMLError(board.trouble)
        return board.uuid.encode() if isinstance(board.name, bytes) else board.uuid

    def nvmlDeviceGetName(self, board: Board) -> str | bytes:  # noqa: N802
        return board.name

    def nvmlDeviceGetMemoryInfo(self, board: Board) -> Any:  # noqa: N802
        if not board.gib:
            raise NVMLError_NotSupported("Not Supported")
        said = {"total": int(board.gib * GIB), "used": int(board.used_gib * GIB)}
        return type("Memory", (), said)

    def nvmlDeviceGetComputeMode(self, board: Board) -> int:  # noqa: N802
        return board.mode

    def nvmlDeviceGetMigMode(self, board: Board) -> list[int]:  # noqa: N802
        if board.instances is None:
            raise NVMLError_NotSupported("Not Supported")
        return [int(board.partitioned), int(board.partitioned)]

    def nvmlDeviceGetMaxMigDeviceCount(self, board: Board) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, board: Board, index: int) -> Board:  # noqa: N802
        found = (*(board.instances or ()), *(None,) * 7)[index]
        if found is None:
            raise NVMLError("Not Found")
        return found


def machine(*boards: Board, trouble: str = "") -> PlayedNvml:
    return PlayedNvml(boards, trouble)


def eight() -> PlayedNvml:
    return machine(*(Board(f"GPU-{i}aaa") for i in range(8)))


def names(nvml: PlayedNvml, **environ: str) -> tuple[str, ...]:
    found = gpus(lambda: nvml, environ).devices
    assert nvml.closed == 1, "the library is closed again"
    return found.names if found else ()


def test_gpus_are_named_by_uuid_whether_the_binding_says_text_or_bytes() -> None:
    nvml = machine(Board("GPU-0", name=b"NVIDIA H100 80GB HBM3", instances=None), Board("GPU-1"))
    found = gpus(lambda: nvml, {})
    assert found.devices is not None and found.devices.are_gpus and found.notes == ()
    assert found.devices.names == ("GPU-0", "GPU-1")
    assert found.devices.gpu_type == "nvidia-h100-80gb-hbm3"
    assert found.devices.memory_bytes == 80 * GIB
    assert len(names(eight())) == 8 and names(machine(Board("GPU-x"))) == ("GPU-x",)


def test_without_a_binding_or_a_driver_there_are_none_and_a_driver_without_a_word_is_not(
    tmp_path: Path,
) -> None:
    def absent() -> Any:
        raise ModuleNotFoundError("pynvml")

    nowhere = tmp_path / "none"
    assert gpus(absent, {}, nowhere) == (None, ())
    assert gpus(absent, {}, tmp_path) == (None, (NO_BINDING,))
    mismatch = machine(trouble="Driver/library version mismatch")
    assert gpus(lambda: mismatch, {}, nowhere) == (None, ())
    (said,) = gpus(lambda: mismatch, {}, tmp_path).notes
    assert "Driver/library version mismatch" in said
    assert gpus(lambda: machine(), {}, tmp_path) == (None, ())


@pytest.mark.parametrize("trouble", ["Insufficient Permissions", "GPU is lost"])
def test_a_gpu_that_is_lost_or_anothers_leaves_the_others(trouble: str) -> None:
    nvml = machine(Board("GPU-0"), Board("GPU-1", trouble=trouble), Board("GPU-2"))
    found = gpus(lambda: nvml, {"CUDA_VISIBLE_DEVICES": "1"})
    assert found.devices is not None
    assert found.devices.names == ("GPU-2",), "CUDA does not count what it cannot see"
    assert found.notes == (f"GPU 1 is left out: {trouble}",)


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        ("2,0", "20"),
        ("GPU-3aaa", "3"),
        ("GPU-3,GPU-1a", "31"),
        ("1,9,2", "1"),
        ("0,-1,2", "0"),
        (" 1 , 1 ", "1"),
        ("", ""),
        ("-1", ""),
        ("NoDevFiles", ""),
    ],
)
def test_the_users_choice_is_read_as_cuda_reads_it(wanted: str, left: str) -> None:
    found = names(eight(), CUDA_VISIBLE_DEVICES=wanted)
    assert found == tuple(f"GPU-{i}aaa" for i in left)


def test_a_choice_that_leaves_nothing_is_told_unless_it_is_meant() -> None:
    (said,) = gpus(eight, {"CUDA_VISIBLE_DEVICES": "8"}).notes
    assert "CUDA_VISIBLE_DEVICES=8 leaves none of 8" in said
    assert gpus(eight, {"CUDA_VISIBLE_DEVICES": ""}).notes == ()


def test_a_partitioned_gpu_counts_as_its_instances_of_one_size() -> None:
    small = tuple(Board(f"MIG-{i}", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9.5) for i in range(3))
    large = Board("MIG-large", "NVIDIA A100-SXM4-80GB MIG 3g.40gb", 39.5)
    strange = Board("MIG-other", trouble="Insufficient Permissions")
    parts = (small[0], None, large, small[1], small[2], strange)
    nvml = machine(Board("GPU-0", partitioned=True, instances=parts))
    found = gpus(lambda: nvml, {})
    assert found.devices is not None
    assert found.devices.names == ("MIG-large",), "the kind with the most memory in all"
    assert found.devices.gpu_type == "nvidia-a100-sxm4-80gb-mig-3g-40gb"
    assert found.devices.memory_bytes == 39.5 * GIB
    assert [n.split()[0] for n in found.notes] == ["MIG-0", "MIG-1", "MIG-2"]
    chosen = names(machine(*nvml.boards), CUDA_VISIBLE_DEVICES="MIG-1,MIG-0")
    assert chosen == ("MIG-1", "MIG-0")


def test_instances_of_a_driver_that_does_not_name_them_are_told_apart_by_memory() -> None:
    parts = (Board("MIG-0", "NVIDIA A30", 5.9), Board("MIG-1", "NVIDIA A30", 11.8))
    found = gpus(lambda: machine(Board("GPU-0", partitioned=True, instances=parts)), {}).devices
    assert found is not None and found.gpu_type == "nvidia-a30-mig-12gb"


def test_a_partitioned_gpu_without_instances_is_left_out_and_named() -> None:
    nvml = machine(Board("GPU-0", partitioned=True), Board("GPU-1"))
    found = gpus(lambda: nvml, {})
    assert found.devices is not None and found.devices.names == ("GPU-1",)
    assert found.notes == ("GPU-0 is left out: it is partitioned (MIG) and has no instance for us",)


def test_a_display_card_does_not_make_the_others_small() -> None:
    nvml = machine(Board("GPU-0", "NVIDIA GeForce GT 1030", 2), Board("GPU-1"), Board("GPU-2"))
    found = gpus(lambda: nvml, {})
    assert found.devices is not None
    assert found.devices.names == ("GPU-1", "GPU-2") and found.devices.memory_bytes == 80 * GIB
    assert found.notes[0].startswith("GPU-0 is left out: a nvidia-geforce-gt-1030")


def test_a_gpu_in_use_or_for_one_program_is_used_and_told_and_a_forbidden_one_is_not() -> None:
    nvml = machine(Board("GPU-0", used_gib=61), Board("GPU-1", mode=3), Board("GPU-2", mode=2))
    found = gpus(lambda: nvml, {})
    assert found.devices is not None and found.devices.names == ("GPU-0", "GPU-1")
    assert found.notes[0] == "GPU-0: 61 of 80 GiB are in use already"
    assert "one program at a time" in found.notes[1] and "GPU-2 is left out" in found.notes[2]


def test_a_gpu_without_memory_of_its_own_has_that_of_the_machine() -> None:
    found = gpus(lambda: machine(Board("GPU-0", "NVIDIA GB10", gib=0)), {}).devices
    assert found is not None and found.memory_bytes > 0


def test_a_whole_gpu_is_meant_with_all_its_instances() -> None:
    seen = [GpuDevice(f"MIG-{i}", "GPU-7", 0, "kind", 1.0) for i in range(2)]
    assert visible(seen, "GPU-7") == visible(seen, None) == seen


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("Tesla V100-SXM2-16GB", "tesla-v100-sxm2-16gb"),
        ("Quadro RTX 6000/8000", "quadro-rtx-6000-8000"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "nvidia-a100-sxm4-80gb-mig-1g-10gb"),
    ],
)
def test_clusters_and_profiles_call_a_device_the_same(said: str, name: str) -> None:
    found = gpus(lambda: machine(Board("GPU-0", said)), {}).devices
    assert found is not None and found.gpu_type == slug(said) == name
