"""The package as a whole: its examples and its page are right, and its core needs nothing."""

import doctest
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import matcher
from matcher import selectors
from matcher.batch import FlatPatterns, FlatTopics

PAGE = Path(matcher.__file__).with_name("README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("module", ["matcher", "matcher.explain", "matcher.selectors.sql92"])
def test_examples_in_docstrings_give_the_results_shown(module: str) -> None:
    results = doctest.testmod(import_module(module))
    assert results.attempted > 0
    assert results.failed == 0


def test_sessions_on_the_page_give_the_results_shown() -> None:
    sessions = re.sub(r"^```.*$", "", PAGE, flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(sessions, {}, "README.md", None, 0)
    results = doctest.DocTestRunner().run(test)
    assert results.attempted >= PAGE.count("```python")
    assert results.failed == 0


def test_every_dialect_is_in_the_table_with_its_separator() -> None:
    rows = {
        cells[1].split("`")[1]: cells[2] for cells in re.findall(r"^(\|)([^|]*`[^|]*)\|([^|]*)\|", PAGE, re.MULTILINE)
    }
    for name, dialect in matcher.DIALECTS.items():
        assert f"`{dialect.separator}`" in rows[name]


def test_every_public_function_is_on_the_page() -> None:
    functions = [name for name in matcher.__all__ if name.islower() and name not in ("get_dialect", "__version__")]
    assert [name for name in functions if f"`{name}(" not in PAGE] == []


def test_the_core_needs_the_standard_library_only() -> None:
    code = (
        "import sys\n"
        "for name in ('numpy', 'pyarrow', 'pandas', 'pyspark', 'lark', 'streaming'): sys.modules[name] = None\n"
        "import matcher, matcher.selectors\n"
        "assert matcher.matches('a__*', 'a__b')\n"
        "assert matcher.selectors.compile('TAG', 'a').agrees(['a'], {})\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_the_batch_indexes_name_the_package_that_they_need() -> None:
    code = "import sys\nsys.modules['numpy'] = None\nimport matcher.batch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: matcher.batch needs numpy 2 or later: pip install numpy"
    )


def test_a_dialect_is_given_by_name_or_as_an_object() -> None:
    for dialect in ("mqtt", matcher.get_dialect("mqtt")):
        assert matcher.expand(["a/+"], ["a/b", "b"], dialect) == ["a/b"]
        found = matcher.explain("a/+", "a/b", dialect)
        assert isinstance(found, matcher.Explanation)
        assert found.matched


def test_everything_public_is_there() -> None:
    assert all(hasattr(matcher, name) for name in matcher.__all__)


def test_the_version_is_that_of_the_distribution() -> None:
    assert matcher.__version__ == version("reexpand")
    with pytest.raises(AttributeError, match="has no attribute 'version'"):
        matcher.version  # type: ignore[attr-defined]  # noqa: B018 - the access fails


TEXT_FOR_A_LIST: list[tuple[str, Callable[[str], object]]] = [
    ("patterns", lambda text: matcher.expand(text, ["a"])),
    ("topics", lambda text: matcher.expand(["a"], text)),
    ("patterns", lambda text: matcher.TopicIndex().expand_any(text)),
    ("patterns", FlatPatterns),
    ("topics", FlatTopics),
    ("topics", lambda text: FlatPatterns(["a"]).match_batch(text)),
    ("patterns", lambda text: FlatTopics(["a"]).expand_batch(text)),
]


@pytest.mark.parametrize(("argument", "call"), TEXT_FOR_A_LIST)
def test_a_text_in_place_of_a_list_is_an_error(argument: str, call: Callable[[str], object]) -> None:
    """Its characters would be patterns or topics otherwise."""
    with pytest.raises(
        TypeError, match=rf"{argument} must be a list of texts, not the text 'a__\*'; write \['a__\*'\]"
    ):
        call("a__*")


def test_reprs_show_dialect_and_size() -> None:
    patterns: matcher.PatternIndex[int] = matcher.PatternIndex("mqtt")
    patterns.add("a/#", 1)
    assert repr(patterns) == "<PatternIndex dialect='mqtt' len=1>"
    assert repr(matcher.TopicIndex()) == "<TopicIndex dialect='lite' len=0>"
    assert repr(FlatPatterns(["a__*", "b"])) == "<FlatPatterns dialect='lite' len=2>"
    assert repr(FlatTopics(["a.b"], "nats")) == "<FlatTopics dialect='nats' len=1>"
    assert repr(matcher.get_dialect("wamp")) == "<Dialect 'wamp'>"
    shape = selectors.BloomFilter()
    bitmap = shape.bitmap()
    bitmap.add("g#t")
    assert repr(shape) == "<BloomFilter m=112 k=3>"
    assert repr(bitmap) == "<Bitmap m=112 set=3>"
