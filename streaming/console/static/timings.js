// Micro-batches of the job if available, and rates and latencies as this console measures them.

import { ask } from "./api.js";
import { clock, count, h, hour, plural } from "./dom.js";
import { key, plot } from "./plot.js";

const seconds = (value) => `${value >= 10 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2)} s`;

export async function timings({ root, signal, complain, every }) {
  const batches = h("section", { "aria-label": "Micro-batches" });
  const rates = h("section", { "aria-label": "Updates per second" });
  const late = h("section", { "aria-label": "Latency" });
  let drawn = "";
  const width = () => root.clientWidth - 36;

  function drawBatches(found) {
    if (found === null) {
      batches.replaceChildren(h("h2", {}, "Micro-batches"), h("p", { class: "note" }, "Only the console of the job shows micro-batches. This console is standalone and reads only Kafka."));
      return;
    }
    const names = [...new Set(found.flatMap((batch) => Object.keys(batch.phases)))];
    const kind = (phase) => `phase-${Math.min(names.indexOf(phase), 6)}`;
    batches.replaceChildren(h("h2", {}, "Micro-batches"), names.length ? key([...names.map((phase) => [kind(phase), phase]), ["rest", "the rest"]]) : "", plot({
      label: "Duration of micro-batches", width: width(), least: 0.1, unit: seconds,
      bars: found.slice(-120).map((batch) => {
        const known = Object.values(batch.phases).reduce((sum, each) => sum + each, 0);
        const rest = Math.max(0, batch.seconds - known);
        return {
          label: hour(batch.started_ms),
          parts: [...names.map((phase) => ({ value: batch.phases[phase] || 0, kind: kind(phase) })), { value: rest, kind: "rest" }],
          text: `micro-batch ${count(batch.number)} at ${clock(batch.started_ms)}: ${seconds(batch.seconds)}, ${plural(batch.records, "record")}, ${plural(batch.updates, "update")}` +
            names.map((phase) => `, ${phase} ${seconds(batch.phases[phase] || 0)}`).join(""),
        };
      }),
    }));
  }

  function drawSeconds(found) {
    const now = Math.floor(Date.now() / 1000);
    const by = new Map(found.map((each) => [each.at, each]));
    const range = Array.from({ length: 120 }, (_, at) => now - 119 + at);
    const bars = range.map((at) => ({ at, ...(by.get(at) || { adds: 0, removes: 0, worst_ms: null }) }));
    rates.replaceChildren(h("h2", {}, "Updates per second"), key([["add", "ADD"], ["remove", "REMOVE"]]), plot({
      label: "Updates per second, over two minutes", width: width(), least: 4, unit: (value) => count(Math.round(value)),
      bars: bars.map((bar) => ({ label: hour(bar.at * 1000), parts: [{ value: bar.adds, kind: "add" }, { value: bar.removes, kind: "remove" }],
        text: `${hour(bar.at * 1000)} UTC: ${count(bar.adds)} ADD, ${count(bar.removes)} REMOVE` })),
    }));
    late.replaceChildren(h("h2", {}, "Latency", h("small", {}, " from the event's record to this console, maximum per second")), plot({
      label: "Maximum latency per second, over two minutes", width: width(), least: 0.1, unit: seconds,
      bars: bars.map((bar) => ({ label: hour(bar.at * 1000), parts: [{ value: (bar.worst_ms || 0) / 1000, kind: "latency" }],
        text: bar.worst_ms === null ? `${hour(bar.at * 1000)} UTC: no update` : `${hour(bar.at * 1000)} UTC: ${seconds(bar.worst_ms / 1000)}` })),
    }));
  }

  async function load() {
    if (root.querySelector(".plot:focus, .plot:hover")) return;
    const found = await ask("timings", {}, signal);
    const text = JSON.stringify(found.batches);
    if (text !== drawn) drawBatches(found.batches);
    drawn = text;
    drawSeconds(found.seconds);
  }
  root.replaceChildren(h("h1", {}, "Timings", h("small", { class: "muted" }, " in UTC")), batches, rates, late);
  await load();
  every(1000, () => load().catch(complain));
}
