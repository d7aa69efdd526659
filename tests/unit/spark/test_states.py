"""How Spark's reader of states is asked for a checkpoint."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from streaming.spark.states import StateReader


@pytest.mark.parametrize("name", ["checkpoint", "a checkpoint", "50%20", "#1?", "[é]"])
def test_spark_gets_a_path_that_a_uri_does_not_encode(name: str, tmp_path: Path) -> None:
    """It would look for the encoded name, and report a damaged state."""
    (tmp_path / name / "query").mkdir(parents=True)
    spark = MagicMock()
    load = spark.read.format.return_value.option.return_value.load
    load.return_value.select.return_value.toLocalIterator.return_value = [("p", 0, b"state")]
    states = StateReader(spark, str(tmp_path / name)).values(3)
    assert next(states) == ("p", 0, b"state")
    path = Path(load.call_args.args[0].removeprefix("file://"))
    assert set(" %#?[]").isdisjoint(str(path))
    assert path.resolve() == tmp_path / name / "query"
    assert list(states) == []
    assert path.exists() == (name == "checkpoint")
