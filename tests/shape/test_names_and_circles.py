"""Names mean one thing, imports make no circle: read from the source."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "dovetail"
FILES = sorted(SOURCE.rglob("*.py"))
OUTSIDE = sorted(p for folder in ("papers", "tools") for p in (ROOT / folder).rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in [*FILES, *OUTSIDE]}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def public_classes(paths: list[Path]) -> Iterator[tuple[str, Path]]:
    for path in paths:
        for node in TREES[path].body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, path


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_no_two_public_classes_have_one_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for cls, path in public_classes([*FILES, *OUTSIDE]):
        homes[cls].append(name(path))
    assert {cls: where for cls, where in homes.items() if len(where) > 1} == {}


def annotations(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    arguments = function.args
    all_arguments = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    for argument in [*all_arguments, arguments.vararg, arguments.kwarg]:
        if argument is not None and argument.annotation is not None:
            yield argument.annotation
    if function.returns is not None:
        yield function.returns


def test_no_signature_says_any() -> None:
    loose = Counter(
        name(path)
        for path in FILES
        for function in functions(path)
        for annotation in annotations(function)
        for node in ast.walk(annotation)
        if isinstance(node, ast.Name) and node.id == "Any"
    )
    assert loose == {}


def module(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_at_the_top(path: Path, modules: set[str]) -> set[str]:
    """Returns the modules that a file imports when it is loaded or for type checking."""
    found: set[str] = set()
    inside = {
        id(n)
        for f in ast.walk(TREES[path])
        if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)
        for n in ast.walk(f)
    }
    for node in ast.walk(TREES[path]):
        if id(node) in inside:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                full if (full := f"{node.module}.{a.name}") in modules else node.module
                for a in node.names
            }
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
    return found & modules - {module(path)}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Returns what lies on circles of a graph, and between them."""
    graph = dict(graph)
    while leaves := {m for m, to in graph.items() if not to & graph.keys()}:
        for leaf in leaves:
            del graph[leaf]
    # What is left imports something that is left: walk back from the other end as well.
    while roots := graph.keys() - {t for to in graph.values() for t in to}:
        for root in roots:
            del graph[root]
    return sorted(graph)


def test_no_imports_go_in_a_circle_not_even_for_types() -> None:
    modules = {module(p) for p in FILES}
    assert circle({module(p): imports_at_the_top(p, modules) for p in FILES}) == []


def test_no_folders_of_the_live_cluster_import_each_other() -> None:
    modules = {module(p) for p in FILES}
    graph: dict[str, set[str]] = defaultdict(set)
    for path in (SOURCE / "live").glob("*/*.py"):
        there = {m.split(".")[2] for m in imports_at_the_top(path, modules) if ".live." in m}
        graph[path.parent.name] |= there - {path.parent.name}
    assert len(graph) > 10
    assert circle(graph) == []
