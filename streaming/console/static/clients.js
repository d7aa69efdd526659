// Subscribers of a parent, and the topics of a chosen subscriber.

import { count, field, h, hash, link, name, plural, reach, shown, spaced, wait } from "./dom.js";
import { nothingYet, parentChoice } from "./parents.js";
import { cause, Pages, patterns } from "./rows.js";

export async function clients({ root, parameters, signal, complain, on }) {
  const choice = await parentChoice(parameters.get("parent"), signal, (parent) => { location.hash = hash("clients", { parent }); });
  const parent = choice.parent;
  if (!parent) {
    root.replaceChildren(...await nothingYet("Clients", signal, on));
    return;
  }
  const [group, client, part] = ["group", "client", "part"].map((each) => parameters.get(each));
  const detail = h("section", { class: "detail", "aria-label": "Topics of the client" });
  const list = new Pages({
    caption: `Subscribers of ${parent}`, heads: ["Client", "Group", "Topics"], question: "subscribers", numbers: ["Topics"],
    parameters: { parent, contains: "" }, list: "subscribers", signal, complain, empty: "No client or group of this parent contains this text. Clear the field, or select another parent.",
    cells: (row) => [
      h("span", { class: "client" },
        h("a", { href: hash("clients", { parent, group: row.group, client: row.client, part: row.part }),
          "aria-current": row.group === group && row.client === client && (row.part || "") === (part || "") ? "true" : null }, shown(row.client)),
        row.part ? h("small", { class: "part" }, shown(row.part)) : null),
      shown(row.group), h("span", { class: "figure" }, count(row.topics)),
    ],
  });
  const search = h("input", { type: "search", spellcheck: "false", autocomplete: "off",
    oninput: wait(150, () => { list.parameters.contains = search.value; list.start = 0; list.load().catch(complain); }) });
  root.replaceChildren(h("h1", {}, "Clients"),
    h("div", { class: "tools" }, choice.control, field("Client or group contains", search)),
    h("div", { class: "split" }, h("section", { class: "panel", "aria-label": "Subscribers" }, list.element), detail));
  await list.load();
  let pages = null;
  if (client === null) detail.append(h("h2", {}, "Topics"), h("p", { class: "muted" }, "Choose a client to see its topics."));
  else {
    pages = new Pages({
      caption: `Topics of ${client}`, heads: ["Topic", "Entries", "Cause", ""], question: "received",
      parameters: { parent, group, client, ...(part ? { part } : {}) }, list: "rows", signal, complain,
      empty: "The client receives no topic of this parent.",
      cells: (row) => [
        h("a", { class: "name", href: hash("topics", { parent, topic: row.topic }) }, shown(row.topic)), patterns(row), cause(row.cause),
        h("a", { class: "why", href: hash("explain", { parent, group, client, part, topic: row.topic }),
          "aria-label": `Why does ${client} receive ${row.topic}?` }, "Why?"),
      ],
    });
    const headline = h("p", { class: "muted" });
    detail.append(h("h2", {}, name(client), h("small", {}, " in group "), name(group)), part ? h("p", {}, "subscription ", name(part)) : "",
      headline, pages.element,
      h("p", {}, link(hash("explain", { parent, group, client, part }), "Why does it not receive another topic?")));
    const tell = (found) => { headline.textContent = plural(found.total, "topic"); };
    tell(await pages.load());
    pages.tell = tell;
    reach(detail);
  }
  const refresh = spaced(1000, () => Promise.all([list.load(), pages ? pages.load().then(pages.tell) : null]).catch(complain));
  on("changes", ({ changes }) => { if (changes.some((change) => change.parent === parent)) refresh(); });
}
