// Selection of a parent topic. The tab remembers it between views and reloads.

import { ask } from "./api.js";
import { field, h, hash, link, plural, shown } from "./dom.js";

export const SEPARATORS = [["__", "__ (lite)"], ["/", "/ (mqtt)"], [".", ". (nats, wamp)"]];

const KEY = "parent";

// Browsers that block storage raise an error.
function remembered() {
  try { return sessionStorage.getItem(KEY); } catch { return null; }
}

export function remember(parent) {
  try { sessionStorage.setItem(KEY, parent); } catch { /* the next view begins with the largest parent */ }
}

// Return the parents, and the parent to show: the given one, the last one of this tab, or the one with most topics.
export async function currentParent(given, signal) {
  const { parents, total } = await ask("parents", { size: 500 }, signal);
  const last = remembered();
  const isKnown = total > parents.length || parents.some((each) => each.parent === last);
  const largest = parents.reduce((most, each) => (each.topics > most.topics ? each : most), { parent: "", topics: 0 }).parent;
  const parent = given || (last && isKnown ? last : largest);
  if (given) remember(given);
  return { parents, parent, total };
}

// Explain why a view without parents is empty, and reload the view when the first row arrives.
export async function nothingYet(title, signal, on) {
  const found = await ask("state", {}, signal);
  const trouble = found.error || found.trouble;
  on("changes", () => dispatchEvent(new Event("hashchange")));
  const placed = h("p", {});
  ask("placed", {}, signal).then(({ parents }) => {
    if (parents && parents.length) placed.append("The job has groups or clients of ", ...parents.flatMap((parent, at) => [at ? ", " : "",
      link(hash("groups", { parent }), shown(parent)), " (", link(hash("topics", { parent, show: "unreceived" }), "topics without receivers"), ")"]), ".");
  }).catch(() => {}); // the view has been left
  return [h("h1", {}, title), h("div", { class: "nothing" }, h("p", {}, trouble ? `The updates cannot be read: ${trouble}`
    : !found.ready ? "The updates are being read."
      : ["No client receives a topic yet. Create a topic and subscribe a client with ", h("code", {}, "reexpand send"), ", or run ",
        h("code", {}, "reexpand demo --keep"), " for sample data. The first topic appears here automatically."]), placed)];
}

// Return the parent to show, a select field, and the separator of the parent.
export async function parentChoice(given, signal, onchange) {
  const { parents, parent, total } = await currentParent(given, signal);
  const found = parents.find((each) => each.parent === parent);
  const options = parents.map((each) => h("option", { value: each.parent, selected: each.parent === parent }, `${each.parent} (${plural(each.topics, "topic")})`));
  if (parent && !found) options.unshift(h("option", { value: parent, selected: true }, parent));
  const list = h("select", { onchange: () => { remember(list.value); onchange(list.value); } }, options);
  return {
    parent,
    separator: found ? found.separator : "__",
    total,
    control: field("Parent", list, total > parents.length ? h("small", {}, `${parents.length} of ${total} parents; open others by address`) : null),
  };
}
