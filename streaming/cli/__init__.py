"""The `reexpand` command: one module for each group of verbs."""

from streaming.cli import (
    advise,
    backup,
    cloudevents,
    compact_inputs,
    console,
    demo,
    dlq,
    local,
    match,
    quarantine,
    rebuild,
    run,
    schema,
    verify,
    watch,
)
from streaming.cli.inspect import explain, lists, plan, send, tail
from streaming.cli.root import main

__all__ = ["main"]

lists.add_to(local.topics)

for _command in (
    run.run,
    demo.demo,
    local.local,
    local.topics,
    local.jars,
    watch.watch_kafka,
    watch.watch_rocketmq,
    advise.advise,
    verify.verify,
    backup.backup,
    backup.restore,
    rebuild.rebuild,
    compact_inputs.compact_inputs,
    dlq.dlq,
    quarantine.quarantine,
    schema.schema,
    explain.explain,
    plan.plan,
    send.send,
    tail.tail,
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
