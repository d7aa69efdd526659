// Live changes.

import { clock, count, field, h, hash, plural, shown } from "./dom.js";
import { feed } from "./feed.js";
import { cause, client, head, replaceRows } from "./rows.js";

const SHOWN = 200;
const kept = [];
let missed = 0;

feed.on("changes", (found) => {
  missed += found.missed;
  kept.unshift(...found.changes.slice().reverse());
  kept.length = Math.min(kept.length, SHOWN * 5);
});

export async function live({ root, on }) {
  let paused = false;
  const line = (seen) => h("tr", { class: seen.op.toLowerCase() },
    h("td", { "data-head": "Time" }, h("time", {}, clock(seen.seen_ms))),
    h("td", { "data-head": "Update" }, h("span", { class: `op ${seen.op.toLowerCase()}` }, seen.op)),
    h("td", { "data-head": "Client" }, client({ ...seen, client: seen.client }, seen.parent)),
    h("td", { "data-head": "Topic" }, h("a", { class: "name", href: hash("topics", { parent: seen.parent, topic: seen.topic }) }, shown(seen.topic)), h("small", { class: "muted" }, " ", shown(seen.parent))),
    h("td", { "data-head": "Cause" }, cause(seen.cause)),
    h("td", { "data-head": "" }, h("a", { class: "why", href: hash("explain", { parent: seen.parent, group: seen.group, client: seen.client, part: seen.part, topic: seen.topic }), "aria-label": `Why: ${seen.client}, ${seen.topic}` }, "Why?")));
  const body = h("tbody");
  const figures = h("p", { class: "muted", role: "status" });
  const search = h("input", { type: "search", spellcheck: "false", autocomplete: "off", oninput: () => draw() });
  const table = h("table", {}, h("caption", { class: "unseen" }, "Changes, newest first"),
    h("thead", {}, h("tr", {}, ["Time", "Update", "Client", "Topic", "Cause", ""].map((text) => head(text)))), body);
  const draw = () => {
    const wanted = search.value;
    const found = kept.filter((seen) => !wanted || [seen.topic, seen.client, seen.group, seen.parent].some((text) => text.includes(wanted)));
    replaceRows(body, found.slice(0, SHOWN).map(line));
    table.hidden = !found.length;
    figures.textContent = kept.length
      ? `${plural(kept.length, "change")} since this page was opened${missed ? `; ${count(missed)} more were skipped because they arrived too fast` : ""}.`
      : "No changes since this page was opened. One appears when a topic or a subscription changes.";
  };
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Resume" : "Pause";
    if (!paused) draw();
  } }, "Pause");
  root.replaceChildren(h("h1", {}, "Live"), h("div", { class: "tools" }, field("Contains", search), pause), figures,
    h("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": "Changes" }, table));
  draw();
  on("changes", () => { if (!paused) draw(); });
}
