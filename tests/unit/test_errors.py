"""The tree of exceptions."""

import ast
from pathlib import Path

from streaming import errors

ROOT = Path(__file__).parents[2]


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
