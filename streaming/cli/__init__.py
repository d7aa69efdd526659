"""The `reexpand` command: one module for each group of verbs."""

from streaming.cli import (
    advise,
    backup,
    cloudevents,
    compact_inputs,
    demo,
    dlq,
    local,
    match,
    rebuild,
    run,
    schema,
    verify,
    watch,
)
from streaming.cli.root import main

__all__ = ["main"]

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
    schema.schema,
    cloudevents.cloudevents,
    match.match,
    match.expand,
    match.validate,
):
    main.add_command(_command)
