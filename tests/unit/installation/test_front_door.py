"""`import reexpand` and `import streaming`: the public names of the library, each imported on first use."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import assert_type

import pytest

import reexpand
import streaming
from streaming.client import SubscriptionClient
from streaming.client.pattern_consumer import PatternConsumer
from streaming.errors import ReexpandError
from streaming.inspect import Inspector
from streaming.rocketmq.consumer import WildcardLiteConsumer

CLASSES = {"Inspector", "PatternConsumer", "SubscriptionClient", "WildcardLiteConsumer"}
HEAVY = ("pyspark", "py4j", "pandas", "pyarrow", "numpy", "pydantic", "confluent_kafka", "rich", "click", "lark")


@pytest.mark.parametrize("library", [streaming, reexpand], ids=lambda module: module.__name__)
def test_every_public_name_is_there(library: ModuleType) -> None:
    found = {name: getattr(library, name) for name in streaming.__all__}
    assert {name for name, value in found.items() if inspect.isclass(value)} > CLASSES
    others = {
        name: value for name, value in found.items() if name not in (*CLASSES, "__version__", "errors", "matcher")
    }
    assert [name for name, value in others.items() if not issubclass(value, ReexpandError)] == []
    assert set(streaming.__all__) <= set(dir(library))
    with pytest.raises(AttributeError, match="has no attribute 'Consumer'"):
        library.Consumer  # noqa: B018 - the access fails


def test_both_names_lead_to_the_same_objects() -> None:
    assert reexpand.SubscriptionClient is streaming.SubscriptionClient is SubscriptionClient
    assert reexpand.matcher is importlib.import_module("matcher")
    assert reexpand.errors is importlib.import_module("streaming.errors")


@pytest.mark.parametrize("library", ["streaming", "reexpand"])
def test_the_import_loads_nothing_else(library: str) -> None:
    """Neither Spark nor Kafka; the first use of a name loads its own module only."""
    code = (
        f"import sys, {library}\n"
        f"loaded = [name for name in {HEAVY} if name in sys.modules]\n"
        "assert not loaded, loaded\n"
        f"{library}.SubscriptionClient, {library}.PatternConsumer, {library}.WildcardLiteConsumer\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('pyspark', 'py4j', 'pandas', 'pyarrow')]\n"
        f"{library}.Inspector\n"
        "assert not {'pyspark', 'py4j'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_type_checkers_see_the_names() -> None:
    """`make lint` checks these lines, and that a name without a definition is an error."""
    assert_type(reexpand.SubscriptionClient, type[SubscriptionClient])
    assert_type(streaming.PatternConsumer, type[PatternConsumer])
    assert_type(reexpand.Inspector, type[Inspector])
    assert_type(reexpand.WildcardLiteConsumer, type[WildcardLiteConsumer])
    assert_type(reexpand.ReexpandError, type[ReexpandError])
    assert_type(reexpand.matcher.matches("a", "b"), bool)
    assert_type(reexpand.__version__, str)
    for package in (reexpand, streaming, reexpand.matcher):
        assert Path(package.__file__ or "").with_name("py.typed").exists()
