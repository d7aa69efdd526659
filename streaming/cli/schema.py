"""`reexpand schema`: schemas of all records."""
# ruff: noqa: PLC0415 - a verb imports its own needs

from pathlib import Path

import click
from click.shell_completion import CompletionItem


def _complete(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from streaming.records import schemas

    return [CompletionItem(name) for name in schemas.names() if name.startswith(incomplete)]


@click.command()
@click.argument("name", required=False, shell_complete=_complete)
@click.option("--avro", is_flag=True, help="Print the Avro schema instead of the JSON Schema.")
@click.option("--json", "as_json", is_flag=True, help="Without NAME: print the list as JSON.")
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path),
    help="Without NAME: write all schemas to this folder, JSON Schema as .json and Avro as .avsc.",
)  # fmt: skip
def schema(name: str | None, *, avro: bool, as_json: bool, folder: Path | None) -> None:
    """Print the schema of a record, or all names.

    Schemas are JSON Schema (draft 2020-12). The name `asyncapi` is the AsyncAPI
    document of all topics and records. Exit code 2 when there is no such schema.

    \b
    Example:
      reexpand schema                   # the names
      reexpand schema update > update.json
      reexpand schema --avro update
      reexpand schema asyncapi
      reexpand schema --folder schemas  # all files
    """
    from streaming.records import schemas

    if name is None:
        if folder is None:
            _list(as_json=as_json)
        else:
            _write(folder)
        return
    if folder is not None:
        raise click.UsageError("--folder writes all schemas: leave NAME out")
    form = "avro" if avro else "json"
    if name not in schemas.names(form):
        kind = "Avro schema" if avro else "schema"
        raise click.UsageError(f"there is no {kind} {name!r}; `reexpand schema` lists all")
    click.echo(schemas.content(name, form), nl=False)


def _write(folder: Path) -> None:
    """Write all files, and print their paths."""
    from streaming.records import schemas

    folder.mkdir(parents=True, exist_ok=True)
    for name, content in schemas.files().items():
        (folder / name).write_bytes(content)
        click.echo(folder / name)


def _list(*, as_json: bool) -> None:
    """Print the names, each with its description."""
    import orjson

    from streaming.records import schemas

    found = {}
    for name in schemas.names():
        content = orjson.loads(schemas.content(name))
        found[name] = content.get("description") or content["info"]["description"]
    if as_json:
        click.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2))
        return
    width = max(map(len, found))
    for name, description in found.items():
        click.echo(f"{name:{width}}  {description}")
