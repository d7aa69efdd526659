// A tree that is loaded by level, with ARIA's tree pattern for keyboards and screen readers.

import { count, h, plural, shown } from "./dom.js";

const PAGE = 100;
const MOST = 500;

class Item {
  constructor(tree, parent, entry) {
    this.tree = tree;
    this.parent = parent;
    this.level = parent ? parent.level + 1 : 0;
    this.items = new Map();
    this.expanded = false;
    this.after = "";
    if (!entry) {
      this.prefix = "";
      this.group = tree.root;
      return;
    }
    this.prefix = entry.prefix;
    this.topic = entry.topic;
    this.figure = h("span", { class: "figure" });
    this.label = h("span", { class: "label" }, shown(entry.text));
    this.line = h("div", { class: "line" }, h("span", { class: "twist", "aria-hidden": "true" }), this.label, this.figure);
    this.element = h("li", { role: "treeitem", tabindex: "-1", "aria-level": this.level }, this.line);
    this.element.item = this;
    if (this.prefix) {
      this.element.setAttribute("aria-expanded", "false");
      this.group = h("ul", { role: "group" });
      this.element.append(this.group);
    } else this.element.classList.add("topic");
    this.update(entry);
  }

  update(entry) {
    const text = this.prefix ? count(entry.topics) : plural(entry.receivers, "receiver");
    if (this.figure.textContent !== text) {
      if (this.figure.textContent) flash(this.line);
      this.figure.textContent = text;
      this.element.setAttribute("aria-label", `${entry.text || "(empty)"}, ${this.prefix ? plural(entry.topics, "topic") : text}`);
    }
  }

  async open() {
    if (!this.prefix || this.expanded) return;
    this.expanded = true;
    this.element.setAttribute("aria-expanded", "true");
    await this.load(PAGE);
  }

  close() {
    this.expanded = false;
    this.element.setAttribute("aria-expanded", "false");
    if (this.group.contains(document.activeElement)) this.tree.focus(this);
    this.group.replaceChildren();
    this.items.clear();
  }

  // Reload as many lines as are shown, or `size`, and update the differences. The focus is kept.
  async load(size) {
    const { branches, more } = await this.tree.level(this.prefix, "", Math.min(size, MOST));
    this.mend(branches, true);
    this.after = more;
    this.showMore();
  }

  async loadMore() {
    const { branches, more } = await this.tree.level(this.prefix, this.after, PAGE);
    const first = branches.length ? keyOf(branches[0]) : "";
    this.mend(branches, false);
    this.after = more;
    this.showMore();
    if (first) this.tree.focus(this.items.get(first));
  }

  mend(branches, whole) {
    const keys = new Set(branches.map(keyOf));
    if (whole) {
      for (const [key, item] of this.items) {
        if (keys.has(key)) continue;
        if (item.element.contains(document.activeElement)) this.tree.focus(this.element ? this : null);
        item.element.remove();
        this.items.delete(key);
      }
    }
    let at = whole ? this.group.firstElementChild : this.more;
    for (const entry of branches) {
      const key = keyOf(entry);
      let item = this.items.get(key);
      if (item) item.update(entry);
      else {
        item = new Item(this.tree, this, entry);
        this.items.set(key, item);
      }
      if (item.element === at) at = at.nextElementSibling;
      else this.group.insertBefore(item.element, at);
    }
  }

  showMore() {
    if (this.more) this.more.remove();
    this.more = null;
    if (!this.after) return;
    this.more = h("li", { role: "treeitem", tabindex: "-1", "aria-level": this.level + 1, class: "more" },
      h("div", { class: "line" }, h("span", { class: "twist", "aria-hidden": "true" }), "Show more"));
    this.more.act = () => this.loadMore();
    this.group.append(this.more);
  }
}

const keyOf = (entry) => (entry.prefix ? `b${entry.prefix}` : `t${entry.topic}`);

function flash(element) {
  element.classList.remove("changed");
  void element.getBoundingClientRect();
  element.classList.add("changed");
}

export class Tree {
  // `level(prefix, after, size)` returns branches; `choose(topic)` is called when a topic is chosen.
  constructor({ label, level, choose, complain }) {
    this.level = level;
    this.choose = choose;
    this.complain = complain;
    this.root = h("ul", { role: "tree", "aria-label": label, class: "tree",
      onclick: (event) => this.clicked(event), onkeydown: (event) => this.pressed(event) });
    this.top = new Item(this, null, null);
    this.chosen = "";
  }

  get isEmpty() {
    return this.top.items.size === 0;
  }

  async load() {
    await this.top.load(PAGE);
    if (!this.root.querySelector('[tabindex="0"]')) this.rove(this.root.querySelector("[role=treeitem]"));
  }

  async refresh() {
    const open = (item) => [item, ...[...item.items.values()].filter((each) => each.expanded).flatMap(open)];
    for (const item of open(this.top)) await item.load(Math.max(PAGE, item.items.size));
    if (!this.root.querySelector('[tabindex="0"]')) this.rove(this.root.querySelector("[role=treeitem]"));
    this.mark(this.chosen);
  }

  // Open the branches above a topic.
  async reveal(topic) {
    let item = this.top;
    while (item) {
      const below = [...item.items.values()].find((each) => each.prefix && topic.startsWith(each.prefix));
      if (!below) break;
      await below.open();
      item = below;
    }
    this.mark(topic);
  }

  mark(topic) {
    this.chosen = topic;
    for (const element of this.root.querySelectorAll("li.topic")) {
      element.setAttribute("aria-selected", String(element.item.topic === topic));
      if (element.item.topic === topic && document.activeElement === document.body) this.rove(element);
    }
  }

  rove(element) {
    this.root.querySelectorAll('[tabindex="0"]').forEach((each) => each.setAttribute("tabindex", "-1"));
    if (element) element.setAttribute("tabindex", "0");
    return element;
  }

  focus(item) {
    const element = item ? item.element : this.root.querySelector("[role=treeitem]");
    if (this.rove(element)) element.focus();
  }

  act(element) {
    const item = element.item;
    const done = !item ? element.act() : item.topic !== "" || !item.prefix ? this.pick(item)
      : item.expanded ? item.close() : item.open();
    Promise.resolve(done).catch(this.complain);
  }

  pick(item) {
    this.mark(item.topic);
    return this.choose(item.topic);
  }

  clicked(event) {
    const line = event.target.closest(".line");
    if (!line) return;
    this.rove(line.parentElement).focus();
    this.act(line.parentElement);
  }

  pressed(event) {
    const element = event.target.closest("[role=treeitem]");
    if (!element || event.altKey || event.ctrlKey || event.metaKey) return;
    const all = [...this.root.querySelectorAll("[role=treeitem]")];
    const at = all.indexOf(element);
    const item = element.item;
    const go = (other) => other && this.rove(other).focus();
    if (event.key === "ArrowDown") go(all[at + 1]);
    else if (event.key === "ArrowUp") go(all[at - 1]);
    else if (event.key === "Home") go(all[0]);
    else if (event.key === "End") go(all[all.length - 1]);
    else if (event.key === "ArrowRight" && item && item.prefix) {
      if (item.expanded) go(item.group.firstElementChild);
      else item.open().catch(this.complain);
    } else if (event.key === "ArrowLeft" && item && item.expanded) item.close();
    else if (event.key === "ArrowLeft") go(element.parentElement.closest("[role=treeitem]"));
    else if (event.key === "Enter" || event.key === " ") this.act(element);
    else if (event.key.length === 1) {
      const start = event.key.toLowerCase();
      go([...all.slice(at + 1), ...all.slice(0, at)].find((each) => each.innerText.trim().toLowerCase().startsWith(start)));
    } else return;
    event.preventDefault();
  }
}
