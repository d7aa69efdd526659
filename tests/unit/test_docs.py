"""Help, configuration, code, tests and the pages that speak of them agree."""

import re
import runpy
from collections import Counter
from functools import cache
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from streaming.cli import main
from streaming.config import Settings, load
from streaming.records import model as events
from streaming.records.updates import Cause

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
FOLDERS = ("docs", "deploy", "matcher", "streaming", "tests")
PAGES = [*sorted(ROOT.glob("*.md")), *(page for part in FOLDERS for page in sorted((ROOT / part).rglob("*.md")))]
HOME = re.compile(r"https://github\.com/reexpand/reexpand/(?:blob|raw)/main/")
"""Prefix of the main page's links: a package index shows this page without the others."""

README_BYTES = 10 * 1024
"""Largest size of the main page, in bytes."""

STREAMS = [str(field.default) for field in Settings.model_fields.values() if str(field.default).startswith("lite-")]
ATTRIBUTES = [value for value in vars(events).values() if isinstance(value, str) and value.startswith("lite.")]
WORDS = [*STREAMS, *events.Action, *ATTRIBUTES, *Cause, *events.Reason]
COMMANDS = sorted(main.commands)
JOB_OPTIONS = {name: f"--{name.replace('_', '-')}" for name in Settings.model_fields}


@cache
def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_the_site_lists_pages_for_users_before_those_for_developers() -> None:
    sections = runpy.run_path(str(DOCS / "site/build.py"))["SECTIONS"]
    assert next(iter(sections)) == "Start"
    assert list(sections)[-1] == "Develop"
    assert "More" not in sections
    listed = [page for name in list(sections)[:-1] for page in sections[name]]
    for page in ("console", "inspect", "kafka-consumer", "operations", "rocketmq"):
        assert f"docs/{page}.md" in listed


@pytest.mark.parametrize("command", ["", *COMMANDS])
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_has_help_with_an_example(command: str, option: str) -> None:
    """The example is one of that command."""
    result = CliRunner().invoke(main, [*command.split(), option])
    assert result.exit_code == 0
    _, found, example = result.output.partition("Example:\n")
    assert found
    assert example.split("\n\n")[0].strip().startswith(f"reexpand {command}")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_help(command: str) -> None:
    parameters = main.commands[command].get_params(click.Context(main.commands[command], **main.context_settings))
    options = [option for option in parameters if isinstance(option, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_an_option_with_few_values_shows_them_in_its_help() -> None:
    commands = [*main.commands.values(), *(each for group in main.commands.values() if isinstance(group, click.Group)
                                           for each in group.commands.values())]  # fmt: skip
    options = [each for command in commands for each in command.params if each.name in ("dialect", "delivery", "kind")]
    assert len(options) > 5
    assert [each.name for each in options if not isinstance(each.type, click.Choice)] == []


def test_every_setting_is_an_option_of_run() -> None:
    """And says in the help what it is by default."""
    output = CliRunner().invoke(main, ["run", "--help"], terminal_width=1_000).output
    output = re.sub(r"\n {10,}", "  ", output)  # the description of a long option stands on the next line
    for name, option in JOB_OPTIONS.items():
        (line,) = [line for line in output.splitlines() if re.match(rf"\s*{option}\b(?!-)", line)]
        description = Settings.model_fields[name].description
        assert description
        assert description in line
        default = Settings.model_fields[name].default
        if isinstance(default, str):
            assert f"[default: {default}]" in line


def test_every_command_is_in_the_readme() -> None:
    assert [command for command in COMMANDS if f"reexpand {command}" not in _text(README)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_names_a_command_that_does_not_exist(page: Path) -> None:
    """In what it shows as code."""
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`|^ {4}.*$", _text(page), re.DOTALL | re.MULTILINE))
    named = set(re.findall(r"(?:^|[\s`$]|bin/)(?<!from )reexpand ([a-z][a-z-]*)", code))
    assert named <= set(COMMANDS)


def test_the_readme_is_short_and_has_absolute_links() -> None:
    assert README.stat().st_size <= README_BYTES
    assert [link for link in re.findall(r"\]\(([^)\s]+)\)", _text(README)) if ":" not in link] == []


SETTINGS = re.findall(
    r"^\| `(\w+)`(?: †)? \| `(\w+ = [^`]+)` \| (.+?) \| (.+) \|$", _text(DOCS / "configuration.md"), re.MULTILINE
)
"""Rows of the table of settings: name, example, default and meaning."""


def test_every_setting_is_in_the_table_once() -> None:
    assert sorted(name for name, *_ in SETTINGS) == sorted(Settings.model_fields)


@pytest.mark.parametrize(("name", "example", "given_default"), [row[:3] for row in SETTINGS], ids=lambda text: text)
def test_the_forms_of_a_setting_are_valid(
    name: str, example: str, given_default: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The example as a key of the file and as a variable; it differs from the default."""
    monkeypatch.chdir(tmp_path)
    for file in ("groups.toml", "kafka.properties", "token"):
        Path(file).touch()
    given = {field: "given" for field in ("bootstrap_servers", "checkpoint") if field != name}
    default = Settings.model_fields[name].default
    value = example.partition(" = ")[2].strip('"{}').replace(" ", "")
    with monkeypatch.context() as patch:
        patch.setenv(f"REEXPAND_{name.upper()}", value)
        by_variable = getattr(load(given), name)
    Path("reexpand.toml").write_text(example, encoding="utf-8")
    monkeypatch.setenv("REEXPAND_CONFIG", "reexpand.toml")
    assert by_variable == getattr(load(given), name) != default
    if isinstance(default, str | int | float):
        shown = f"`{default}`" if isinstance(default, str) else "no" if default is False else f"{default:,}"
        assert given_default == shown


def test_every_word_of_the_records_is_on_their_page() -> None:
    """Kafka topics, actions, attributes of groups, causes, and reasons of dead letters; as code."""
    assert [word for word in WORDS if f"`{word}`" not in _text(DOCS / "records.md")] == []


def _links(page: Path) -> list[tuple[str, str]]:
    """Return the links of a page to the project itself, each as path and anchor."""
    prose = re.sub(r"^```.*?^```", "", _text(page), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)\s]+)\)", HOME.sub("", prose) if page == README else prose)
    return [(path, anchor) for path, _, anchor in (link.partition("#") for link in links) if ":" not in path]


@cache
def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```", "", _text(page), flags=re.DOTALL | re.MULTILINE)
    seen: Counter[str] = Counter()
    anchors = set()
    for heading in re.findall(r"^#+ +(.+?) *$", prose, re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        anchors.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return anchors


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a page or file that exists, and to an anchor that it has."""
    assert [path for path, _ in _links(page) if not (page.parent / path).exists()] == []
    targets = [((page.parent / path).resolve() if path else page, anchor) for path, anchor in _links(page) if anchor]
    assert [(path.name, anchor) for path, anchor in targets if anchor not in _anchors(path)] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, to_follow = {README}, [README]
    while to_follow:
        page = to_follow.pop()
        found = {(page.parent / path).resolve() for path, _ in _links(page) if path.endswith(".md")} - reached
        reached |= found
        to_follow += found
    assert [page.name for page in PAGES if page not in reached] == []


_CONSUMER = re.compile(r"kcat [^\n]*-C\b|Consumer\b|kgo\.NewClient")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_program_that_reads_updates_reads_committed_records(page: Path) -> None:
    """Clients differ in their default, and readers copy the programs."""
    programs = re.findall(r"^```(?:sh|python|java|go)\n(.*?)^```", _text(page), re.DOTALL | re.MULTILINE)
    readers = [each for each in programs if "lite-subscription-updates" in each and _CONSUMER.search(each)]
    assert [each for each in readers if not re.search(r"read_?committed", each, re.IGNORECASE)] == []


def test_the_page_of_records_names_the_isolation_level_of_readers() -> None:
    updates = _text(DOCS / "records.md").partition("\n## Updates\n")[2].partition("\n## ")[0]
    assert "`isolation.level=read_committed`" in updates


def test_the_dispatcher_of_the_tutorial_has_at_most_thirty_lines() -> None:
    program = re.findall(r"^```python\n(.*?)^```", _text(DOCS / "dispatcher.md"), re.DOTALL | re.MULTILINE)[0]
    assert len(program.splitlines()) <= 30


def test_the_number_of_the_jobs_topics_is_right() -> None:
    """On pages and in help."""
    texts = [*map(_text, PAGES), *(verb.help or "" for verb in main.commands.values())]
    named = [word for text in texts for word in re.findall(r"\b(\w+) (?:Kafka )?topics of the job\b", text)]
    named += [word for text in texts for word in re.findall(r"\bjob's (\w+) (?:Kafka )?topics\b", text)]
    numbers = {"five", "six", "seven", "eight", "nine"}
    assert {word for word in named if word in numbers} == {"seven"}
    assert len(STREAMS) == 7


def test_the_main_page_begins_with_its_readers() -> None:
    """What it answers and delivers, for whom, when not, and a picture come before any command."""
    head, _, rest = _text(README).partition("\n```")
    for text in ("which client should receive which topic?", "does not deliver messages", "**Use it if**",
                 "**Do not use it if**", "RocketMQ", "docs/images/console-page.png"):  # fmt: skip
        assert text in head
    assert "| parent topic, lite topic |" in rest
    linked = {path for path, _ in _links(README)}
    assert {f"docs/{page}.md" for page in ("concepts", "dispatcher", "own-kafka", "compared")} <= linked


def test_the_page_of_performance_begins_with_its_results() -> None:
    head, _, _ = _text(DOCS / "performance.md").partition("\n## ")
    for unit in ("events per second", "ms", "SIGKILL", "core"):
        assert re.search(rf"\d[^.]* {unit}|{unit}[^.]* \d", head), unit


def _exists(words: list[str]) -> bool:
    """Tell whether a command line without values is one: its verbs, options and targets."""
    if words[0] == "make":
        return all(re.search(rf"^{target}:", _text(ROOT / "Makefile"), re.MULTILINE) for target in words[1:])
    command: click.Command = main
    rest = words[1:]
    while rest and isinstance(command, click.Group) and rest[0] in command.commands:
        command = command.commands[rest.pop(0)]
    context = click.Context(command, **main.context_settings)
    options = {name for option in command.get_params(context) for name in option.opts}
    return command is not main and set(rest) <= options


def test_the_commands_of_the_comparison_exist() -> None:
    commands = [code.split() for code in re.findall(r"`((?:reexpand|make) [^`]+)`", _text(DOCS / "compared.md"))]
    assert len(commands) >= 4
    assert [words for words in commands if not _exists(words)] == []


def test_a_command_that_does_not_exist_is_found() -> None:
    lines = ("reexpand tail --top", "reexpand nothing", "reexpand topics lost", "make nothing")
    assert [_exists(line.split()) for line in lines] == [False] * len(lines)


_PLURAL = re.compile(
    r"(?:\{(?!_?[A-Z]{2})[^{}\n]*(?::,|count\([^{}\n]*\))\}|%d) (?:more |new )?(?:[a-z-]+ )?[a-z-]+s\b(?<! is)(?<!ms)"
)
"""A number of the moment, and a noun in the plural, which is wrong for one."""

_NEVER_ONE = {
    "streaming/cli/checkpoint.py: {manifest.size:,} bytes",
    "streaming/console/static/playground.js: {count(MOST)} topics",
    "streaming/console/static/playground.js: {count(all)} topics",
    "streaming/console/static/playground.js: {count(found.candidates)} with its",
    "streaming/inspect/planning.py: {len(text):,} bytes",
    "streaming/inspect/wording.py: {pair.quota.share:,} on this",
    "streaming/kafka/names.py: {shortest:,} characters",
    "streaming/operations/advise/report.py: {parent.topics:,} topics",
    "streaming/operations/advise/report.py: {rule.TOPICS_PER_SHARD:,} topics",
    "streaming/operations/advise/rule.py: {placement.fullest:,} topics",
    "streaming/operations/checkpoint_files.py: {each['sizeBytes']:,} bytes",
    "streaming/records/parsing.py: {size:,} characters",
    "streaming/spark/monitoring.py: %d of its",
    "streaming/worker/bounds.py: {len(event.entries):,} entries",
    "streaming/worker/bounds.py: {len(requests):,} requests",
    "streaming/worker/bounds.py: {self.name_bytes:,} bytes",
    "streaming/worker/bounds.py: {size:,} bytes",
    "streaming/worker/inquiry/answering.py: {len(value):,} bytes",
    "streaming/worker/letters.py: {int(size):,} bytes",
}
"""Numbers that are larger than one, such as sizes beyond a bound, or that count no noun."""


def test_a_number_and_its_noun_agree() -> None:
    """In texts of the code. `counted` and `plural` write the noun of a number that may be one."""
    sources = [file for kind in ("py", "js") for file in (ROOT / "streaming").rglob(f"*.{kind}")]
    found = {f"{file.relative_to(ROOT)}: {text}" for file in sources for text in _PLURAL.findall(_text(file))}
    assert found == _NEVER_ONE


def _options(command: click.Command) -> set[str]:
    """Return the options of a verb and of those below it."""
    context = click.Context(command, **main.context_settings)
    own = {name for option in command.get_params(context) for name in option.opts}
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union(*(_options(each) for each in below))


_LACK = re.compile(r"\b(?:lacks?|lacking|has no|have no|there is no)\b[^.:;|]*?`(?:reexpand [a-z -]*)?(--[a-z-]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_lacks_an_option_that_exists(page: Path) -> None:
    text = _text(page)
    _, _, lacking = text.partition("\n## What `reexpand` lacks\n")
    clauses = [each.partition(";")[0] for each in lacking.partition("\n## ")[0].split("\n- ")]
    named = {option for clause in clauses for option in re.findall(r"`(--[a-z-]+)", clause)} | {*_LACK.findall(text)}
    assert named & _options(main) == set()


def test_an_option_that_exists_is_found_among_those_that_lack() -> None:
    assert _LACK.findall("Lists lack\n`--watch`, as all know. Verbs have no `reexpand tail --top`.") == [
        "--watch",
        "--top",
    ]
    assert {"--watch", "--since", "--rocketmq"} <= _options(main)


def _delays(setting: str) -> dict[str, str]:
    """Return by page the seconds until a consumer finds a new topic, as text next to a setting or consumer."""
    near = re.compile(rf"{setting}(?:(?!\n\n|\|).){{0,60}}?\b(\d+\.\d+) s\b", re.DOTALL)
    return {page.name: seconds for page in PAGES for seconds in near.findall(_text(page))}


@pytest.mark.parametrize(
    ("setting", "row"),
    [
        (r"metadata\.max\.age\.ms\b(?:(?!\n\n|\|).){0,60}?\b500`?", "the same with `metadata.max.age.ms`"),
        ("`PatternConsumer`", "`PatternConsumer`"),
    ],
    ids=["metadata.max.age.ms", "PatternConsumer"],
)
def test_the_delay_of_a_consumer_is_that_of_the_bench_on_every_page(setting: str, row: str) -> None:
    (median,) = re.findall(rf"^\| {re.escape(row)}[^|]*\| ([\d.]+),", _text(DOCS / "kafka-consumer.md"), re.MULTILINE)
    found = _delays(setting)
    assert set(found.values()) == {median}, found


_LOOSE = re.compile(r"\b(?:[Tt]he job|`job`|reexpand run`|[Uu]pdates)\b[^.:;|]*?\bat[- ]least[- ]once")


def test_every_page_gives_a_system_the_same_delivery_guarantee() -> None:
    """By default the job writes exactly once."""
    table = _text(ROOT / "tests/bench/peers/README.md")
    peers = dict(re.findall(r"^\| `([\w-]+)` \| .+ \| (\w+ \w+ once|\w+ once)", table, re.MULTILINE))
    default = Settings.model_fields["delivery"].default.replace("-", " ")
    assert peers["job"] == default
    named = re.findall(
        r"((?:Kafka|Quix) Streams|PyFlink|Bytewax)(?: [\d.]+)?, ((?:at least|exactly) once)",
        _text(DOCS / "performance.md"),
    )
    assert len(named) == 5
    for system, words in named:
        name = system.lower().replace(" ", "-")
        assert words in {peers.get(name), peers.get(f"{name}-eos")}, system
    loose = {page.name: _LOOSE.findall(_text(page)) for page in PAGES}
    assert {page: found for page, found in loose.items() if any("--delivery" not in each for each in found)} == {}


def test_no_program_needs_a_setting_that_it_does_not_use() -> None:
    programs = [
        code for page in PAGES for code in re.findall(r"^```python\n(.*?)^```", _text(page), re.DOTALL | re.MULTILINE)
    ]
    assert any("Inspector(" in code for code in programs)
    assert [code for code in programs if "checkpoint" in code] == []
    assert [page.name for page in PAGES if re.search(r'checkpoint"?\s*[:=]\s*"unused"', _text(page))] == []
