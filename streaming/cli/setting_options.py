"""Options of a verb for each setting of the job, so help and configuration agree.

The settings are read from the source of `streaming.config`: because of pydantic, an import of it takes twice as long as
the rest of a help.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

_SOURCE: Final = Path(__file__).parents[1] / "config.py"


class JobCommand(click.Command):
    """Command with an option for each setting of the job."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options of the command and of all settings."""
        *own, help_option = super().get_params(ctx)
        return [*own, *_options(), help_option]


class Setting(NamedTuple):
    """A setting, as in the source.

    Attributes:
        default: the default; None if there is none, or none that a help can show.
        values: the values of an enumeration.
    """

    name: str
    annotation: str
    default: Any
    description: str
    values: tuple[str, ...]


@cache
def settings() -> tuple[Setting, ...]:
    """Return the settings of the job."""
    return tuple(_read(ast.parse(_SOURCE.read_text(encoding="utf-8"))))


def _read(tree: ast.Module) -> Iterator[Setting]:
    literals: dict[str, tuple[str, ...]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Literal["):
            literals[ast.unparse(node.targets[0])] = ast.literal_eval(ast.unparse(node.value)[len("Literal") :])
        if not (isinstance(node, ast.ClassDef) and node.name == "Settings"):
            continue
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.value, ast.Call):
                keywords = {keyword.arg: keyword.value for keyword in field.value.keywords}
                default = next(iter(field.value.args), keywords.get("default"))
                annotation = ast.unparse(field.annotation)
                yield Setting(
                    ast.unparse(field.target),
                    annotation,
                    None if default is None else ast.literal_eval(default),
                    ast.literal_eval(keywords["description"]),
                    tuple(literals.get(annotation, ())),
                )


@cache
def _options() -> tuple[click.Option, ...]:
    # Values remain strings. `config` checks them like values from other sources.
    options = []
    for name, annotation, default, description, values in settings():
        help_text = description + (f" [default: {default}]" if default is not None and default is not False else "")
        option = f"--{name.replace('_', '-')}"
        is_number = any(each in annotation for each in ("int", "Int", "float"))
        form: dict[str, Any] = {"metavar": "SIZE" if name.endswith("_bytes") else "N" if is_number else "TEXT"}
        if name == "shards":
            form = {"multiple": True, "metavar": "PARENT=N"}
        elif annotation == "bool":
            option = f"{option}/--no-{name.replace('_', '-')}"
            form = {"is_flag": True}
        elif values:
            form = {"type": click.Choice(values)}
        options.append(click.Option([option], default=None, help=help_text, **form))
    return tuple(options)
