"""The tree of exceptions."""

import ast
import re
from pathlib import Path

from streaming import errors

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"^(?P<lead>[ │├└─]*)(?P<name>[A-Z]\w+)", re.MULTILINE)


def test_the_docstring_draws_the_tree_of_all_exceptions() -> None:
    """With the base of each one above it."""
    drawn: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = NAME.match(line) if line.startswith("    ") else None
        if found:
            path = [*path[: (len(found["lead"]) - 4) // 4], found["name"]]
            drawn[found["name"]] = path[-2] if len(path) > 1 else None
    defined = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    assert drawn.keys() == defined.keys()
    assert {name: base for name, base in drawn.items() if base} == {
        name: kind.__bases__[0].__name__ for name, kind in defined.items() if kind is not errors.ReexpandError
    }


def test_a_leaf_is_named_after_what_happened() -> None:
    """Only bases end in `Error`."""
    for kind in (kind for kind in vars(errors).values() if isinstance(kind, type)):
        assert kind.__name__.endswith("Error") == bool(
            kind.__subclasses__() and kind not in {errors.BrokerFailed, errors.TopicUnreadable}
        )


def test_no_other_module_defines_an_exception_for_users() -> None:
    for file in (ROOT / "streaming").rglob("*.py"):
        if file.name != "errors.py":
            classes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef)]
            bases = {getattr(base, "id", "") for node in classes for base in node.bases}
            assert bases.isdisjoint(vars(errors)), file
