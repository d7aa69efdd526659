"""Each rule has its code and its test, and each mark of a test has its rule."""

import ast
import re
from collections import defaultdict

from tests.support.histories import PROFILES
from tests.support.rules import ROOT, defined, marks, page, rules

RULES = rules()
MARKS = list(marks())


def _code() -> set[str]:
    """Return the full names of all functions and classes, without `streaming.`."""
    found = set()
    for package in ("matcher", "streaming"):
        for file in (ROOT / package).rglob("*.py"):
            *folders, name = file.relative_to(ROOT).with_suffix("").parts
            module = ".".join(folders if name == "__init__" else [*folders, name]).removeprefix("streaming.")
            found |= {f"{module}.{each}" for each, _ in defined(ast.parse(file.read_text(encoding="utf-8")))}
    return found


def test_names_and_texts_of_rules_are_unique() -> None:
    assert RULES
    assert len({rule.name for rule in RULES}) == len({rule.text for rule in RULES}) == len(RULES)


def test_each_rule_names_code_that_exists() -> None:
    code = _code()
    assert {rule.name: rule.code for rule in RULES if not rule.code or not code.issuperset(rule.code)} == {}


def test_each_rule_has_a_test() -> None:
    assert {rule.name for rule in RULES} - {mark.rule for mark in MARKS} == set()


def test_each_rule_names_profiles_that_exist() -> None:
    assert {profile for rule in RULES for profile in rule.profiles} <= PROFILES.keys()


def test_each_mark_names_a_rule() -> None:
    assert {mark.rule for mark in MARKS} - {rule.name for rule in RULES} == set()


def test_each_mark_names_a_case_of_its_file() -> None:
    cases = defaultdict(set)
    for mark in MARKS:
        if mark.case is not None:
            cases[mark.test.partition("::")[0]].add(mark.case)
    for file, named in cases.items():
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert named <= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}


def test_the_page_has_a_row_for_each_rule_with_its_tests() -> None:
    text = page()
    assert all(f"| {rule.text} | " in text for rule in RULES)
    assert all(f"`{mark.test}" in text for mark in MARKS)


def test_the_documented_failures_are_rules() -> None:
    """Each row of the tables of failures and effects, word for word."""
    page = (ROOT / "docs" / "delivery.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| failure.*\n\|-.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    text = re.sub(r"\[(.+?)\]\(.+?\)", r"\1", "".join(tables))
    rows = re.findall(r"^\| (?:[\d, to]+: )?(.*) \| (.*) \|$", text, re.MULTILINE)
    assert [": ".join(row) for row in rows] == [rule.text for rule in RULES if rule.section == "Failures"]
