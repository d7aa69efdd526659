"""Messages as a broker stores them."""

import struct

import pytest

from streaming.rocketmq.brokers import Damaged, Message, decode

FIRST = {"__LITE_TOPIC": "a", "INNER_MULTI_QUEUE_OFFSET": "0", "TAGS": "paid", "region": "eu", "UNIQ_KEY": "1"}


def stored(properties: dict[str, str], *, flag: int = 0, wide: bool = False, body: bytes = b"body") -> bytes:
    """A stored message; a flag gives its hosts addresses of 16 bytes."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items()).encode()
    born, kept = (bytes(20 if flag & bit else 8) for bit in (16, 32))
    topic = (b"\0\x06" if wide else b"\x06") + b"orders"
    rest = b"".join(
        (
            struct.pack(">iiiqqiq", 0, 0, 0, 5, 9, flag, 1),
            born,
            struct.pack(">q", 77),
            kept,
            struct.pack(">iqi", 0, 0, len(body)),
            body,
            topic,
            struct.pack(">h", len(text)),
            text,
        )
    )
    return struct.pack(">II", 8 + len(rest), 0xDAA320AB if wide else 0xDAA320A7) + rest


@pytest.mark.parametrize("flag", [0, 16, 32, 48])
@pytest.mark.parametrize("wide", [False, True])
def test_messages_are_read_one_after_the_other(flag: int, wide: bool) -> None:  # noqa: FBT001 - a parameter
    later = {"__LITE_TOPIC": "a", "INNER_MULTI_QUEUE_OFFSET": "3"}
    data = b"".join(stored(each, flag=flag, wide=wide) for each in (FIRST, {"TAGS": "of the parent"}, later))
    assert list(decode(data)) == [Message("a", True, 77, "paid", {"region": "eu"}), Message("a", False, 77, None, {})]


def test_properties_that_are_no_text_are_read_as_rocketmq_reads_them() -> None:
    """A broker stores the properties of a batch unchecked, and each later message of the queue follows this one."""
    data = stored(FIRST).replace(b"eu", b"\xff\xfe") + stored(FIRST)
    assert [message.properties["region"] for message in decode(data)] == ["\ufffd\ufffd", "eu"]


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_damaged_bytes_are_told(cut: int) -> None:
    with pytest.raises(Damaged):
        list(decode(stored(FIRST)[:-cut]))
    with pytest.raises(Damaged, match="no message at byte 0"):
        list(decode(bytes(200)))
