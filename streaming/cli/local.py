"""`reexpand local`, `topics`, `jars` and `demo`: a local broker, the job's topics, downloads, and a demo."""

import json
import shlex
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import click

from streaming.cli.root import HOME, connection_options, json_option, kept, main, settings, verbose_option
from streaming.errors import BrokerFailed, TopicsUnusable


@main.command()
@click.option(
    "--home", type=click.Path(file_okay=False, path_type=Path), default=HOME / "kafka", show_default=True,
    help="Data folder of the broker, which later starts use again.",
)  # fmt: skip
@click.option("--rocketmq", is_flag=True, help="Also run a RocketMQ 5.5: name server, broker and proxy.")
@click.option(
    "--parent", "parents", multiple=True, metavar="NAME",
    help="Parent of lite topics to create in RocketMQ; repeatable.",
)  # fmt: skip
@click.option(
    "--group", "groups", multiple=True, metavar="NAME=PARENT",
    help="Consumer group of a parent to create in RocketMQ; repeatable.",
)  # fmt: skip
@json_option("Print addresses, data folder and checkpoint as one JSON object.")
@verbose_option
def local(*, home: Path, rocketmq: bool, parents: tuple[str, ...], groups: tuple[str, ...], as_json: bool) -> None:
    """Run a single-node broker with the job's Kafka topics.

    Kafka listens on a free port of this machine, and keeps its address across restarts. With --rocketmq it also runs a
    RocketMQ. Ctrl-C or SIGTERM stops both, with exit code 0.

    The suggested checkpoint is next to the data folder. A checkpoint belongs to one broker, and the job fails if it
    finds records of another broker. RocketMQ's data is there too. Its jars (106 MB) are downloaded on first use.

    \b
    Example:
      reexpand local &
      reexpand run --bootstrap-servers 127.0.0.1:PORT --checkpoint .reexpand/kafka-checkpoint
      reexpand local --rocketmq --parent orders --group billing=orders
    """
    from streaming.kafka import specs
    from streaming.kafka.topics import create_topics
    from streaming.local.broker import Broker

    pairs = [group.partition("=") for group in groups]
    wrong = [name for name, _, parent in pairs if not name or not parent]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=PARENT.", param_hint="--group")
    if not rocketmq and (parents or groups):
        raise click.UsageError("--parent and --group require --rocketmq.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(home))
        address, checkpoint = broker.bootstrap_servers, f"{home}-checkpoint"
        facts = {"bootstrapServers": address, "data": str(home), "checkpoint": checkpoint}
        if rocketmq:
            from streaming.rocketmq import admin
            from streaming.rocketmq.server import RocketMQ

            server = stack.enter_context(RocketMQ(Path(f"{home}-rocketmq")))
            admin.create(server.broker, parents, {name: parent for name, _, parent in pairs})
            facts |= {"nameServer": server.name_server, "endpoints": server.endpoints}
        job = settings(bootstrap_servers=address, checkpoint=checkpoint)
        create_topics(address, [*specs.specs(job), specs.answers_spec(job)])
        if as_json:
            click.echo(json.dumps(facts))
        else:
            command = shlex.join(["reexpand", "run", "--bootstrap-servers", address, "--checkpoint", checkpoint])
            click.echo(f"Kafka listens on {address}; data in {home}; Ctrl-C stops it.")
            click.echo(f"Next: {command}")
            if rocketmq:
                click.echo(f"RocketMQ: name server {facts['nameServer']}, proxy {facts['endpoints']}.")
        sys.stdout.flush()
        try:
            broker.wait()
        except KeyboardInterrupt:
            return
        raise BrokerFailed(f"The broker ended unexpectedly. Its log is {broker.log_file}.")


@main.group(invoke_without_command=True)
@connection_options
@click.option(
    "--partitions", type=click.IntRange(1, 100_000), default=1, show_default=True,
    help="Number of partitions of each new Kafka topic.",
)  # fmt: skip
@click.option("--fix", is_flag=True, help="Fix unsuitable settings of existing Kafka topics.")
@json_option("Print one JSON object.")
@click.pass_context
def topics(ctx: click.Context, *, partitions: int, fix: bool, as_json: bool) -> None:
    """Create the Kafka topics that the job reads and writes.

    Use `list` or `show` for the lite topics in the running job.

    Unsuitable settings of existing topics are shown; --fix changes them. The inputs need unlimited retention, no
    compaction, and the broker's timestamps. The updates need compaction. Topic names come from the environment
    (REEXPAND_UPDATES, ...), as for `reexpand run`.

    Exit code 1 if Kafka does not answer, rejects a request, or has a topic with an unsuitable cleanup policy.

    \b
    Example:
      reexpand topics --bootstrap-servers broker:9092 --partitions 4
      reexpand topics --bootstrap-servers broker:9092 --fix
      reexpand topics list --bootstrap-servers broker:9092 --parent orders
    """
    if ctx.invoked_subcommand is not None:
        if any(kept("bootstrap_servers", "kafka_options").values()):
            raise click.UsageError(f"put the options after the verb: reexpand topics {ctx.invoked_subcommand} ...")
        return
    from streaming.kafka import specs
    from streaming.kafka import topics as kafka
    from streaming.kafka.options import for_librdkafka

    job = settings()
    client = for_librdkafka(job)
    wanted = specs.specs(job, partitions)
    names = [spec.name for spec in wanted]
    address = job.bootstrap_servers
    existing = kafka.configurations(address, names, client_options=client)
    flaws = {name: specs.flaws(job, name, found) for name, found in existing.items()}
    if fix:
        changes = {name: {flaw.option: flaw.wanted for flaw in found} for name, found in flaws.items() if found}
        kafka.configure(address, changes, client_options=client)
    created = kafka.create_topics(address, wanted, client_options=client)
    try:
        created += kafka.create_topics(address, [specs.answers_spec(job)], client_options=client)
        names.append(job.answers)
    except TopicsUnusable as error:
        click.echo(f"{job.answers}: the job cannot answer `reexpand explain` and similar verbs: {error}", err=True)
    if as_json:
        found = {name: [flaw._asdict() for flaw in flaws.get(name, [])] for name in names}
        shown = {name: {"created": name in created, "fixed": fix, "flaws": found[name]} for name in names}
        click.echo(json.dumps(shown))
        return
    for name in names:
        click.echo(f"{name}: {'created' if name in created else 'exists'}")
        for flaw in flaws.get(name, []):
            if fix:
                click.echo(f"  {flaw.option}: {flaw.found}, now {flaw.wanted}")
            else:
                click.echo(f"  {flaw.option}={flaw.found} instead of {flaw.wanted}: {flaw.consequence} (--fix)")


@main.command()
@click.option(
    "--archive", is_flag=True,
    help="Also archive Spark's Java classes with a short run of the job, so later runs start faster.",
)  # fmt: skip
@verbose_option
def jars(*, archive: bool) -> None:
    """Download the jars of Spark and Kafka; compile the sink.

    `reexpand run`, `local` and `demo` use the jars in the cache. Jars in the cache are not downloaded again.

    \b
    Example:
      reexpand jars --archive
    """
    from rich.console import Console
    from rich.progress import Progress

    from streaming.cli.run import provide_java
    from streaming.examples.job import rehearse
    from streaming.local import classes
    from streaming.local import jars as local_jars
    from streaming.local.java import find_java

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("downloading jars", total=None, start=False)

        def show(done: int, of: int, jar: str) -> None:
            progress.update(task, completed=done, total=of, description=f"downloading {jar}")

        local_jars.fetch(progress=show)
    classes.sink()
    if archive:
        file = classes.archive_file(find_java().home, [*local_jars.spark(), classes.sink()])
        if not file.exists():
            provide_java()
            with Console(stderr=True).status("running a job to record the Java classes that it loads"):
                rehearse(file)
        click.echo(f"The archive of Spark's Java classes is {file}.")
    click.echo(f"The jars of Spark's Kafka connector and of the broker are in {local_jars.LOCAL.folder}.")


@main.command()
@click.option(
    "--home", type=click.Path(file_okay=False, path_type=Path), default=HOME, show_default=True,
    help="Folder for the logs of the demo.",
)  # fmt: skip
@click.option("--cluster", is_flag=True, help="Run the job on a Spark cluster of two workers, and kill one of them.")
@click.option("--rocketmq", is_flag=True, help="Run on RocketMQ 5.5, with pattern consumers.")
@click.option("--keep", is_flag=True, help="Keep broker and job running at the end, until Ctrl-C.")
@json_option("Print one JSON object per line.")
@verbose_option
@click.pass_context
def demo(ctx: click.Context, *, home: Path, cluster: bool, rocketmq: bool, keep: bool, as_json: bool) -> None:
    """Run a scenario on a local broker and the real job.

    The demo shows the updates of the job, and compares them with the expected updates at the end. Exit code 0 if they
    are equal, 1 if not.

    With --rocketmq, tenants send to lite topics of a RocketMQ, and pattern consumers receive the messages while the job
    is killed and restarted. The received messages are compared. It needs the extras job and rocketmq.

    \b
    Example:
      reexpand demo
      reexpand demo --cluster
      reexpand demo --rocketmq
      reexpand demo --json | jq .
    """
    if rocketmq and (cluster or keep):
        raise click.UsageError("--rocketmq cannot be combined with --cluster or --keep.")
    if rocketmq:
        from streaming.rocketmq import demo as lite_demo

        ctx.exit(lite_demo.run(home, as_json=as_json))
    from streaming.examples import demo as runner
    from streaming.examples import screen

    ctx.exit(runner.run(home, screen.Screen(as_json=as_json), keep=keep, on_cluster=cluster))
