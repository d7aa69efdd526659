"""The matcher's page shows what happens."""

import doctest
import re
from pathlib import Path

import matcher

README = Path(matcher.__file__).with_name("README.md")


def test_all_code_of_the_page_holds() -> None:
    """Every block of Python is a session that gives what is printed there."""
    page = README.read_text(encoding="utf-8")
    sessions = re.sub(r"^```.*$", "", page, flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(sessions, {}, README.name, str(README), 0)
    results = doctest.DocTestRunner().run(test)
    assert results.attempted >= page.count("```python")
    assert results.failed == 0


def test_every_dialect_is_in_the_table() -> None:
    """With the separator that it has."""
    page = README.read_text(encoding="utf-8")
    rows = {
        cells[1].split("`")[1]: cells[2] for cells in re.findall(r"^(\|)([^|]*`[^|]*)\|([^|]*)\|", page, re.MULTILINE)
    }
    for name, dialect in matcher.DIALECTS.items():
        assert f"`{dialect.separator}`" in rows[name]


def test_every_public_function_is_named() -> None:
    """So that none is added without a word about it."""
    page = README.read_text(encoding="utf-8")
    functions = [name for name in matcher.__all__ if name.islower() and name not in ("get_dialect", "__version__")]
    assert [name for name in functions if f"`{name}(" not in page] == []
