// State of the job and of the relation at a glance.

import { ask } from "./api.js";
import { count, h, hash, plural, shown } from "./dom.js";
import { feed } from "./feed.js";
import { client, Table } from "./rows.js";

const WINDOW = 60;
const decimal = (value) => (value >= 10 || value === 0 ? count(Math.round(value)) : value.toFixed(value >= 1 ? 1 : 2));

function duration(seconds) {
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]].map(([unit, size], at, all) =>
    [unit, Math.floor((at ? seconds % all[at - 1][1] : seconds) / size)]);
  const first = parts.findIndex(([, value]) => value > 0);
  return first < 0 ? "0 s" : parts.slice(first, first + 2).filter(([, value]) => value).map(([unit, value]) => `${value} ${unit}`).join(" ");
}

const card = (title, ...content) => h("section", { "aria-label": title }, h("h2", {}, title), ...content);
const list = (entries) => h("dl", {}, entries.filter(Boolean).map(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]));
const muted = (text) => h("p", { class: "muted" }, text);

function jobCard(job) {
  if (!job) return card("Job", muted("This console does not observe the job."));
  return card("Job", h("p", {}, h("span", { class: `state ${job.level}` }, job.state)), h("p", { class: job.level === "bad" ? "bad" : "muted" }, shown(job.reason)),
    list([
      job.uptime_seconds === undefined ? null : ["Uptime", duration(job.uptime_seconds)],
      Number.isInteger(job.micro_batch) ? ["Micro-batch", count(job.micro_batch)] : null,
    ]));
}

const lagCard = (job) => card("Lag", job && Number.isInteger(job.lag_records)
  ? list([["Unread records", count(job.lag_records)], ["Oldest waits", `${decimal(job.lag_seconds)} s`]])
  : muted("The lag is not known: no job has committed its positions, or this user may not read them."));

// Rates of the inputs are null until the job has committed a micro-batch, and absent if this console cannot read them.
function readCard(job) {
  const title = "Records read per second";
  if (!job || job.rates === undefined) return card(title, muted("The rates are not known, for the same reason as the lag."));
  if (job.rates === null) return card(title, muted(job.lag_records && job.level !== "bad" && job.micro_batch === null ? "No rate yet: the first micro-batch is running." : "No rate yet."));
  return card(title, list(Object.entries(job.rates).map(([topic, rate]) => [shown(topic), decimal(rate)])), muted("Average of 20 s, by Kafka topic."));
}

function updatesCard(known, seconds) {
  if (!known.ready) return card("Updates per second", muted("No rate yet: the updates are being read."));
  const since = Math.floor(Date.now() / 1000) - WINDOW;
  const recent = seconds.filter((each) => each.at >= since);
  const sum = (key) => recent.reduce((total, each) => total + each[key], 0);
  const worst = Math.max(-1, ...recent.map((each) => (each.worst_ms === null ? -1 : each.worst_ms)));
  return card("Updates per second", list([
    ["ADD", decimal(sum("adds") / WINDOW)], ["REMOVE", decimal(sum("removes") / WINDOW)],
    worst < 0 ? null : ["Maximum latency", `${decimal(worst / 1000)} s`],
  ]), muted(`Average and maximum of ${WINDOW} s. Latency: from the event to this console.`));
}

function lettersCard(letters) {
  if (!letters) return card("Dead letters", muted("No dead letters are read."));
  if (letters.error) return card("Dead letters", h("p", { class: "bad" }, shown(letters.error)));
  const reasons = Object.entries(letters.counts).sort((one, other) => other[1] - one[1]);
  return card("Dead letters", reasons.length
    ? [list(reasons.map(([reason, number]) => [h("a", { href: hash("letters", { reason }) }, reason), count(number)])),
      letters.cut ? muted(`and ${plural(letters.cut, "older record")} that this console does not keep`) : null]
    : muted("None."));
}

const relationCard = (state) => card("Relation", list([
  [h("a", { href: hash("topics") }, "Topics with receivers"), count(state.topics)],
  [h("a", { href: hash("clients") }, "Subscribers"), count(state.subscribers)], ["Rows", count(state.rows)],
]));

// A section with a table, or with a sentence if it is empty. Its headings stay, and keep the focus.
class Section {
  constructor(title, columns) {
    this.table = new Table(`Table: ${title}`, columns);
    this.nothing = muted("");
    this.element = h("section", { class: "wide", "aria-label": title }, h("h2", {}, title), this.table.element, this.nothing);
  }

  show(items, empty) {
    this.table.show(items);
    this.table.element.hidden = !items.length;
    this.nothing.textContent = items.length ? "" : empty;
  }
}

const number = (text, key, cell = (each) => count(key(each))) => [text, key, cell, true];

const shards = () => new Section("Slowest shards, last five minutes", [
  ["Parent", (each) => each.parent, (each) => h("a", { href: hash("topics", { parent: each.parent }) }, shown(each.parent))],
  number("Shard", (each) => each.shard), number("Longest wait, s", (each) => each.seconds, (each) => each.seconds.toFixed(2)),
  number("Topics", (each) => each.topics), number("Clients", (each) => each.clients), number("State, KB", (each) => Math.ceil(each.bytes / 1000)),
]);

const busiest = () => new Section("Most expensive clients, by updates since this console started", [
  ["Client", (each) => each.client, (each) => client(each, each.parent)], ["Group", (each) => each.group, (each) => shown(each.group)],
  ["Parent", (each) => each.parent, (each) => shown(each.parent)], number("Updates", (each) => each.updates), number("Topics", (each) => each.topics),
]);

export async function overview({ root, state, signal, complain, every, on }) {
  let known = feed.last() || state;
  let found = null;
  const cards = h("div", { class: "cards" });
  const [slowest, dearest] = [shards(), busiest()];
  const draw = () => {
    if (!found || root.querySelector("a:focus")) return; // keep the focus
    cards.replaceChildren(jobCard(found.job), lagCard(found.job), readCard(found.job), updatesCard(known, found.seconds), lettersCard(found.letters), relationCard(known));
    slowest.show(found.shards || [], found.shards ? "No event was applied in the last five minutes."
      : "Only the console of the job shows shards. This console is standalone and reads only Kafka.");
    dearest.show(found.busiest, "No updates since this console started. Of later updates, the last 2,000 are counted.");
  };
  const load = async () => { found = await ask("overview", {}, signal); draw(); };
  root.replaceChildren(h("h1", {}, "Overview"), cards, slowest.element, dearest.element);
  on("state", (given) => { known = given; draw(); });
  await load();
  every(2000, () => load().catch(complain));
}
