"""What a shard remembers, as bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming import codec, state
from streaming.errors import StateCorrupted, StateFormatUnknown
from streaming.events import BIND_TOPIC, WILDCARD
from streaming.state import ClientKey, Delta, Group, ShardState, decode, encode, renew
from streaming.subscription import ABSENT, Client, Mode, View

INT64 = 2**63
names = st.text(max_size=20)
views = st.builds(
    View,
    st.booleans(),
    st.none() | st.integers(-INT64, INT64 - 1),
    st.lists(names, max_size=4, unique=True).map(tuple),
    st.booleans(),
)
shared = views.map(lambda view: Client(view, view))
groups = st.builds(Group, st.dictionaries(names, names, max_size=3), st.integers(0, 1 << 31), st.integers(0, INT64 - 1))
VERSION_BYTE = 2


@st.composite
def states(draw: st.DrawFn) -> ShardState:
    """Any state."""
    made = ShardState()
    made.topics = dict.fromkeys(draw(st.lists(names, max_size=6, unique=True)))
    made.groups = draw(st.dictionaries(names, groups, max_size=3))
    keys = st.builds(ClientKey, names, names)
    made.clients = draw(st.dictionaries(keys, shared | st.builds(Client, views, views), max_size=4))
    return made


def filled() -> ShardState:
    """A small state of everything."""
    made = ShardState()
    made.topics = dict.fromkeys(["a__b", "é", "😀"])
    made.groups = {"g": Group({BIND_TOPIC: "p", WILDCARD: ""}, 2, 17)}
    view = View(True, -5, ("a__*", "b"), False)
    made.clients = {ClientKey("g", "shared"): Client(view, view), ClientKey("g", "apart"): Client(view, ABSENT)}
    return made


@given(made=states())
def test_a_state_is_what_was_encoded(made: ShardState) -> None:
    """All values, their order and their types come back; what comes back has the same bytes."""
    data = encode(made)
    again = decode(data)
    assert again == made
    assert list(again.topics) == list(made.topics)
    assert list(again.clients) == list(made.clients)
    assert all(isinstance(key, ClientKey) for key in again.clients)
    assert all(isinstance(view, View) for client in again.clients.values() for view in client)
    assert all(isinstance(view.entries, tuple) for client in again.clients.values() for view in client)
    assert encode(again) == data
    assert bool(again) == bool(made)


def test_a_shared_view_stays_shared() -> None:
    clients = decode(encode(filled())).clients
    both = clients[ClientKey("g", "shared")]
    assert both.literal is both.wildcard
    apart = clients[ClientKey("g", "apart")]
    assert apart.literal != apart.wildcard


@given(data=st.data())
def test_any_changed_byte_is_found(data: st.DataObject) -> None:
    """A changed version is told from damage: another release may have written it."""
    encoded = bytearray(encode(filled()))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(StateFormatUnknown if position == VERSION_BYTE else StateCorrupted):
        decode(bytes(encoded))


def test_missing_and_surplus_bytes_are_found() -> None:
    encoded = encode(filled())
    for length in range(len(encoded)):
        with pytest.raises(StateCorrupted):
            decode(encoded[:length])
    with pytest.raises(StateCorrupted):
        decode(encoded + b"\0")


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        (b"", StateCorrupted, "lacks its header; restore the checkpoint"),
        (b"not a state value at all", StateCorrupted, "lacks its header; restore the checkpoint"),
        (codec.begin([]) + b"x", StateCorrupted, "fails its checksum; restore the checkpoint"),
        (b"rx\x63" + bytes(16), StateFormatUnknown, "has format 99, this release reads 1; use the one that wrote it"),
    ],
)
def test_the_message_says_what_to_do(data: bytes, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        list(codec.read(data))


@given(made=states(), more=states())
def test_a_change_is_appended_and_read_from_where_reading_ended(made: ShardState, more: ShardState) -> None:
    """What was read once need not be read again; the whole log gives the same."""
    former = encode(made)
    delta = Delta([topic for topic in more.topics if topic not in made.topics], {}, {**more.groups}, {**more.clients})
    renewed = codec.append(former, state._plain(delta))
    read = codec.position(former)
    assert codec.continues(renewed, read)
    state.catch_up(made, renewed, read)
    assert decode(renewed) == made


def test_a_log_that_has_outgrown_its_beginning_is_written_anew() -> None:
    """Its size stays within a constant factor of its content, whatever comes and goes."""
    made = ShardState()
    data: bytes | None = None
    sizes: list[int] = []
    for number in range(2_000):
        delta = Delta([f"topic-{number}"], {f"topic-{number - 5}": None} if number > 4 else {})
        made.apply(delta)
        data = renew(data, made, delta)
        assert data is not None
        sizes.append(len(data))
    assert decode(data or b"") == made
    assert max(sizes) < 2 * len(encode(made)) + 4_200


def test_a_topic_takes_at_most_64_bytes_beyond_its_name() -> None:
    made = ShardState()
    made.topics = dict.fromkeys(f"orders__eu__tenant{number}" for number in range(10_000))
    assert (len(encode(made)) - sum(map(len, made.topics))) / 10_000 <= 64


@pytest.mark.parametrize("clients", [1, 100, 10_000])
def test_a_pattern_takes_at_most_150_bytes(clients: int) -> None:
    """Its text and its share of the client included."""
    made = ShardState()
    patterns = [f"orders__*__tenant{number}__**" for number in range(10_000)]
    for number in range(clients):
        view = View(True, 1_700_000_000_000, tuple(patterns[number::clients]), False)
        made.clients[ClientKey("group-of-the-shop", f"10.0.0.1@{number}")] = Client(view, view)
    assert len(encode(made)) / 10_000 <= 150


@pytest.mark.parametrize(
    ("attributes", "mode"),
    [
        ({WILDCARD: "true", BIND_TOPIC: "p"}, Mode.WILDCARD),
        ({WILDCARD: "", BIND_TOPIC: "p"}, Mode.WILDCARD),
        ({WILDCARD: "false", BIND_TOPIC: "p"}, Mode.WILDCARD),
        ({BIND_TOPIC: "p"}, Mode.LITERAL),
    ],
)
def test_the_presence_of_the_attribute_makes_a_group_a_wildcard_group(attributes: dict[str, str], mode: Mode) -> None:
    made = ShardState()
    made.groups["g"] = Group(attributes, 0, 0)
    assert made.mode("g") is mode
    assert made.mode("another") is Mode.LITERAL


def test_nothing_left_is_an_empty_state() -> None:
    """Which the job removes instead of storing it."""
    made = filled()
    data = encode(made)
    delta = Delta((), dict.fromkeys(made.topics), dict.fromkeys(made.groups), dict.fromkeys(made.clients))
    made.apply(delta)
    assert not made
    assert renew(data, made, delta) is None
    assert made == ShardState()


def test_the_format_is_known() -> None:
    """A change of what is stored needs a new number, and with it this test and a way to read the former one."""
    assert codec.FORMAT == 1
    made = filled()
    literal = (True, -5, ("a__*", "b"), False)
    assert encode(made)[:3] == b"rx\x01"
    assert list(codec.read(encode(made))) == [
        (
            ("a__b", "é", "😀"),
            (),
            (("g", ({BIND_TOPIC: "p", WILDCARD: ""}, 2, 17)),),
            (
                (("g", "shared"), (literal, None)),
                (("g", "apart"), (literal, (False, None, (), False))),
            ),
        )
    ]
