// The topics of a parent as a tree or as a list, those without receivers, and the receivers of the chosen topic.

import { ask } from "./api.js";
import { count, field, h, hash, link, name, plural, reach, select, shown, spaced } from "./dom.js";
import { nothingYet, parentChoice, SEPARATORS } from "./parents.js";
import { cause, client, Pages, patterns, searchFields } from "./rows.js";
import { Tree } from "./tree.js";
import { Unreceived } from "./unreceived.js";

const SHAPES = [["tree", "as a tree"], ["list", "as a list"], ["unreceived", "without receivers"]];

// Milliseconds until topics without receivers are asked for again: after an update, and without one.
const SOON = 5000;
const LATER = 15000;

export async function topics({ root, parameters, signal, complain, on, every }) {
  const choice = await parentChoice(parameters.get("parent"), signal, complain, (other) => { location.hash = address("", other); });
  const parent = choice.parent;
  if (!parent) {
    root.replaceChildren(...await nothingYet("Topics", signal, on));
    return;
  }
  const asked = { search: parameters.get("search") || "", how: parameters.get("how") || "contains" };
  let separator = parameters.get("separator") || choice.separator;
  let topic = parameters.get("topic") || "";
  let shape = parameters.get("show") || (asked.search ? "list" : "tree");

  const address = (chosen, of = parent) => hash("topics", {
    parent: of, separator: of !== parent || separator === choice.separator ? "" : separator, show: shape === "tree" ? "" : shape,
    search: shape === "tree" ? "" : asked.search, how: shape === "tree" || asked.how === "contains" ? "" : asked.how, topic: chosen });
  const detail = h("section", { class: "detail", "aria-label": "Receivers" });
  const choose = async (chosen) => {
    topic = chosen;
    history.replaceState(null, "", address(topic));
    for (const each of holder.querySelectorAll("a[data-topic]")) mark(each);
    await showReceivers();
    reach(detail);
  };
  const mark = (anchor) => {
    if (anchor.dataset.topic === topic) anchor.setAttribute("aria-current", "true");
    else anchor.removeAttribute("aria-current");
    return anchor;
  };
  const cell = (each) => mark(h("a", { class: "name", href: address(each), "data-topic": each, onclick: (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a new tab or window
    event.preventDefault();
    choose(each).catch(complain);
  } }, shown(each)));

  const list = new Pages({
    caption: `Topics of ${parent}`, heads: ["Topic", "Receivers"], numbers: ["Receivers"], sorts: { Topic: "topic", Receivers: "receivers" },
    question: "topics", parameters: { parent }, list: "topics", signal, complain,
    empty: "No topic with receivers fits. Clear the search, or select another parent.",
    cells: (row) => [cell(row.topic), count(row.receivers)],
  });
  const unreceived = new Unreceived({ parent, asked, cell, signal, complain });
  let tree = null;
  const holder = h("div", {});
  const nothing = h("p", { class: "muted", role: "status" });
  const tellEmpty = () => { nothing.textContent = tree && tree.isEmpty ? "No topic of this parent has receivers. Select another parent." : ""; };
  const note = h("p", { class: "note" });
  async function plant() {
    tree = null;
    nothing.textContent = "";
    divided.hidden = shape !== "tree";
    note.textContent = shape === "unreceived" ? "The running job lists its topics; those with a row in the updates are left out."
      : "Only topics with receivers are shown, because the updates contain no others.";
    if (shape === "tree") {
      const level = (prefix, after, size) => ask("level", { parent, prefix, separator, after, size }, signal);
      const planted = tree = new Tree({ label: `Topics of ${parent}`, level, choose, complain });
      holder.replaceChildren(h("div", { class: "scrolls" }, tree.root));
      await planted.load();
      if (tree !== planted) return;
      tellEmpty();
      if (topic) await planted.reveal(topic);
      return;
    }
    if (shape === "unreceived") choice.addIdle();
    const shownList = shape === "list" ? list : unreceived;
    Object.assign(list.parameters, asked);
    list.start = 0;
    holder.replaceChildren(shownList.element);
    await shownList.load();
  }

  let pages = null;
  const headline = h("p", { class: "muted" });
  async function showReceivers() {
    if (!topic) {
      detail.replaceChildren(h("h2", {}, "Receivers"), h("p", { class: "muted" }, "Choose a topic to see its receivers."));
      return;
    }
    pages = new Pages({
      caption: `Receivers of ${topic}`, heads: ["Client", "Group", "Entries", "Cause", ""], question: "receivers",
      sorts: { Client: "client", Group: "group", Entries: "entries", Cause: "cause" }, parameters: { parent, topic }, list: "rows", signal, complain,
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

  const divided = field("Divided at", select(SEPARATORS, separator, (value) => { separator = value; plant().catch(complain); }));
  const shapes = select(SHAPES, shape, (value) => {
    shape = value;
    if (shape === "tree") search.input.value = asked.search = ""; // a tree is not searched
    again().catch(complain);
  });
  const again = async () => {
    history.replaceState(null, "", address(topic));
    await plant();
  };
  const search = searchFields("Topics", asked, () => {
    if (shape === "tree" && asked.search) shapes.value = shape = "list";
    return again();
  }, complain);
  root.replaceChildren(
    h("h1", {}, "Topics"),
    h("div", { class: "tools" }, choice.control, field("Show", shapes), divided, search.fields),
    h("div", { class: "split" }, h("section", { "aria-label": "Topics of the parent", class: "panel" }, holder, nothing), detail),
    note,
  );
  await Promise.all([plant(), showReceivers()]);
  if (topic) reach(detail);
  const refresh = spaced(1000, () => Promise.all([
    tree ? tree.refresh().then(tellEmpty) : shape === "list" ? list.load() : null,
    pages && topic ? pages.load().then((found) => { headline.textContent = plural(found.total, "receiver"); }) : null,
  ]).catch(complain));
  const refreshUnreceived = () => { if (shape === "unreceived") unreceived.refresh().catch(complain); };
  const soon = spaced(SOON, refreshUnreceived);
  every(LATER, refreshUnreceived); // a topic that is created without receivers causes no update
  on("changes", ({ changes }) => {
    if (!changes.some((change) => change.parent === parent)) return;
    refresh();
    soon();
  });
}
