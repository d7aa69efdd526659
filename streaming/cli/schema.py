"""`reexpand schema`: schemas of all records."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import click
from click.shell_completion import CompletionItem


def _complete(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from streaming.schemas import files

    return [CompletionItem(name) for name in files.names() if name.startswith(incomplete)]


@click.command()
@click.argument("name", required=False, shell_complete=_complete)
@click.option("--avro", is_flag=True, help="Print the Avro schema instead of the JSON Schema.")
@click.option("--json", "as_json", is_flag=True, help="Without NAME: print the list as JSON.")
def schema(name: str | None, *, avro: bool, as_json: bool) -> None:
    """Print the schema of a record, or all names.

    Schemas are JSON Schema (draft 2020-12). The name `asyncapi` is the AsyncAPI
    document of all topics and records. Exit code 2 when there is no such schema.

    \b
    Example:
      reexpand schema                   # the names
      reexpand schema update > update.json
      reexpand schema --avro update
      reexpand schema asyncapi
    """
    from streaming.schemas import files

    if name is None:
        _list(as_json=as_json)
        return
    try:
        content = files.stored(name, "avro" if avro else "json")
    except FileNotFoundError:
        form = "Avro schema" if avro else "schema"
        raise click.UsageError(f"there is no {form} {name!r}; `reexpand schema` lists all") from None
    click.echo(content, nl=False)


def _list(*, as_json: bool) -> None:
    """Print the names, each with its first sentence."""
    import orjson

    from streaming.schemas import files

    found = {}
    for name in files.names():
        content = orjson.loads(files.stored(name))
        found[name] = content.get("description") or content["info"]["description"]
    if as_json:
        click.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2))
        return
    width = max(map(len, found))
    for name, description in found.items():
        click.echo(f"{name:{width}}  {description}")
