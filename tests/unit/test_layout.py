"""The rooms of the project: imports lead down only, and nothing is too large to be read at one sitting."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from streaming import errors

ROOT = Path(__file__).parents[2]
PACKAGES = ("matcher", "streaming")
FLOORS = [
    {"errors", "matcher", "printable", "tuning"},
    {"config"},
    {"kafka", "records"},
    {"storage"},
    {"state"},
    {"coordinator", "expansion"},
    {"worker"},
    {"oracle", "client", "local", "inspect", "monitor"},
    {"console"},
    {"spark", "adapters"},
    {"examples", "operations"},
    {"rocketmq"},
    {"cli", "streaming"},
]
"""Rooms from the ground up: a file imports only from its own room, and from rooms of lower floors."""

JVM_PACKAGES = {"pyspark", "py4j"}
MAX_FILE_LINES = 400
MAX_CLASS_LINES = 250

File = str
"""Path of a module below the project's folder."""


@cache
def trees() -> dict[File, ast.Module]:
    files = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    return {str(file.relative_to(ROOT)): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def room(file: File) -> str:
    """The folder or module of `streaming/` to which a file belongs; `matcher` is one room, and so is `__init__`."""
    package, *rest = Path(file).with_suffix("").parts
    return package if package == "matcher" or rest == ["__init__"] else rest[0]


def imports(tree: ast.AST) -> Iterator[tuple[ast.AST, list[str]]]:
    """The statements that import, under `if TYPE_CHECKING` as well, each with the modules that it may name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield node, [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            module = node.module or ""
            yield node, [module, *(f"{module}.{alias.name}" for alias in node.names)]


def file_of(module: str) -> File | None:
    path = module.replace(".", "/")
    return next((file for file in (f"{path}.py", f"{path}/__init__.py") if file in trees()), None)


@cache
def arrows() -> dict[File, set[File]]:
    """Which files each file imports from; a name that a package re-exports counts as an import of its `__init__`."""
    found: dict[File, set[File]] = {}
    for file, tree in trees().items():
        found[file] = set()
        for _, modules in imports(tree):
            parent = file_of(modules[0])
            children = {child for name in modules[1:] if (child := file_of(name))}
            names_only_modules = children and len(children) == len(modules) - 1
            found[file] |= children if parent is None or names_only_modules else {parent, *children}
        found[file].discard(file)
    return found


def test_every_file_is_in_a_room_that_has_a_floor() -> None:
    known = set().union(*FLOORS)
    assert {file for file in trees() if room(file) not in known} == set()
    assert sum(map(len, FLOORS)) == len(set().union(*FLOORS))


def test_imports_lead_down_only() -> None:
    """From one room to another on a lower floor."""
    floor = {name: number for number, rooms in enumerate(FLOORS) for name in rooms}
    wrong = [
        f"{file} imports {other}"
        for file, others in arrows().items()
        for other in sorted(others)
        if room(file) != room(other) and floor[room(other)] >= floor[room(file)]
    ]
    assert wrong == []


def test_files_of_a_room_import_each_other_in_one_direction_only() -> None:
    """There is no circle of files."""
    try:
        TopologicalSorter(arrows()).prepare()
    except CycleError as error:
        pytest.fail(f"files import each other in a circle: {' > '.join(error.args[1])}")


def test_only_the_spark_room_imports_spark() -> None:
    """In `local` a function may, so that a broker starts without it."""
    for file, tree in trees().items():
        lazy = {node for function in ast.walk(tree) if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
                for node in ast.walk(function)}  # fmt: skip
        for node, modules in imports(tree):
            if JVM_PACKAGES & {module.split(".")[0] for module in modules}:
                assert room(file) == "spark" or (room(file) == "local" and node in lazy), file


def test_the_oracle_is_independent() -> None:
    """Only the demos, and tests, compare the job with it."""
    users = {file for file, others in arrows().items() if any(room(other) == "oracle" for other in others)}
    assert {file for file in users if room(file) not in {"oracle", "examples"}} <= {"streaming/rocketmq/demo.py"}


def classes() -> Iterator[tuple[File, ast.ClassDef]]:
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield file, node


def test_class_names_are_unique() -> None:
    """In `streaming/`."""
    places: dict[str, list[File]] = defaultdict(list)
    for file, node in classes():
        if file.startswith("streaming/"):
            places[node.name].append(file)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_no_file_is_too_long() -> None:
    lines = {file: len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in trees()}
    assert {file: count for file, count in lines.items() if count > MAX_FILE_LINES} == {}


def test_no_class_is_too_long() -> None:
    lines = {f"{file}: {node.name}": (node.end_lineno or 0) - node.lineno + 1 for file, node in classes()}
    assert {name: count for name, count in lines.items() if count > MAX_CLASS_LINES} == {}


def test_an_exception_is_named_after_what_happened() -> None:
    """Only bases end in `Error`."""
    for kind in (kind for kind in vars(errors).values() if isinstance(kind, type)):
        is_base = bool(kind.__subclasses__()) and kind not in {errors.BrokerFailed, errors.TopicUnreadable}
        assert kind.__name__.endswith("Error") == is_base


def test_no_other_module_defines_an_exception_for_users() -> None:
    for file, node in classes():
        if file.startswith("streaming/") and file != "streaming/errors.py":
            assert {getattr(base, "id", "") for base in node.bases}.isdisjoint(vars(errors)), file
