"""`reexpand status`: one screen about a running job, with an exit code for cron."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import click

from streaming.cli import context, output
from streaming.cli.root import Seconds, combined, json_option, main
from streaming.errors import Unanswered
from streaming.monitor.health import Condition

if TYPE_CHECKING:
    from streaming.config import Address

LAGGING: Final = 3
"""Exit code if the job starts, stops, or lags."""

UNHEALTHY: Final = 4
"""Exit code if a micro-batch hangs, or Kafka does not answer."""

_CODES: Final = {
    Condition.READY: 0,
    Condition.STANDING_BY: 0,
    Condition.STARTING: LAGGING,
    Condition.CATCHING_UP: LAGGING,
    Condition.STOPPING: LAGGING,
}
"""Exit codes of the conditions; others are unhealthy."""

_WITH_QUERY: Final = (Condition.CATCHING_UP, Condition.READY, Condition.HUNG)
"""Conditions in which unread records are in a micro-batch."""

_ANY_HOST: Final = ("0.0.0.0", "::")  # noqa: S104 - names of all interfaces, which are asked at the loopback one
_HEALTH: Final = {"state", "reason", "uptime_seconds", "lag_records", "lag_seconds"}
"""Fields of `/healthz` that are shown."""

_LONGEST: Final = 64 * 1024**2
"""Maximum size in bytes of a response that is read."""

_COUNTERS: Final = {"records": "records", "updates": "updates", "dead_letters": "dead letters"}
_BATCHES: Final = "micro_batches_total"
_REASONS: Final = 3
"""Number of reasons of dead letters in the text."""

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


class _Scrape(NamedTuple):
    """Values of `/metrics` at a time, by name and labels."""

    at: float
    values: Mapping[str, list[tuple[Mapping[str, str], float]]]

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a response."""
        from prometheus_client.parser import text_string_to_metric_families as families

        values: dict[str, list[tuple[Mapping[str, str], float]]] = {}
        for sample in (sample for family in families(text) for sample in family.samples):
            values.setdefault(sample.name, []).append((sample.labels, sample.value))
        return cls(time.monotonic(), values)

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the series with these labels."""
        found = self.values.get(f"reexpand_{name}", [])
        return sum(value for own, value in found if labels.items() <= own.items())

    def by(self, name: str, label: str) -> dict[str, float]:
        """Return the positive values of a metric by a label, the largest first."""
        found = {own[label]: value for own, value in self.values.get(f"reexpand_{name}", []) if value}
        return dict(sorted(found.items(), key=lambda each: -each[1]))

    def within(self, name: str, share: float) -> float | None:
        """Return the smallest bound of a histogram with this share of the values below; None if there is none."""
        buckets = [(float(own["le"]), count) for own, count in self.values.get(f"reexpand_{name}_bucket", [])]
        bounds = [bound for bound, count in buckets if count and count >= share * buckets[-1][1]]
        return bounds[0] if bounds and bounds[0] != float("inf") else None


class JobServer(NamedTuple):
    """HTTP server of a job."""

    address: "Address"
    timeout: float

    @classmethod
    def of(cls, http: str, timeout: float) -> Self:
        """Return the server at the address of the running verb's option or context.

        Raises:
            click.BadParameter: it is no address.
        """
        return cls(_address(str(context.option("http", "http", http))), timeout)

    def health(self) -> dict[str, Any]:
        """Return the body of `/healthz`."""
        _, text = self.get("/healthz")
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not found.keys() >= _HEALTH:
            raise Unanswered(
                f"the server at {self.address} is not a reexpand job, or refuses this host name; "
                f"/healthz is {text[:60]!r}"
            )
        return found

    def scrape(self) -> _Scrape:
        """Return the metrics."""
        return _Scrape.of(self.get("/metrics")[1])

    def get(self, path: str, token: str | None = None) -> tuple[int, str]:
        """Return the status and the text of a response."""
        from http.client import HTTPConnection, HTTPException

        connection = None
        try:
            connection = HTTPConnection(*self.address, timeout=self.timeout)
            access = {} if token is None else {"Authorization": f"Bearer {token}"}
            connection.request("GET", path, headers={"Accept": "text/plain", **access})
            response = connection.getresponse()
            return response.status, response.read(_LONGEST).decode(errors="replace")
        except (OSError, HTTPException, UnicodeError) as error:  # the latter for a host that is no name
            raise Unanswered(
                f"no job answers at {self.address}: {error}. Check that it runs, and that --http is its `http` setting"
            ) from None
        finally:
            if connection is not None:
                connection.close()


def _address(text: str) -> "Address":
    """Return the address at which this machine reaches a job.

    Raises:
        click.BadParameter: it is no address.
    """
    from streaming.config import parse_address

    try:
        found = parse_address(text.removeprefix("http://").removesuffix("/"))
    except ValueError:
        found = None
    if found is None or not found.port:
        raise click.BadParameter(f"expected HOST:PORT, such as 127.0.0.1:9464, got {text!r}", param_hint="--http")
    return found._replace(host="127.0.0.1") if found.host in _ANY_HOST else found


def _code(health: Mapping[str, Any], max_lag: float | None) -> int:
    code = _CODES.get(health["state"], UNHEALTHY)
    return LAGGING if not code and max_lag is not None and (health.get("lag_seconds") or 0) > max_lag else code


def figures(first: _Scrape | None, last: _Scrape) -> dict[str, Any]:
    """Return the figures of a job, with rates between two scrapes.

    Rates are None while the first micro-batch runs: it counts its records at its end.
    """

    def rate(name: str, **labels: str) -> float | None:
        if first is None or not first.total(_BATCHES):
            return None
        return max(0.0, last.total(name, **labels) - first.total(name, **labels)) / (last.at - first.at)

    def mean(phase: str) -> float:
        count = last.total("micro_batch_seconds_count", phase=phase)
        return last.total("micro_batch_seconds_sum", phase=phase) / count if count else 0.0

    phases = last.by("micro_batch_seconds_sum", "phase")
    ended = last.total("micro_batch_timestamp_seconds")
    inputs = last.by("input_lag_records", "input")
    return {
        **{
            name: {"total": int(last.total(f"{name}_total")), "per_second": rate(f"{name}_total")} for name in _COUNTERS
        },
        "dead_letters_by_reason": {name: int(count) for name, count in last.by("dead_letters_total", "reason").items()},
        "lag_by_input": {name: int(count) for name, count in inputs.items()},
        "micro_batches": int(last.total(_BATCHES)),
        "last_commit_seconds_ago": max(0.0, time.time() - ended) if ended else None,
        "micro_batch_seconds": {phase: mean(phase) for phase in phases},
        "latency_seconds": {f"p{share}": last.within("latency_seconds", share / 100) for share in (50, 99)},
        **{name: int(last.total(name)) for name in ("topics", "clients", "parents")},
        "memory_bytes": {name: int(size) for name, size in last.by("memory_bytes", "process").items()},
        "version": next((own["version"] for own, _ in last.values.get("reexpand_build_info", [])), None),
    }


def _age(seconds: float) -> str:
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min {seconds % _MINUTE:.0f} s"
    if seconds < _DAY:
        return f"{seconds // _HOUR:.0f} h {seconds % _HOUR // _MINUTE:.0f} min"
    return f"{seconds // _DAY:.0f} d {seconds % _DAY // _HOUR:.0f} h"


def screen(health: Mapping[str, Any], figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about a job."""
    yield f"{health['state']}: {health['reason']}"
    for label, text in _rows(health, figures):
        yield f"  {label:<13} {text}"


def _rows(health: Mapping[str, Any], figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and text of each line after the first."""
    yield "uptime", f"{_age(health['uptime_seconds'])}, version {figures['version']}"
    lag = "not known yet"
    if health["lag_records"] is not None:
        inputs = ", ".join(f"{name} {count:,}" for name, count in figures["lag_by_input"].items())
        lag = f"{health['lag_seconds']:g} s, {health['lag_records']:,} unread" + (f": {inputs}" if inputs else "")
    yield "lag", lag
    reasons = [f"{name} {count:,}" for name, count in figures["dead_letters_by_reason"].items()]
    more = [f"{len(reasons) - _REASONS} more"] if len(reasons) > _REASONS else []
    for name, label in _COUNTERS.items():
        found = figures[name]
        rate = "" if found["per_second"] is None else f", {found['per_second']:,.1f} per second"
        rate = rate if figures["micro_batches"] else ", no rate yet"
        why = ", ".join([*reasons[:_REASONS], *more]) if name == "dead_letters" else ""
        yield label, f"{found['total']:,}{rate}" + (f": {why}" if why else "")
    phases = {name: f"{seconds:.3f} s" for name, seconds in figures["micro_batch_seconds"].items()}
    if phases:
        ago = _age(figures["last_commit_seconds_ago"])
        yield "micro-batch", f"{phases.pop('total', '?')} on average of {figures['micro_batches']:,}, last {ago} ago"
        slowest = list(phases.items())[:_REASONS]
        yield "", ", ".join(f"{name} {seconds}" for name, seconds in slowest)
    else:
        is_running = health["lag_records"] and health["state"] in _WITH_QUERY
        yield "micro-batch", "the first one is running" if is_running else "none yet"
    if figures["latency_seconds"]["p99"] is not None:
        bounds = figures["latency_seconds"]
        yield "latency", f"50% within {bounds['p50']:g} s, 99% within {bounds['p99']:g} s"
    yield "size", ", ".join(f"{name} {figures[name]:,}" for name in ("topics", "clients", "parents"))
    if figures["memory_bytes"]:
        yield "memory", ", ".join(f"{name} {size // 10**6:,} MB" for name, size in figures["memory_bytes"].items())


job_options = combined(
    context.context_option,
    click.option(
        "--http", default="127.0.0.1:9464", show_default=True, metavar="HOST:PORT", envvar="REEXPAND_HTTP",
        help="Address of the job's metrics and health. Environment variable: REEXPAND_HTTP.",
    ),
    click.option(
        "--timeout", type=Seconds(0.1), default=5, show_default=True, metavar="SECONDS",
        help="Timeout of each response.",
    ),
)  # fmt: skip
"""Options of the verbs that read a job's metrics, for `JobServer.of`."""


@main.command()
@job_options
@click.option(
    "--max-lag", type=Seconds(0), metavar="SECONDS",
    help="Also exit with 3 if an unread record is older. [default: when the job counts as catching up, at 60]",
)  # fmt: skip
@click.option(
    "--interval", type=Seconds(0), default=2, show_default=True, metavar="SECONDS",
    help="Time over which rates are measured; 0: no rates.",
)  # fmt: skip
@json_option("Print one JSON object.")
@click.pass_context
def status(
    ctx: click.Context, *, http: str, max_lag: float | None, interval: float, timeout: float, as_json: bool
) -> None:
    """Show the condition, lag, rates and micro-batches of a job.

    Reads /healthz and /metrics of the job, which need no token. Counts are since the start of the process; rates are
    measured during --interval, and null until the first micro-batch has ended; times of micro-batches are means since
    the start.

    Exit code 0 if the job is ready or a standby, 1 if no job answers, 2 if an option is invalid, 3 if the job starts,
    stops or lags, 4 if a micro-batch hangs or Kafka does not answer.

    \b
    Example:
      reexpand status
      reexpand status --http job.example:9464 --max-lag 30 --json
    """
    job = JobServer.of(http, timeout)
    health = job.health()
    first = job.scrape() if interval else None
    time.sleep(interval)
    found = figures(first, job.scrape())
    code = _code(health, max_lag)
    if as_json:
        output.json_line({**health, "healthy": not code, **found})
    else:
        for text in screen(health, found):
            output.line(text)
    ctx.exit(code)
