"""The `reexpand` command, with a module for each group of verbs."""

from streaming.cli import (
    advise,
    backup,
    cloudevents,
    console,
    dlq,
    local,
    match,
    quarantine,
    run,
    schema,
    verify,
    watch,
)
from streaming.cli.inspect import ask, lists, send
from streaming.cli.root import main

__all__ = ["main"]

lists.add_to(local.topics)

for _command in (
    run.run,
    local.demo,
    local.local,
    local.topics,
    local.jars,
    watch.watch_kafka,
    watch.watch_rocketmq,
    advise.advise,
    verify.verify,
    backup.backup,
    backup.restore,
    verify.rebuild,
    backup.compact_inputs,
    dlq.dlq,
    quarantine.quarantine,
    schema.schema,
    ask.explain,
    ask.plan,
    send.send,
    ask.tail,
    lists.subscriptions,
    lists.clients,
    lists.groups,
    console.console,
    cloudevents.cloudevents,
    match.match,
    match.expand,
    match.validate,
):
    main.add_command(_command)
