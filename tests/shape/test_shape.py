"""The plan of the house, held by reading its source: who imports whom, how long things are."""

import ast
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "dovetail"
FILES = sorted(p for p in SOURCE.rglob("*.py"))

MAY_IMPORT: dict[str, set[str]] = {
    "core": {"core"},
    "algorithms": {"algorithms"},
    "physics": {"physics", "core", "algorithms"},
    "forecast": {"forecast", "core", "algorithms"},
    "wire": {"wire"},
    "files": {"files"},
    "traces": {"traces", "core", "files"},
    "jobspec": {"jobspec", "core", "wire"},
    "record": {"record", "core"},
    "report": {"report", "record", "core"},
    "profiling": {"profiling", "physics", "core", "wire", "live", "train"},
    "mechanisms": {"mechanisms", "core", "algorithms"},
    "policies": {"policies", "core", "algorithms", "mechanisms"},
    "control": {"control", "core"},
    "sim": {"sim", "core", "physics", "control"},
    "live": {"live", "core", "control", "wire", "files", "record", "algorithms"},
    "live/serving": {
        "live",
        "core",
        "control",
        "wire",
        "files",
        "record",
        "physics",
        "forecast",
        "policies",
        "traces",
        "study",
        "sim",
        "profiling",
    },
    "train": {"train", "wire", "files"},
}
"""What stands above (study, replay, web, cli) may import all of these."""
ABOVE = {
    "study": {"live", "replaying", "shadow", "web", "cli"},
    "replaying": {"shadow", "web", "cli"},
    "shadow": {"replaying", "web", "cli"},
    "web": {"cli"},
    "cli": set[str](),
}
"""What the upper floors must not import."""
LIBRARIES_OF_CORE = {"numpy", "sortedcontainers"}
PURE = ("core", "physics", "algorithms", "mechanisms", "policies")
"""Packages without input, output, clock or randomness (STYLE 8)."""
IMPURE = {
    "asyncio", "datetime", "http", "io", "logging", "multiprocessing", "os", "pathlib", "pickle",
    "random", "secrets", "shutil", "signal", "socket", "subprocess", "sys", "tempfile",
    "threading", "time", "urllib", "uuid",
}  # fmt: skip
READS_FILES = {
    "core/policy.py": {"pathlib", "sys"},  # a policy from the user's own file
    "core/switching.py": {"pathlib"},  # --switching FILE
    "physics/zoo/profile_file.py": {"pathlib"},
    "physics/zoo/models.py": {"pathlib"},
    "physics/beliefs/blur.py": {"random"},  # errors drawn from a seed, never by chance
}
"""The exceptions: files whose task is to load something, each with its reason."""
NOT_IN_THE_WHEEL = {"papers", "tools", "benchmarks", "examples", "tests"}
"""Folders of the checkout: nobody who installed Dovetail has them."""
LINES_MAX = 500
FUNCTION_LINES_MAX = 60
POLICY_LINES_MAX = 250
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "tools"}


def name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def package(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else ""


def room(path: Path) -> str:
    """Returns the key of `MAY_IMPORT` with the rules for a file: its folder's, or its package's."""
    folder = path.relative_to(SOURCE).parent.as_posix()
    return folder if folder in MAY_IMPORT else package(path)


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imported(path: Path) -> tuple[tuple[str, int], ...]:
    """Returns the full names a file imports, wherever in it, except for type checking alone."""
    found: list[tuple[str, int]] = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found += ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}:{node.lineno}: imports are absolute"
            found += ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
    return tuple(found)


def ours(module: str) -> str:
    """Returns the package of ours that a module belongs to, or nothing."""
    parts = module.split(".")
    return parts[1] if parts[0] == "dovetail" and len(parts) > 1 else ""


def is_overload(function: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "overload" for d in function.decorator_list)


def test_there_is_something_to_look_at() -> None:
    assert len(FILES) > 60
    assert {package(p) for p in FILES} >= {"core", "policies", "sim", "control", "study"}


def test_imports_point_one_way() -> None:
    packages = {package(p) for p in FILES} - {""}
    for path in FILES:
        here = room(path)
        for module, line in imported(path):
            there = ours(module)
            if there not in packages or here == "":
                continue
            if here == "algorithms" and module.startswith("dovetail.core.units."):
                continue  # constants are no knowledge of jobs
            if here in MAY_IMPORT:
                assert there in MAY_IMPORT[here], f"{name(path)}:{line} imports {module}"
            else:
                assert there not in ABOVE[here], f"{name(path)}:{line} imports {module}"


def test_the_wheel_needs_nothing_of_the_checkout() -> None:
    for path in FILES:
        for module, line in imported(path):
            top = module.split(".")[0]
            assert top not in NOT_IN_THE_WHEEL, f"{name(path)}:{line} imports {module}"


def test_the_store_of_a_live_cluster_knows_nothing_of_its_controller() -> None:
    kept = [p for p in FILES if name(p).startswith("live/store/")]
    assert len(kept) > 10
    above = ("dovetail.live.controller", "dovetail.live.server", "dovetail.live.engines")
    for path in kept:
        for module, line in imported(path):
            assert not module.startswith(above), f"{name(path)}:{line} imports {module}"


@pytest.mark.parametrize("path", [p for p in FILES if package(p) == "core"], ids=lambda p: p.name)
def test_the_core_needs_numpy_and_little_else(path: Path) -> None:
    import sys

    for module, line in imported(path):
        top = module.split(".")[0]
        known = top in sys.stdlib_module_names or top in LIBRARIES_OF_CORE or top == "dovetail"
        assert known, f"{name(path)}:{line} imports {module}"


@pytest.mark.parametrize("path", [p for p in FILES if package(p) in PURE], ids=lambda p: name(p))
def test_pure_packages_have_no_input_output_clock_or_randomness(path: Path) -> None:
    allowed = READS_FILES.get(name(path), set())
    for module, line in imported(path):
        top = module.split(".")[0]
        assert top not in IMPURE - allowed, f"{name(path)}:{line} imports {module}"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("open", "print", "input"), f"{name(path)}:{node.lineno}"


def test_torch_is_imported_by_the_training_side_alone() -> None:
    for path in FILES:
        for module, line in imported(path):
            assert package(path) == "train" or module.split(".")[0] != "torch", (
                f"{name(path)}:{line}"
            )


def test_files_and_functions_are_short_and_named_by_a_noun() -> None:
    for path in FILES:
        assert path.stem not in VAGUE, f"{name(path)} says nothing"
        most = POLICY_LINES_MAX if package(path) == "policies" else LINES_MAX
        assert len(path.read_text(encoding="utf-8").splitlines()) <= most, f"{name(path)} is long"
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                assert length <= FUNCTION_LINES_MAX, f"{name(path)}:{node.lineno} {node.name}"


def test_everything_public_says_what_it_is() -> None:
    for path in FILES:
        module = tree(path)
        assert ast.get_docstring(module), f"{name(path)} opens with what it is for"
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and is_overload(node):
                continue
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{name(path)}:{node.lineno} {node.name}"
                if isinstance(node, ast.ClassDef):
                    methods = [n for n in node.body if isinstance(n, ast.FunctionDef)]
                    for method in methods:
                        if not method.name.startswith("_") and not is_overload(method):
                            assert ast.get_docstring(method), f"{name(path)}:{method.lineno}"


def test_no_file_iterates_over_a_set_it_just_made() -> None:
    """Determinism: the order of a set is no order (DESIGN section 5)."""
    for path in FILES:
        for node in ast.walk(tree(path)):
            loops = [node.iter] if isinstance(node, ast.For | ast.comprehension) else []
            for loop in loops:
                made = isinstance(loop, ast.Set | ast.SetComp) or (
                    isinstance(loop, ast.Call)
                    and isinstance(loop.func, ast.Name)
                    and loop.func.id in ("set", "frozenset")
                )
                assert not made, f"{name(path)}:{loop.lineno}"


def test_there_is_no_unfinished_business() -> None:
    for path in FILES:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            words = {"TO" + "DO", "FIX" + "ME", "XX" + "X"}
            assert not any(word in line for word in words), f"{name(path)}:{number}"


@pytest.mark.parametrize(
    "path",
    [p for p in FILES if package(p) == "policies" and p.stem != "__init__"],
    ids=lambda p: p.stem,
)
def test_a_policy_file_registers_one_policy_named_after_the_file(path: Path) -> None:
    names = [
        ast.literal_eval(call.args[0])
        for node in tree(path).body
        if isinstance(node, ast.ClassDef)
        for call in node.decorator_list
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "register"
    ]
    assert [n.replace("-", "") for n in names] == [path.stem.replace("_", "")]


def test_the_engine_names_no_policy_and_no_metric() -> None:
    """STYLE 17: the host never names a plug-in."""
    policies = {p.stem for p in FILES if package(p) == "policies"} - {"__init__", "noop"}
    for path in FILES:
        if package(path) in ("core", "control", "sim"):
            text = path.read_text(encoding="utf-8")
            quoted = [p for p in policies if f'"{p}"' in text or f"'{p}'" in text]
            assert quoted == [], name(path)
