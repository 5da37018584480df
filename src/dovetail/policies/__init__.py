"""One file for each policy. Importing the package registers every module in it.

A module that cannot be imported raises: a broken policy must not disappear silently.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in sorted(m.name for m in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
