"""What an agent reports of the health of its node: its GPUs, and what the site's scripts found."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from dovetail.live.engines.device_use import DeviceUsage, Workers
from dovetail.live.engines.devices import Devices
from dovetail.live.engines.gpu_health import GpuMonitor
from dovetail.live.engines.site_scripts import HealthScript, JobScripts, read_site
from dovetail.live.join.shared_folder import FolderMonitor, SharedFolder
from dovetail.wire.agent import CHECK, DRAIN, AgentReport, HealthReport, NodeFault

REPORT_S = 10.0
"""How often the same faults are reported again, in seconds of the machine: a report may be lost."""


class HealthMonitor:
    """Polls what looks after a node, and reports all its faults when they change, and now and then.

    A node without GPUs and scripts reports nothing.
    """

    def __init__(
        self,
        node: int,
        site: Path,
        folder: Path,
        devices: Devices,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node, self._clock = node, clock
        self._watch = GpuMonitor.open(devices.names) if devices.are_gpus else None
        self._check = HealthScript(site, folder)
        self._use = DeviceUsage(self._used if devices.are_gpus else None, clock)
        self._site = site
        self.scripts = JobScripts(site, folder / "jobs", devices.names)
        self._folder: FolderMonitor | None = None
        self._last: tuple[NodeFault, ...] = ()
        self._again_s = clock() + REPORT_S

    def watch_folder(self, shared: SharedFolder | None) -> None:
        """Looks after the folder that the nodes share, none if they share none."""
        if self._folder is not None and self._folder.folder == shared:
            return
        if self._folder is not None:
            self._folder.close()
        self._folder = FolderMonitor(shared) if shared is not None else None

    def tick(self) -> list[AgentReport]:
        """Does what is due; returns the report if one is."""
        self._check.tick()
        self.scripts.tick()
        looked = self._watch is None or self._watch.faults is not None
        watches = self._watch is not None or self._check.ran or self._folder is not None
        if not looked or self._check.is_first or not (watches or self._last or self.scripts.faults):
            return []
        faults = self._faults()
        if faults == self._last and self._clock() < self._again_s:
            return []
        self._last, self._again_s = faults, self._clock() + REPORT_S
        return [AgentReport(self._node, health=HealthReport(faults))]

    def idle(self, workers: Callable[[], Workers]) -> list[AgentReport]:
        """Returns the report of idle workers if one is due."""
        report = self._use.tick(workers, lambda: read_site(self._site).idle_s_min)
        return [AgentReport(self._node, idle=report)] if report is not None else []

    def _used(self) -> dict[int, float]:
        return self._watch.used if self._watch is not None else {}

    def _faults(self) -> tuple[NodeFault, ...]:
        found = [*(self._watch.faults or () if self._watch is not None else ())]
        if self._check.fault is not None:
            found.append(self._check.fault)
        if self._folder is not None and self._folder.wrong:
            found.append(NodeFault(-1, CHECK, DRAIN, self._folder.wrong))
        return (*found, *self.scripts.faults)

    def close(self) -> None:
        """Ends the thread that looks after the GPUs."""
        if self._watch is not None:
            self._watch.close()
        if self._folder is not None:
            self._folder.close()
