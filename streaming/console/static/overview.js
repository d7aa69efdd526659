// State of the job and of the relation at a glance.

import { ask } from "./api.js";
import { count, h, hash, plural, shown } from "./dom.js";
import { feed } from "./feed.js";
import { client, head } from "./rows.js";

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

function ratesCard(job, seconds) {
  const since = Math.floor(Date.now() / 1000) - WINDOW;
  const recent = seconds.filter((each) => each.at >= since);
  const sum = (key) => recent.reduce((total, each) => total + each[key], 0);
  const worst = Math.max(-1, ...recent.map((each) => (each.worst_ms === null ? -1 : each.worst_ms)));
  const inputs = Object.entries((job && job.rates) || {});
  return card("Per second", list([
    ...inputs.map(([topic, rate]) => [shown(topic), decimal(rate)]),
    ["Updates ADD", decimal(sum("adds") / WINDOW)], ["Updates REMOVE", decimal(sum("removes") / WINDOW)],
    worst < 0 ? null : ["Maximum latency", `${decimal(worst / 1000)} s`],
  ]), muted(`Inputs: average of 20 s, as read by the job. Updates: average of ${WINDOW} s.`));
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

function table(title, heads, rows, empty) {
  return h("section", { class: "wide", "aria-label": title }, h("h2", {}, title), rows.length
    ? h("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": `Table: ${title}` },
      h("table", {}, h("thead", {}, h("tr", {}, heads.map(([text, isNumber]) => head(text, isNumber)))),
        h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, at) => h("td", { class: heads[at][1] ? "number" : null }, cell)))))))
    : muted(empty));
}

const shards = (found) => table("Slowest shards, last five minutes",
  [["Parent"], ...["Shard", "Longest wait, s", "Topics", "Clients", "State, KB"].map((text) => [text, true])],
  (found || []).map((each) => [h("a", { href: hash("topics", { parent: each.parent }) }, shown(each.parent)), count(each.shard),
    each.seconds.toFixed(2), count(each.topics), count(each.clients), count(Math.ceil(each.bytes / 1000))]),
  found ? "No event was applied in the last five minutes." : "Only the console of the job shows shards. This console is standalone and reads only Kafka.");

const busiest = (found) => table("Most expensive clients, by updates since this console started",
  [["Client"], ["Group"], ["Parent"], ["Updates", true], ["Topics", true]],
  found.map((each) => [client(each, each.parent), shown(each.group), shown(each.parent), count(each.updates), count(each.topics)]),
  "No updates since this console started. Of later updates, the last 2,000 are counted.");

export async function overview({ root, state, signal, complain, every, on }) {
  let known = feed.last() || state;
  let found = null;
  const cards = h("div", { class: "cards" });
  const tables = h("div", {});
  const draw = () => {
    if (!found || root.querySelector("a:focus, .scrolls:focus")) return; // keep the focus
    cards.replaceChildren(jobCard(found.job), lagCard(found.job), ratesCard(found.job, found.seconds), lettersCard(found.letters), relationCard(known));
    tables.replaceChildren(shards(found.shards), busiest(found.busiest));
  };
  const load = async () => { found = await ask("overview", {}, signal); draw(); };
  root.replaceChildren(h("h1", {}, "Overview"), cards, tables);
  on("state", (given) => { known = given; draw(); });
  await load();
  every(2000, () => load().catch(complain));
}
