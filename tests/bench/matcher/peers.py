"""What the package is compared with; each peer takes patterns and gives a function from a topic to what matches."""

import re
from collections.abc import Callable, Sized
from importlib import import_module
from typing import Any

Match = Callable[[str], Sized]


class DictTrie:
    """The trie that one writes in thirty lines: nested dicts with the wildcards as keys beside the names."""

    def __init__(self, patterns: list[str]) -> None:
        self.root: dict[str, Any] = {}
        for number, pattern in enumerate(patterns):
            *path, last = pattern.split(".")
            node = self.root
            for segment in path if last == ">" else [*path, last]:
                node = node.setdefault(segment, {})
            node.setdefault(">" if last == ">" else "", []).append(number)

    def match(self, topic: str) -> list[int]:
        found: list[int] = []
        level = [self.root]
        for segment in topic.split("."):
            following = []
            for node in level:
                if ">" in node:
                    found += node[">"]
                for key in (segment, "*"):
                    child = node.get(key)
                    if child is not None:
                        following.append(child)
            level = following
        for node in level:
            found += node.get("", ())
        return found


class DictTopics:
    """The same for topics, asked by pattern."""

    def __init__(self, topics: list[str]) -> None:
        self.root: dict[str, Any] = {}
        for topic in topics:
            node = self.root
            for segment in topic.split("."):
                node = node.setdefault(segment, {})
            node[""] = topic

    def expand(self, pattern: str) -> list[str]:
        *path, last = pattern.split(".")
        level = [self.root]
        for segment in path if last == ">" else [*path, last]:
            if segment == "*":
                level = [child for node in level for name, child in node.items() if name]
            else:
                level = [node[segment] for node in level if segment in node]
        if last != ">":
            return [node[""] for node in level if "" in node]
        found = []
        while level:
            level = [child for node in level for name, child in node.items() if name]
            found += [node[""] for node in level if "" in node]
        return found


def expression(pattern: str) -> str:
    """Spell a pattern as a regular expression."""
    parts = ["[^.]+" if part == "*" else ".+" if part == ">" else re.escape(part) for part in pattern.split(".")]
    return r"\.".join(parts)


def regular_expressions(patterns: list[str]) -> Match:
    """One compiled regular expression a pattern, tried one after the other."""
    compiled = [(number, re.compile(expression(pattern)).fullmatch) for number, pattern in enumerate(patterns)]
    return lambda topic: [number for number, match in compiled if match(topic)]


def to_mqtt(text: str) -> str:
    """Spell a pattern or topic as MQTT does; one or more levels are `+/#` there."""
    text = text.replace(".", "/").replace("*", "+")
    return f"{text[:-1]}+/#" if text.endswith(">") else text


def paho(patterns: list[str]) -> Match:
    """The matcher of paho-mqtt; it takes topics as MQTT spells them."""
    matcher = import_module("paho.mqtt.matcher").MQTTMatcher()
    for number, pattern in enumerate(patterns):
        matcher[to_mqtt(pattern)] = number
    return lambda topic: list(matcher.iter_match(topic))


def pytrie(prefixes: list[str]) -> Match:
    """The values of all prefixes of a text, from pytrie."""
    trie = import_module("pytrie").StringTrie(zip(prefixes, range(len(prefixes)), strict=True))
    return lambda topic: list(trie.iter_prefix_values(topic))
