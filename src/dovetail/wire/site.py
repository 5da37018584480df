"""What a site has set for all of its nodes: the controller tells each agent when it joins."""

from __future__ import annotations

from dataclasses import dataclass

OUTPUT_BYTES_MAX = 1 << 30
AUTO = "auto"
CONTAINER_RUNTIMES = (AUTO, "podman", "apptainer")
IDLE_S = 60.0
"""Shorter times without use are no news."""


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """The paths of scripts on each node (empty: none), how often the check of its health runs, and
    how long each script may.

    Also the most bytes of output that a job may have in its folder (0: no bound), how long its GPUs
    may be idle (0: for ever), and what runs containers.
    """

    health_check: str = ""
    prolog: str = ""
    epilog: str = ""
    health_every_s: float = 60.0
    script_limit_s: float = 60.0
    output_bytes_max: int = OUTPUT_BYTES_MAX
    reclaim_idle_s: float = 0.0
    container_runtime: str = AUTO

    @property
    def idle_s_min(self) -> float:
        """How long a worker is idle before it is reported: soon enough for the warning."""
        return min(IDLE_S, self.reclaim_idle_s / 4) if self.reclaim_idle_s else IDLE_S

    @property
    def scripts(self) -> dict[str, str]:
        """The scripts that there are, by what each is for."""
        paths = {
            "health check": self.health_check,
            "prolog": self.prolog,
            "epilog": self.epilog,
        }
        return {name: path for name, path in paths.items() if path}


AS_USUAL = SiteSettings()
"""What holds where a site has set nothing."""
