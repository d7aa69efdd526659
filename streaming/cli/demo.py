"""`reexpand demo`: a scenario on a real broker and the real job."""

from pathlib import Path

import click

from streaming.cli.root import HOME, verbose_option


@click.command()
@click.option(
    "--home", type=click.Path(file_okay=False, path_type=Path), default=HOME, show_default=True,
    help="Folder for the logs of the demo.",
)  # fmt: skip
@click.option("--cluster", is_flag=True, help="Run the job on a Spark cluster of two workers, and kill one half way.")
@click.option("--rocketmq", is_flag=True, help="Play on a real RocketMQ 5.5, with consumers of patterns.")
@click.option("--keep", is_flag=True, help="Leave broker and job running at the end, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@verbose_option
@click.pass_context
def demo(ctx: click.Context, *, home: Path, cluster: bool, rocketmq: bool, keep: bool, as_json: bool) -> None:
    """Play a scenario on a real broker and the real job.

    The updates of the job are shown as they come, and compared with the expected ones at the end. Exit code 0 when they
    are exactly these, 1 when they are not.

    With --rocketmq, tenants send to lite topics of a RocketMQ, and consumers of patterns receive their messages; the
    job is killed on the way. What was received is compared. It needs the extras job and rocketmq.

    \b
    Example:
      reexpand demo
      reexpand demo --cluster
      reexpand demo --rocketmq
      reexpand demo --json | jq .
    """
    if rocketmq and (cluster or keep):
        raise click.UsageError("--rocketmq goes with neither --cluster nor --keep.")
    if rocketmq:
        from streaming.rocketmq import demo  # noqa: PLC0415 - a verb imports its own needs

        ctx.exit(demo.run(home, as_json=as_json))
    from streaming.demo import runner, screen  # noqa: PLC0415 - a verb imports its own needs

    output = screen.JsonScreen() if as_json else screen.TextScreen()
    ctx.exit(runner.run(home, output, keep=keep, on_cluster=cluster))
