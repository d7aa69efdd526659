"""Page of the rules of `rules.toml`, with the tests marked with them.

`python -m tests.support.rules build/rules.md` writes the page.
"""

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("rules.toml")

INTRODUCTION = """\
# Rules

Every rule of the job, the code that decides it, and the tests that show it. Code is named by its module in
`streaming/`, unless it begins with `matcher`. The last column names the profiles of
`tests/property/streaming/test_histories.py` whose random histories reach the rule and compare it with the oracle. Code
that job and oracle share, such as parsing and patterns, has no profile.
"""


class Rule(NamedTuple):
    """A rule of the job.

    Attributes:
        name: the name by which tests refer to it: `@pytest.mark.rule("eviction")`.
        section: heading of the page.
        text: the rule.
        code: functions and classes that decide it.
        profiles: profiles of random histories that reach it.
    """

    name: str
    section: str
    text: str
    code: list[str]
    profiles: list[str]


class Mark(NamedTuple):
    """Mark of a test that shows a rule, with the case if the test has several."""

    rule: str
    test: str
    case: str | None


def rules() -> list[Rule]:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return [
        Rule(name, section, rule["text"], rule["code"], rule.get("profiles", []))
        for section, listed in table.items()
        for name, rule in listed.items()
    ]


def defined(tree: ast.AST, path: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Yield functions and classes with their names, including members of classes."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield path + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from defined(node, f"{path}{node.name}.")


def marks() -> Iterator[Mark]:
    """Yield the marks of all tests, read from their source."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for name, node in defined(ast.parse(file.read_text(encoding="utf-8"))):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.rule":
                    (case,) = [ast.literal_eval(each.value) for each in decorator.keywords] or [None]
                    for rule in map(ast.literal_eval, decorator.args):
                        yield Mark(rule, f"{file.relative_to(ROOT)}::{name}", case)


def page() -> str:
    """Return the page: a table for each section."""
    tests = defaultdict(list)
    for mark in marks():
        tests[mark.rule].append(f"`{mark.test}[{mark.case}]`" if mark.case else f"`{mark.test}`")
    lines = [INTRODUCTION]
    for section, listed in groupby(rules(), key=lambda rule: rule.section):
        lines += [f"## {section}\n", "| rule | decided in | shown by | profiles |", "|---|---|---|---|"]
        for rule in listed:
            code, profiles = (", ".join(f"`{name}`" for name in names) for names in (rule.code, rule.profiles))
            lines.append(f"| {rule.text} | {code} | {', '.join(tests[rule.name])} | {profiles} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
