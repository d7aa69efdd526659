// Comparison of a pattern and a topic by segment.

import { h, shown } from "./dom.js";

const cell = (text) => (text === null ? h("span", { class: "muted" }, "(none)") : shown(text));

export function steps(given, label) {
  if (!given.length) return null;
  return h("div", { class: "steps", role: "list", "aria-label": label },
    given.map((step) => h("div", { role: "listitem", class: `step ${step.fits ? "fits" : "differs"}` },
      h("code", { class: "of-pattern" }, cell(step.pattern)), h("code", {}, cell(step.topic)),
      h("span", { class: "verdict" }, `${step.fits ? "\u2713" : "\u2717"} ${step.verdict}`))));
}
