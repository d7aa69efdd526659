"""Help of all verbs: quick, and with the choices of options."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Literal, get_args, get_origin

import click
import pytest
from click.testing import CliRunner

from streaming.cli import main, setting_options
from streaming.config import Settings

CLICK_IMPORTS = 4
"""CPU time of a help, in imports of click: each takes some 0.05 s on an idle core, so a help takes less than 0.2 s."""

HEAVY = (
    "pyspark",
    "confluent_kafka",
    "pydantic",
    "numpy",
    "pandas",
    "pyarrow",
    "msgpack",
    "rich",
    "starlette",
    "uvicorn",
)


def verbs(group: click.Group = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from verbs(command, (*path, name))
        else:
            yield (*path, name)


VERBS = [*verbs()]


def test_the_help_of_each_verb_imports_no_heavy_package() -> None:
    code = (
        "import json, sys\n"
        f"for name in {HEAVY}:\n"
        "    sys.modules[name] = None\n"
        "from streaming.cli import main\n"
        "for verb in json.loads(sys.argv[1]):\n"
        "    main([*verb, '--help'], standalone_mode=False)\n"
    )
    subprocess.run([sys.executable, "-c", code, json.dumps(VERBS)], capture_output=True, check=True)


def test_the_settings_in_the_help_are_those_of_the_job() -> None:
    """The help reads them from the source."""
    defaults = {setting.name: setting.default for setting in setting_options.settings()}
    fields = Settings.model_fields
    assert defaults == {name: None if field.is_required() or field.default_factory else field.default
                        for name, field in fields.items()}  # fmt: skip
    assert [each.description for each in setting_options.settings()] == [field.description for field in fields.values()]
    values = {each.name: each.values for each in setting_options.settings() if each.values}
    assert values == {name: get_args(field.annotation) for name, field in fields.items()
                      if get_origin(field.annotation) is Literal}  # fmt: skip


@pytest.mark.parametrize("verb", [(), ("run",), ("status",), ("dlq", "list"), ("console",)], ids=" ".join)
def test_help_takes_little_time(verb: tuple[str, ...]) -> None:
    """Compared with an import of click at the same time, because other tests slow both down."""
    times = [(cpu_seconds("-m", "reexpand", *verb, "--help"), cpu_seconds("-c", "import click")) for _ in range(5)]
    command, click_import = map(min, zip(*times, strict=True))
    assert command < CLICK_IMPORTS * click_import


def cpu_seconds(*arguments: str) -> float:
    """Return the CPU time of an interpreter."""
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("match",), "--dialect [lite|mqtt|nats|wamp]"),
        (("match",), "--policy [exact|"),
        (("run",), "--delivery [exactly-once|at-least-once]"),
        (("run",), "--log-format [text|json]"),
        (("tail",), "--op [ADD|REMOVE]"),
        (("plan",), "--kind [subscription|group|topic]"),
        (("send", "subscription"), "--action ["),
        (("dlq", "list"), "--reason [not-json|"),
    ],
    ids=str,
)
def test_an_option_with_few_values_shows_them(words: tuple[str, ...], option: str) -> None:
    """And another value is refused with them."""
    shown = " ".join(CliRunner().invoke(main, [*words, "--help"], terminal_width=1_000).output.split())
    assert option in shown
    refused = CliRunner().invoke(main, [*words, option.partition(" ")[0], "other"])
    assert (refused.exit_code, "'other' is not one of" in refused.output) == (2, True)
