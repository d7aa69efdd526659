"""`reexpand subscriptions`, `groups`, `clients`, `topics list` and `topics show`: lists from the running job."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from streaming.cli import output
from streaming.cli.ask import asking_options, check_pattern, inspector, lines_option
from streaming.cli.local import topics
from streaming.cli.root import COUNT, Seconds, combined, dialect_option, main

if TYPE_CHECKING:
    from streaming.inspect import Inspector, Page

_PAGE = 1_000
"""Number of items per response."""


class _List(NamedTuple):
    """Options of a list."""

    parent: str | None
    pattern: str | None
    dialect: str
    limit: int
    everything: bool
    as_json: bool
    watch: float | None
    client: str | None = None
    group: str | None = None

    def show(self, pages: "Callable[[Inspector, _List], Iterator[Page[Any]]]", line: Callable[[Any], str]) -> None:
        """Print the list, repeatedly with --watch."""
        check_pattern(self.pattern, self.dialect, "--pattern")
        with inspector() as job:
            while True:
                if self.watch is not None and not self.as_json:
                    click.clear()
                self._print(pages(job, self), line)
                if self.watch is None:
                    return
                time.sleep(self.watch)

    def filter(self) -> Any:
        """Return the filter for the job."""
        from streaming.inspect import Filter

        return Filter(self.pattern, self.dialect, self.client, self.group)

    @property
    def page(self) -> int:
        """Number of items per request."""
        return _PAGE if self.everything else min(_PAGE, self.limit)

    def _print(self, pages: "Iterator[Page[Any]]", line: Callable[[Any], str]) -> None:
        from streaming.inspect import wording

        shown, total, more = 0, 0, False
        for page in pages:
            items = page.items if self.everything else list(islice(page.items, self.limit - shown))
            for item in items:
                output.line(wording.as_json(item) if self.as_json else line(item))
            shown += len(items)
            total = max(total, page.total)
            if not self.everything and shown >= self.limit:
                more = page.cursor is not None or len(items) < len(page.items)
                break
        if not self.as_json:
            click.echo(wording.list_end(shown, total, more=more), err=True)


def _show_details(
    facts: Iterable[Any],
    pages: "Iterable[tuple[str, Iterator[Page[Any]]]]",
    line: Callable[[Any], str],
    *,
    as_json: bool,
) -> None:
    """Print the facts about a client or group, and then its items on each parent."""
    from streaming.inspect import wording

    for fact in facts:
        output.line(wording.as_json(fact) if as_json else line(fact))
    for parent, found in pages:
        for item in (item for page in found for item in page.items):
            shown = {"parent": parent, **asdict(item)}
            output.line(wording.as_json(shown) if as_json else f"  {parent}: {line(item)}")


def _parent(job: "Inspector", given: str | None) -> str:
    """Return the given parent, or the only one, and show its name."""
    if given is not None:
        return given
    only = job.only_parent()
    output.line(f"parent topic {only}", err=True)
    return only


_list_options = combined(
    click.option("--parent", help="Parent topic."),
    click.option("--pattern", help="Only items with an equal or matching name."),
    dialect_option("Dialect of --pattern."),
    click.option("--limit", type=COUNT, default=100, show_default=True, help="Maximum of shown items."),
    click.option("--all", "everything", is_flag=True, help="Show all items."),
    lines_option,
    click.option("--watch", type=Seconds(0.2), help="Refresh the list at this interval in seconds."),
    asking_options,
)
_who_options = combined(
    click.option("--client", help="Only items of this client."),
    click.option("--group", help="Only items of this group."),
)


@topics.command("list")
@_list_options
def list_topics(**given: Any) -> None:
    """List the lite topics of a parent, in order of creation.

    Without --parent, the job must have groups and clients on one parent only.

    \b
    Example:
      reexpand topics list
      reexpand topics list --parent orders --pattern 'eu__**' --limit 20
    """
    from streaming.inspect import wording

    def pages(job: "Inspector", chosen: _List) -> "Iterator[Page[Any]]":
        return job.topics(_parent(job, chosen.parent), chosen.filter(), limit=chosen.page)

    _List(**given).show(pages, wording.topic)


@topics.command("show")
@click.argument("topic")
@click.option("--parent", help="Parent topic. [default: the only parent with groups or clients]")
@lines_option
@asking_options
@click.pass_context
def show_topic(ctx: click.Context, *, topic: str, parent: str | None, as_json: bool) -> None:
    """Show a lite topic and its receivers.

    Exit code 1 if the topic does not exist.

    \b
    Example:
      reexpand topics show eu__1__paid --parent orders
    """
    from streaming.inspect import wording

    with inspector() as job:
        parent = _parent(job, parent)
        found = job.topic(parent, topic)
    output.lines(wording.as_json(found) if as_json else wording.topic_details(topic, parent, found))
    ctx.exit(0 if found.topic else 1)


@main.group()
def subscriptions() -> None:
    """Show the subscriptions of clients.

    \b
    Example:
      reexpand subscriptions list --parent orders --group billing
      reexpand subscriptions show c1
    """


@subscriptions.command("list")
@_who_options
@_list_options
def list_subscriptions(**given: Any) -> None:
    """List the entries of clients: names and patterns.

    --pattern filters the entries. Entries of several shards are listed once per shard.

    \b
    Example:
      reexpand subscriptions list --parent orders --client c1
    """
    _show_subscriptions(_List(**given))


@subscriptions.command("show")
@click.argument("client")
@click.option("--group", help="Group of the client.")
@_list_options
def show_subscription(**given: Any) -> None:
    """List the entries of a client on all its parents.

    \b
    Example:
      reexpand subscriptions show c1 --group billing
    """
    _show_subscriptions(_List(**given))


def _show_subscriptions(chosen: _List) -> None:
    """List the subscriptions on the given parent, on the parents of the client or group, or on the only parent."""
    from streaming.inspect import wording

    def pages(job: "Inspector", chosen: _List) -> "Iterator[Page[Any]]":
        if chosen.parent is not None:
            parents = {chosen.parent}
        elif chosen.client is None and chosen.group is None:
            parents = {_parent(job, None)}
        else:
            parents = {parent for lease in job.leases(chosen.client, chosen.group) for parent in lease.parents}
        for parent in sorted(parents):
            yield from job.subscriptions(parent, chosen.filter(), limit=chosen.page)

    chosen.show(pages, wording.subscription)


@main.group()
def clients() -> None:
    """Show the clients in the running job.

    \b
    Example:
      reexpand clients list --parent orders
      reexpand clients show c1
    """


@clients.command("list")
@_who_options
@_list_options
def list_clients(**given: Any) -> None:
    """List the clients of a parent; without --parent, all clients with their parents.

    \b
    Example:
      reexpand clients list --group billing
    """
    from streaming.inspect import wording

    def pages(job: "Inspector", chosen: _List) -> "Iterator[Page[Any]]":
        if chosen.parent is not None:
            return job.clients(chosen.parent, chosen.filter(), limit=chosen.page)
        return wording.chosen(job.leases(chosen.client, chosen.group), "client", chosen.filter())

    _List(**given).show(pages, wording.client)


@clients.command("show")
@click.argument("client")
@click.option("--group", help="Group of the client. [default: all of its groups]")
@lines_option
@asking_options
@click.pass_context
def show_client(ctx: click.Context, *, client: str, group: str | None, as_json: bool) -> None:
    """Show a client: its lease, its parents, and its entries on each parent.

    Exit code 1 if the job has no such client.

    \b
    Example:
      reexpand clients show c1 --group billing
    """
    from streaming.inspect import Filter, wording

    with inspector() as job:
        leases = job.leases(client, group)
        for lease in leases:
            chosen = Filter(client=client, group=lease.group)
            pages = ((parent, job.clients(parent, chosen)) for parent in lease.parents)
            _show_details([lease], pages, wording.client, as_json=as_json)
    if not leases:
        click.echo(f"the job has no client {client!r}", err=True)
    ctx.exit(0 if leases else 1)


@main.group()
def groups() -> None:
    """Show the groups in the running job.

    \b
    Example:
      reexpand groups list --parent orders
      reexpand groups show billing
    """


@groups.command("list")
@click.option("--group", help="Only this group.")
@_list_options
def list_groups(**given: Any) -> None:
    """List the groups of a parent with their attributes; without --parent, the parents that groups are bound to.

    \b
    Example:
      reexpand groups list --parent orders
    """
    from streaming.inspect import wording

    def pages(job: "Inspector", chosen: _List) -> "Iterator[Page[Any]]":
        if chosen.parent is not None:
            return job.groups(chosen.parent, chosen.filter(), limit=chosen.page)
        return wording.chosen(job.bindings(chosen.group), "group", chosen.filter())

    _List(**given).show(pages, wording.group)


@groups.command("show")
@click.argument("group")
@lines_option
@asking_options
@click.pass_context
def show_group(ctx: click.Context, *, group: str, as_json: bool) -> None:
    """Show a group: its binding, its attributes, and its number of clients on each parent.

    Exit code 1 if the job has no such group.

    \b
    Example:
      reexpand groups show billing
    """
    from streaming.inspect import Filter, wording

    with inspector() as job:
        bindings, leases = job.bindings(group), job.leases(group=group)
        parents = {binding.parent for binding in bindings} | {parent for lease in leases for parent in lease.parents}
        pages = ((parent, job.groups(parent, Filter(group=group))) for parent in sorted(parents))
        _show_details(bindings, pages, wording.group, as_json=as_json)
    if not parents:
        click.echo(f"the job has no group {group!r}: there is no group event, and no client in session", err=True)
    ctx.exit(0 if parents else 1)
