// Paged tables of rows.

import { ask, Refused } from "./api.js";
import { count, field, h, hash, link, name, say, select, shown, wait } from "./dom.js";

export const patterns = (row) => row.patterns.length
  ? [...row.patterns.map((text) => name(text, "pattern")), row.morePatterns ? ` and ${count(row.morePatterns)} more` : null]
  : [h("span", { class: "muted" }, "everything")];

export const client = (row, parent) => h("span", { class: "client" },
  link(hash("clients", { parent, group: row.group, client: row.client, part: row.part }), shown(row.client)),
  row.part ? h("small", { class: "part" }, shown(row.part)) : null);

export const cause = (text) => h("span", { class: `cause ${text.toLowerCase()}` }, text.toLowerCase().replaceAll("_", " "));

export const head = (text, isNumber = false, content = null) => h("th", { scope: "col", class: isNumber ? "number" : null },
  content || text || h("span", { class: "unseen" }, "Explanation"));

// A heading that sorts its column: numbers with the largest first, texts in alphabetical order, and the reverse after another press.
// `order` contains the column as `sort`, and the direction as `order`.
function sortButton(column, order, act, text) {
  return h("button", { type: "button", class: "sort", onclick: (event) => {
    const cell = event.currentTarget.parentElement;
    const [first, other] = cell.classList.contains("number") ? ["descending", "ascending"] : ["ascending", "descending"];
    order.order = order.sort === column && order.order === first ? other : first;
    order.sort = column;
    for (const each of cell.parentElement.cells) each.removeAttribute("aria-sort");
    cell.setAttribute("aria-sort", order.order);
    act();
  } }, text);
}

// Replace the rows of a table. The focus stays at the same link, or moves to the link of the row that is now at its place.
export function replaceRows(body, rows) {
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  const at = focused && [...body.rows].findIndex((row) => row.contains(focused));
  body.replaceChildren(...rows);
  if (!focused) return;
  const links = [...body.querySelectorAll("a")];
  const nearest = body.rows[Math.min(at, body.rows.length - 1)];
  const next = links.find((each) => each.getAttribute("href") === focused.getAttribute("href")) || (nearest && nearest.querySelector("a"));
  if (next) next.focus({ preventScroll: true });
}

// A table of items that are all here. `columns` are arrays: the heading, `key(item)` for sorting, `cell(item)` (by default the key), and
// whether it is a number.
export class Table {
  constructor(label, columns) {
    this.columns = columns;
    this.items = [];
    this.order = {};
    this.body = h("tbody");
    this.table = h("table", {}, h("caption", { class: "unseen" }, label), h("thead", {}, h("tr", {}, columns.map(([text, key, , isNumber]) =>
      head(text, isNumber, sortButton(key, this.order, () => this.draw(), text))))), this.body);
    this.element = h("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": label }, this.table);
  }

  show(items) {
    this.items = items;
    this.table.hidden = !items.length;
    this.draw();
  }

  draw() {
    const key = this.order.sort;
    const items = key ? this.items.toSorted((one, other) => (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : 0)) : this.items;
    if (this.order.order === "descending") items.reverse();
    replaceRows(this.body, items.map((item) => h("tr", {}, this.columns.map(([, value, cell, isNumber]) =>
      h("td", { class: isNumber ? "number" : null }, (cell || value)(item))))));
  }
}

// A table with pages of `size` rows; `heads` are strings, `numbers` the heads of right-aligned columns, `sorts` the columns of the
// server by head, and `cells(row)` returns the cells of a row.
export class Pages {
  constructor({ caption, heads, question, parameters, list, cells, empty, signal, complain, numbers = [], sorts = {}, size = 50 }) {
    Object.assign(this, { heads, question, parameters, list, cells, empty, signal, complain, numbers, size });
    this.start = 0;
    this.total = 0;
    this.body = h("tbody");
    this.table = h("table", {}, h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, heads.map((text) => head(text, numbers.includes(text), sorts[text] && sortButton(sorts[text], this.parameters, () => {
        this.start = 0;
        this.load().catch(this.complain);
      }, text))))), this.body);
    this.before = h("button", { type: "button", onclick: () => this.turn(-1) }, "Previous");
    this.behind = h("button", { type: "button", onclick: () => this.turn(1) }, "Next");
    this.place = h("span", { role: "status" });
    this.pager = h("div", { class: "pager" }, this.before, this.place, this.behind);
    this.nothing = h("p", { class: "muted", hidden: true }, empty);
    this.element = h("div", { class: "pages" }, h("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": caption }, this.table), this.nothing, this.pager);
  }

  async turn(by) {
    this.start = by > 0 ? this.end : Math.max(0, this.start - this.size); // a page of long names is shorter
    await this.load().catch(this.complain);
  }

  async load() {
    this.asked = (this.asked || 0) + 1;
    const mine = this.asked;
    const found = await ask(this.question, { ...this.parameters, start: this.start, size: this.size }, this.signal);
    if (mine !== this.asked) return found; // a later request is pending
    const lines = found[this.list];
    this.total = found.total;
    if (!lines.length && this.start) {
      this.start = 0;
      return this.load();
    }
    const drawn = JSON.stringify([this.parameters, lines]);
    if (drawn !== this.drawn) {
      replaceRows(this.body, lines.map((line) => h("tr", {}, this.cells(line).map((cell, at) => h("td", { "data-head": this.heads[at], class: this.numbers.includes(this.heads[at]) ? "number" : null }, cell)))));
    }
    this.drawn = drawn;
    const end = this.end = this.start + lines.length;
    const limit = found.names === null || found.searched < found.names
      ? `only the first ${count(found.searched)}${found.names ? ` of ${count(found.names)}` : ""} were searched and sorted` : "";
    say(this.place, [found.total ? `${count(this.start + 1)} to ${count(end)} of ${count(found.total)}` : "", limit].filter(Boolean).join("; "));
    this.before.disabled = this.start === 0;
    this.behind.disabled = end >= found.total;
    this.pager.hidden = found.total <= lines.length && !this.start && !limit;
    this.table.hidden = !lines.length;
    this.nothing.hidden = lines.length > 0;
    return found;
  }
}

const WAYS = [["contains", "contain"], ["begins", "begin with"], ...["lite", "mqtt", "nats", "wamp"].map((each) => [each, `match (${each})`])];

// A field for a text and one for how it selects names. `act` shows the list; a pattern that is not valid yet is reported at the field.
export function searchFields(what, asked, act, complain) {
  const reason = h("small", { class: "bad", id: "search-reason", role: "status" });
  const again = async () => {
    let flaw = "";
    try { await act(); } catch (error) {
      if (error instanceof Refused) flaw = error.message;
      else complain(error);
    }
    reason.textContent = flaw;
    input.setAttribute("aria-invalid", String(flaw !== ""));
  };
  const typed = wait(150, again);
  const input = h("input", { type: "search", spellcheck: "false", autocomplete: "off", value: asked.search, "aria-describedby": "search-reason",
    oninput: () => { asked.search = input.value; typed(); } });
  return { input, fields: [
    field(`${what} that`, select(WAYS, asked.how, (how) => { asked.how = how; again(); })),
    field("Search", input, reason)] };
}
