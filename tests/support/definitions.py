"""Second, naive definition of each dialect: it tries every way to match."""

from collections.abc import Callable, Sequence

Definition = Callable[[str, str | None, str], bool]
"""Predicate of valid pattern, policy (None if the dialect has none) and topic: True if they match."""


def tries_every_way(
    wanted: Sequence[str],
    have: Sequence[str],
    *,
    one: str | None = None,
    some: str | None = None,
    rest: str | None = None,
) -> bool:
    """Match segment by segment: `one` is one segment, `some` one or more, `rest` zero or more."""
    reached = {0}  # possible numbers of topic segments matched by the pattern so far
    for want in wanted:
        if want in (some, rest):
            reached = set(range(min(reached) + (want == some), len(have) + 1))
        else:
            reached = {used + 1 for used in reached if used < len(have) and want in (one, have[used])}
        if not reached:
            return False
    return len(have) in reached


def lite(text: str, _: str | None, topic: str) -> bool:
    return topic != "" and tries_every_way(text.split("__"), topic.split("__"), one="*", some="**")


def mqtt(text: str, _: str | None, topic: str) -> bool:
    """Match as MQTT's topic filters do, also for the filter of a shared subscription."""
    if text.startswith("$share/"):
        text = text.split("/", 2)[2]
    if not topic or set("+#\0") & set(topic) or len(topic.encode(errors="surrogatepass")) > 65_535:
        return False
    if any("\ud800" <= character <= "\udfff" for character in topic) or (topic[0] == "$" and text[0] in "+#"):
        return False
    return tries_every_way(text.split("/"), topic.split("/"), one="+", rest="#")


def nats(text: str, _: str | None, topic: str) -> bool:
    have = topic.split(".")
    if {"", "*", ">"} & set(have) or set(" \t\n\r\f") & set(topic):
        return False
    return tries_every_way(text.split("."), have, one="*", some=">")


def wamp(text: str, policy: str | None, topic: str) -> bool:
    if policy == "prefix":
        return topic.startswith(text)
    if policy is None and text.endswith("**"):
        text = text[:-1]
    elif policy is None and text.endswith("*"):
        wanted, have = text[:-1].split("."), topic.split(".")
        start = have[len(wanted) - 1 : len(wanted)]
        return (
            bool(start) and start[0].startswith(wanted.pop()) and tries_every_way(wanted, have[: len(wanted)], one="*")
        )
    one = {None: "*", "wildcard": ""}.get(policy)
    return tries_every_way(text.split("."), topic.split("."), one=one)
