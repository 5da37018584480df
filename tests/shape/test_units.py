"""A constant that many modules need has one definition."""

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "dovetail"
ONCE = {"NEVER", "NEVER_S", "LONG_AGO_S", "HOUR_S", "DAY_S", "WEEK_S", "RELATIVE_TOLERANCE"}


def defined(path: Path) -> set[str]:
    """Returns the names that the module assigns at its top level."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            names.update(n.id for n in ast.walk(target) if isinstance(n, ast.Name))
    return names


def test_units_and_tolerances_are_defined_once() -> None:
    again = {
        path.relative_to(SOURCE).as_posix(): sorted(names)
        for path in sorted(SOURCE.rglob("*.py"))
        if path != SOURCE / "core" / "units.py" and (names := defined(path) & ONCE)
    }
    assert again == {}
