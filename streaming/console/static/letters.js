// Dead letters, newest first.

import { ask } from "./api.js";
import { count, field, h, name, plural, select, shown, when } from "./dom.js";

const SIZE = 25;

export async function letters({ root, parameters, state, signal, complain, every }) {
  if (!state.hasLetters) {
    root.replaceChildren(h("h1", {}, "Dead letters"), h("p", { class: "nothing" }, "This console does not read dead letters."));
    return;
  }
  let reason = parameters.get("reason") || "";
  let start = 0;
  let drawn = "";
  const list = h("ul", { class: "plain letter-list" });
  const figures = h("p", { class: "muted", role: "status" });
  const chooser = h("div");
  const before = h("button", { type: "button", onclick: () => turn(-SIZE) }, "Previous");
  const behind = h("button", { type: "button", onclick: () => turn(SIZE) }, "Next");
  const pager = h("div", { class: "pager" }, before, behind);
  const turn = (by) => { start = Math.max(0, start + by); drawn = ""; load().catch(complain); };

  async function load() {
    const found = await ask("letters", { reason, start, size: SIZE }, signal);
    const text = JSON.stringify(found);
    if (text === drawn) return;
    drawn = text;
    const counts = Object.entries(found.counts).sort(([, one], [, other]) => other - one);
    const all = counts.reduce((sum, [, each]) => sum + each, 0);
    if (!chooser.contains(document.activeElement)) {
      chooser.replaceChildren(field("Reason", select([["", `all (${count(all)})`], ...counts.map(([key, each]) => [key, `${key} (${count(each)})`])], reason,
        (value) => { reason = value; start = 0; drawn = ""; load().catch(complain); })));
    }
    figures.textContent = found.error ? `Dead letters cannot be read: ${found.error}`
      : `${plural(all, "dead letter")}${found.cut ? `; ${plural(found.cut, "older one is", "older ones are")} not shown` : ""}.`;
    const open = new Set([...list.querySelectorAll("details[open]")].map((each) => each.dataset.id));
    list.replaceChildren(...found.letters.map((letter) => h("li", {},
      h("details", { "data-id": letter.id, open: open.has(letter.id) },
        h("summary", {}, h("span", { class: "reason-tag" }, letter.reason), h("span", { class: "message" }, shown(letter.message)), when(letter.time)),
        h("dl", {}, h("dt", {}, "Id"), h("dd", {}, name(letter.id)),
          h("dt", {}, "Entry"), h("dd", {}, `${plural(letter.bytes || 0, "byte")}${letter.encoding === "base64" ? ", as base64" : ""}${letter.truncated ? ", the beginning" : ""}`,
            h("pre", {}, shown(letter.original))),
          h("dt", {}, "Replay"), h("dd", {}, letter.fix
            ? [`First ${letter.fix}. Then run `, h("code", {}, `reexpand dlq replay '${letter.id}'`)]
            : "The entry itself is invalid and would be rejected again. Fix its producer, and send a valid one."))))));
    before.disabled = start === 0;
    behind.disabled = start + SIZE >= found.total;
    pager.hidden = found.total <= SIZE;
  }

  root.replaceChildren(h("h1", {}, "Dead letters"), h("div", { class: "tools" }, chooser), figures, list, pager);
  await load();
  every(2000, () => load().catch(complain));
}
