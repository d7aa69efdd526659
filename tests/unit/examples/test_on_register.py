"""The example of a broker plug-in sends what the job reads."""

from click.testing import CliRunner

from streaming.examples.on_register import main, on_register, on_unregister, record
from streaming.records.model import TopicEvent
from streaming.records.parsing import parse_topic_event


def test_its_records_are_topic_events_keyed_by_their_parent() -> None:
    """And its help has an example."""
    name = "%LMQ%$orders$eu__created"
    for event, created in ((on_register(name, 5), True), (on_unregister(name, 5), False)):
        key, value = record(event)
        assert key == b"orders"
        parsed = parse_topic_event(value)
        assert isinstance(parsed, TopicEvent)
        assert (parsed.parent, parsed.lite_topic, parsed.created) == ("orders", "eu__created", created)
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert "Example:\n    python -m streaming.examples.on_register --bootstrap-servers" in result.output
