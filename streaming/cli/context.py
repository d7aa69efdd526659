"""Contexts: named files of settings in the user's configuration folder, such as `~/.config/reexpand/prod.toml`."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from streaming.errors import ConfigInvalid

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_FILES: Final = ("groups", "http_token_file", "kafka_options")
"""Settings that are paths of files. In a context, relative paths start at its folder."""

_KEY: Final = "reexpand.context"


class Context(NamedTuple):
    """Settings of a context, and the file that contains them."""

    file: Path
    values: dict[str, Any]


def folder() -> Path:
    """Return the folder of the contexts."""
    given = os.environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification requires relative paths to be ignored.
    return (Path(given) if given.startswith("/") else Path.home() / ".config") / "reexpand"


def _names() -> list[str]:
    return sorted(file.stem for file in folder().glob("*.toml"))


def _complete(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in _names() if name.startswith(incomplete)]


def _keep(ctx: click.Context, _option: click.Parameter, name: str | None) -> None:
    if name is not None:  # the verb has the option too, and must not forget a context that is before the verb
        ctx.meta[_KEY] = name


def context_option(command: F) -> F:
    """Add the option for a context, whose name is kept for `chosen`."""
    return click.option(
        "--context", metavar="NAME", expose_value=False, callback=_keep, shell_complete=_complete,
        help="Named settings: the file NAME.toml in ~/.config/reexpand.",
    )(command)  # fmt: skip


def name() -> str | None:
    """Return the name of the running verb's context, or None."""
    running = click.get_current_context(silent=True)
    return None if running is None else running.meta.get(_KEY)


def option(parameter: str, setting: str, given: T) -> Any:
    """Return the value of an option of the running verb: from the command line, the context, or `given`."""
    found = chosen()
    source = click.get_current_context().get_parameter_source(parameter)
    return given if found is None or source is ParameterSource.COMMANDLINE else found.values.get(setting, given)


def chosen() -> Context | None:
    """Return the context of the running verb, or None.

    Raises:
        ConfigInvalid: it does not exist, or is invalid. The message contains no value.
    """
    import tomllib

    given = name()
    if given is None:
        return None
    file = folder() / f"{given}.toml"
    if given not in _names():
        known = ", ".join(_names())
        raise ConfigInvalid(
            f"there is no context {given!r}: "
            + (f"the contexts are {known}" if known else f"create {file}, with settings such as bootstrap_servers")
        )
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigInvalid(f"{file} is not valid TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigInvalid(f"{file} cannot be read: {reason}") from None
    paths = {key: str(file.parent / values[key]) for key in _FILES if isinstance(values.get(key), str)}
    return Context(file, {**values, **paths})
