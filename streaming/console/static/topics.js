// The tree of topics, and the receivers of the chosen topic.

import { ask } from "./api.js";
import { field, h, hash, link, name, plural, reach, select, shown, spaced, wait } from "./dom.js";
import { nothingYet, parentChoice, SEPARATORS } from "./parents.js";
import { cause, client, Pages, patterns } from "./rows.js";
import { Tree } from "./tree.js";

export async function topics({ root, parameters, signal, complain, on }) {
  const choice = await parentChoice(parameters.get("parent"), signal, (parent) => { location.hash = hash("topics", { parent }); });
  const parent = choice.parent;
  if (!parent) {
    root.replaceChildren(...await nothingYet("Topics", signal, on));
    return;
  }
  let separator = parameters.get("separator") || choice.separator;
  let topic = parameters.get("topic") || "";
  let beginning = "";

  const level = async (prefix, after, size) => {
    if (!beginning) return ask("level", { parent, prefix, separator, after, size }, signal);
    const { topics: found, more } = await ask("topics", { parent, prefix: beginning, after, size }, signal);
    const branches = found.map((each) => ({ text: each.topic, prefix: "", topic: each.topic, receivers: each.receivers }));
    return { branches, more };
  };
  const detail = h("section", { class: "detail", "aria-label": "Receivers" });
  const choose = async (chosen) => {
    topic = chosen;
    history.replaceState(null, "", hash("topics", { parent, separator: separator === choice.separator ? "" : separator, topic }));
    await showReceivers();
    reach(detail);
  };

  let tree = null;
  const holder = h("div", { class: "scrolls" });
  const nothing = h("p", { class: "muted", role: "status" });
  const tellEmpty = () => {
    nothing.textContent = tree.isEmpty ? beginning ? `No topic begins with “${beginning}”. Clear the field, or select another parent.`
      : "No topic of this parent has receivers. Select another parent." : "";
  };
  const plant = async () => {
    tree = new Tree({ label: `Topics of ${parent}`, level, choose, complain });
    holder.replaceChildren(tree.root);
    await tree.load();
    tellEmpty();
    if (topic) await tree.reveal(topic);
  };

  let pages = null;
  const headline = h("p", { class: "muted" });
  async function showReceivers() {
    if (!topic) {
      detail.replaceChildren(h("h2", {}, "Receivers"), h("p", { class: "muted" }, "Choose a topic to see its receivers."));
      return;
    }
    pages = new Pages({
      caption: `Receivers of ${topic}`, heads: ["Client", "Group", "Entries", "Cause", ""], question: "receivers",
      parameters: { parent, topic }, list: "rows", signal, complain,
      empty: "The topic has no receivers.",
      cells: (row) => [
        client(row, parent), shown(row.group), patterns(row), cause(row.cause),
        h("a", { class: "why", href: hash("explain", { parent, group: row.group, client: row.client, part: row.part, topic }),
          "aria-label": `Why does ${row.client} receive ${topic}?` }, "Why?"),
      ],
    });
    detail.replaceChildren(h("h2", {}, name(topic)), headline, pages.element,
      h("p", {}, link(hash("explain", { parent, topic }), "Why does another client not receive it?")));
    const found = await pages.load();
    headline.textContent = plural(found.total, "receiver");
  }

  const search = h("input", { type: "search", spellcheck: "false", autocomplete: "off", placeholder: "eu__",
    oninput: wait(150, () => { beginning = search.value; plant().catch(complain); }) });
  root.replaceChildren(
    h("h1", {}, "Topics"),
    h("div", { class: "tools" }, choice.control,
      field("Divided at", select(SEPARATORS, separator, (value) => { separator = value; plant().catch(complain); })),
      field("Begins with", search)),
    h("div", { class: "split" }, h("section", { "aria-label": "Tree", class: "panel" }, holder, nothing), detail),
    h("p", { class: "note" }, "The tree contains only topics with receivers, because the updates contain no others."),
  );
  await Promise.all([plant(), showReceivers()]);
  if (topic) reach(detail);
  const refresh = spaced(1000, () => Promise.all([tree.refresh().then(tellEmpty), pages && topic ? pages.load().then((found) => {
    headline.textContent = plural(found.total, "receiver");
  }) : null]).catch(complain));
  on("changes", ({ changes }) => { if (changes.some((change) => change.parent === parent)) refresh(); });
}
