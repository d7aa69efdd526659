// Subscribers of a parent, and the topics of a chosen subscriber.

import { count, h, hash, link, name, plural, reach, shown, spaced } from "./dom.js";
import { nothingYet, parentChoice } from "./parents.js";
import { cause, Pages, patterns, searchFields } from "./rows.js";

export async function clients({ root, parameters, signal, complain, on }) {
  const choice = await parentChoice(parameters.get("parent"), signal, complain, (parent) => { location.hash = hash("clients", { parent }); });
  const parent = choice.parent;
  if (!parent) {
    root.replaceChildren(...await nothingYet("Clients", signal, on));
    return;
  }
  let chosen = Object.fromEntries(["group", "client", "part"].map((each) => [each, parameters.get(each)]));
  const asked = { search: parameters.get("search") || "", how: parameters.get("how") || "contains" };
  const address = (row) => hash("clients", { parent, ...asked, how: asked.how === "contains" ? "" : asked.how, group: row.group, client: row.client, part: row.part });
  const isChosen = (row) => row.group === chosen.group && row.client === chosen.client && (row.part || "") === (chosen.part || "");
  const detail = h("section", { class: "detail", "aria-label": "Topics of the client" });
  const list = new Pages({
    caption: `Subscribers of ${parent}`, heads: ["Client", "Group", "Topics"], question: "subscribers", numbers: ["Topics"],
    sorts: { Client: "client", Group: "group", Topics: "topics" },
    parameters: { parent, ...asked }, list: "subscribers", signal, complain, empty: "No client or group of this parent fits. Clear the search, or select another parent.",
    cells: (row) => [
      h("span", { class: "client" },
        h("a", { href: address(row), "aria-current": isChosen(row) ? "true" : null, onclick: (event) => choose(event, row) }, shown(row.client)),
        row.part ? h("small", { class: "part" }, shown(row.part)) : null),
      shown(row.group), count(row.topics),
    ],
  });
  const { fields } = searchFields("Clients or groups", asked, () => {
    history.replaceState(null, "", address(chosen));
    Object.assign(list.parameters, asked);
    list.start = 0;
    return list.load();
  }, complain);
  const choose = (event, row) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a new tab or window
    event.preventDefault();
    chosen = row;
    history.pushState(null, "", address(row));
    list.table.querySelectorAll("[aria-current]").forEach((each) => each.removeAttribute("aria-current"));
    event.currentTarget.setAttribute("aria-current", "true");
    showTopics().catch(complain);
  };
  let pages = null;
  const headline = h("p", { class: "muted" });
  const tell = (found) => { headline.textContent = plural(found.total, "topic"); };
  async function showTopics() {
    const { group, client, part } = chosen;
    if (client === null) {
      detail.replaceChildren(h("h2", {}, "Topics"), h("p", { class: "muted" }, "Choose a client to see its topics."));
      return;
    }
    pages = new Pages({
      caption: `Topics of ${client}`, heads: ["Topic", "Entries", "Cause", ""], question: "received", sorts: { Topic: "topic", Entries: "entries", Cause: "cause" },
      parameters: { parent, group, client, ...(part ? { part } : {}) }, list: "rows", signal, complain,
      empty: "The client receives no topic of this parent.",
      cells: (row) => [
        h("a", { class: "name", href: hash("topics", { parent, topic: row.topic }) }, shown(row.topic)), patterns(row), cause(row.cause),
        h("a", { class: "why", href: hash("explain", { parent, group, client, part, topic: row.topic }),
          "aria-label": `Why does ${client} receive ${row.topic}?` }, "Why?"),
      ],
    });
    detail.replaceChildren(h("h2", {}, name(client), h("small", {}, " in group "), name(group)), part ? h("p", {}, "subscription ", name(part)) : "",
      headline, pages.element,
      h("p", {}, link(hash("explain", { parent, group, client, part }), "Why does it not receive another topic?")));
    tell(await pages.load());
    reach(detail);
  }
  root.replaceChildren(h("h1", {}, "Clients"),
    h("div", { class: "tools" }, choice.control, fields),
    h("div", { class: "split" }, h("section", { class: "panel", "aria-label": "Subscribers" }, list.element), detail));
  await Promise.all([list.load(), showTopics()]);
  const refresh = spaced(1000, () => Promise.all([list.load(), pages ? pages.load().then(tell) : null]).catch(complain));
  on("changes", ({ changes }) => { if (changes.some((change) => change.parent === parent)) refresh(); });
}
