// Groups of a parent: their settings and clients from the job, and their subscribers from the updates.

import { count, h, hash, shown, spaced } from "./dom.js";
import { nothingYet, parentChoice } from "./parents.js";
import { Pages, searchFields } from "./rows.js";

const REFRESH = 5000; // for as long the server keeps an answer of the job

const unknown = () => h("span", { class: "muted" }, "unknown");

export async function groups({ root, parameters, signal, complain, on }) {
  const choice = await parentChoice(parameters.get("parent"), signal, complain, (parent) => { location.hash = hash("groups", { parent }); });
  const parent = choice.parent;
  if (!parent) {
    root.replaceChildren(...await nothingYet("Groups", signal, on));
    return;
  }
  const asked = { search: parameters.get("search") || "", how: parameters.get("how") || "contains" };
  const basis = h("p", { class: "note", role: "status" });
  const list = new Pages({
    caption: `Groups of ${parent}`, heads: ["Group", "Mode", "Exclusive", "Selector", "Quota, topics", "Clients", "Subscribers"], question: "groups",
    numbers: ["Quota, topics", "Clients", "Subscribers"],
    sorts: { Group: "group", Mode: "mode", Exclusive: "exclusive", Selector: "selector", "Quota, topics": "quota", Clients: "clients", Subscribers: "subscribers" },
    parameters: { parent, ...asked }, list: "groups", signal, complain, empty: "No group of this parent fits. Clear the search, or select another parent.",
    cells: (row) => {
      const isKnown = row.mode !== null;
      return [
        h("span", {}, h("a", { href: hash("clients", { parent, search: row.group }) }, shown(row.group)),
          row.boundTo ? h("small", { class: "part" }, "bound to ", shown(row.boundTo)) : null,
          row.event ? h("small", { class: "part" }, "set by ", row.event) : isKnown ? h("small", { class: "part" }, "no group event") : null),
        isKnown ? row.mode : unknown(), isKnown ? row.exclusive ? "yes" : "no" : unknown(),
        isKnown ? row.selector ? h("code", {}, shown(row.selector)) : "none" : unknown(),
        isKnown ? row.quota === null ? "none" : count(row.quota) : unknown(),
        row.clients === null ? unknown() : count(row.clients), count(row.subscribers),
      ];
    },
  });
  const tell = (found) => { basis.textContent = found.basis; };
  const load = () => list.load().then(tell);
  const { fields } = searchFields("Groups", asked, () => {
    Object.assign(list.parameters, asked);
    list.start = 0;
    return load();
  }, complain);
  root.replaceChildren(h("h1", {}, "Groups"), h("div", { class: "tools" }, choice.control, fields),
    h("section", { class: "panel wide", "aria-label": "Groups" }, list.element),
    basis, h("p", { class: "note" }, "Mode: how entries of clients are read, wildcard (patterns) or literal (names). Clients: known to the job. Subscribers: clients, or separate subscriptions of them, that receive a topic."));
  list.parameters.source = "updates"; // at once; the job may take seconds
  await load();
  delete list.parameters.source;
  choice.addIdle();
  await load();
  const refresh = spaced(REFRESH, () => load().catch(complain));
  on("changes", ({ changes }) => { if (changes.some((change) => change.parent === parent)) refresh(); });
}
