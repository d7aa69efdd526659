// Selection of a parent topic. The tab remembers it between views and reloads.

import { ask } from "./api.js";
import { count, field, h, hash, link, plural, say, shown, wait } from "./dom.js";

export const SEPARATORS = [["__", "__ (lite)"], ["/", "/ (mqtt)"], [".", ". (nats, wamp)"]];

const KEY = "parent";

// Browsers that block storage raise an error.
function remembered() {
  try { return sessionStorage.getItem(KEY); } catch { return null; }
}

export function remember(parent) {
  try { sessionStorage.setItem(KEY, parent); } catch { /* the next view begins with the largest parent */ }
}

const SIZE = 500;

// Return the parent to show: the given one, the last one of this tab, or the largest. Also the first parents, the number of all, and
// what is known of the parent to show; null if it has no topic with receivers.
export async function currentParent(given, signal) {
  const { parents, total } = await ask("parents", { size: SIZE }, signal);
  const of = async (parent) => {
    const known = parents.find((each) => each.parent === parent);
    if (known || total <= parents.length || !parent) return known || null;
    const { parents: [first] } = await ask("parents", { search: parent, how: "begins", size: 1 }, signal);
    return first && first.parent === parent ? first : null;
  };
  if (given) {
    remember(given);
    return { parents, parent: given, found: await of(given), total };
  }
  const last = await of(remembered());
  const largest = parents.reduce((most, each) => (each.topics > most.topics ? each : most), { parent: "", topics: 0 });
  const found = last || largest;
  return { parents, parent: found.parent, found, total };
}

// A field to select a parent, and one to search parents if they do not all fit into it. `add` adds parents without receivers.
export function parentFields(label, { parents, parent, total }, signal, complain, onchange) {
  const list = h("select", { onchange: () => { remember(list.value); onchange(list.value); } });
  const option = ({ parent: value, topics }, chosen) => h("option", { value, selected: value === chosen }, topics === undefined ? value : `${value} (${plural(topics, "topic")})`);
  const show = (some) => {
    const chosen = list.value || parent;
    const all = some.some((each) => each.parent === chosen) || !chosen ? some : [{ parent: chosen }, ...some];
    list.replaceChildren(...all.map((each) => option(each, chosen)));
  };
  show(parents);
  if (total <= parents.length) {
    return { fields: [field(label, list)], add: (names) => {
      const others = names.filter((each) => ![...list.options].some(({ value }) => value === each));
      if (others.length) list.append(h("optgroup", { label: "without receivers" }, others.map((each) => option({ parent: each }))));
    } };
  }
  const place = h("small", { role: "status" });
  const tell = (found) => say(place, found.parents.length < found.total || found.searched < found.names
    ? `${count(found.parents.length)} of ${plural(found.total, "parent")}${found.searched < found.names ? `; only ${count(found.searched)} of ${count(found.names)} were searched` : ""}`
    : plural(found.total, "parent"));
  let asked = 0;
  const find = wait(150, async () => {
    const mine = asked += 1;
    try {
      const found = await ask("parents", { search: search.value, size: SIZE }, signal);
      if (mine !== asked) return; // a later search is pending
      show(found.parents);
      tell(found);
    } catch (error) { complain(error); }
  });
  const search = h("input", { type: "search", spellcheck: "false", autocomplete: "off", oninput: find,
    onkeydown: (event) => { if (event.key === "Enter") event.preventDefault(); } }); // it is in a form
  tell({ parents, total });
  return { fields: [field(label, list, place), field("Parents that contain", search)], add: () => {} };
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

// Return the parent to show, the fields to select another one, and the separator of its topics. `addIdle` asks the job for parents
// without receivers.
export async function parentChoice(given, signal, complain, onchange) {
  const current = await currentParent(given, signal);
  const { fields, add } = parentFields("Parent", current, signal, complain, onchange);
  let isAsked = false;
  return {
    parent: current.parent,
    separator: current.found ? current.found.separator : "__",
    control: fields,
    addIdle: () => {
      if (isAsked) return;
      isAsked = true;
      ask("placed", {}, signal).then((found) => add(found.parents || [])).catch(() => {}); // the view has been left
    },
  };
}
