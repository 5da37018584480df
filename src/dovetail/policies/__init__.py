"""One file for each policy, imported when its name is first asked for.

All of them take longer to import than many a run takes. A module that cannot be imported raises:
a broken policy must not disappear silently.
"""

from importlib import import_module
from pkgutil import iter_modules

from dovetail.core.policy import add_package

_MODULES = sorted(module.name for module in iter_modules(__path__))


def _load(name: str | None) -> None:
    own = (name or "").replace("-", "_")
    for module in [own] if own in _MODULES else _MODULES:
        import_module(f"{__name__}.{module}")


add_package(__name__, _load)
