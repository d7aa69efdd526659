// Paged tables of rows.

import { ask } from "./api.js";
import { count, h, hash, link, name, shown } from "./dom.js";

export const patterns = (row) => row.patterns.length
  ? [...row.patterns.map((text) => name(text, "pattern")), row.morePatterns ? ` and ${count(row.morePatterns)} more` : null]
  : [h("span", { class: "muted" }, "everything")];

export const client = (row, parent) => h("span", { class: "client" },
  link(hash("clients", { parent, group: row.group, client: row.client, part: row.part }), shown(row.client)),
  row.part ? h("small", { class: "part" }, shown(row.part)) : null);

export const cause = (text) => h("span", { class: `cause ${text.toLowerCase()}` }, text.toLowerCase().replaceAll("_", " "));

export const head = (text, isNumber = false) => h("th", { scope: "col", class: isNumber ? "number" : null }, text || h("span", { class: "unseen" }, "Explanation"));

// A table with pages of `size` rows; `heads` are strings, `numbers` the heads of right-aligned columns, `cells(row)` returns the cells of a row.
export class Pages {
  constructor({ caption, heads, question, parameters, list, cells, empty, signal, complain, numbers = [], size = 50 }) {
    Object.assign(this, { heads, question, parameters, list, cells, empty, signal, complain, numbers, size });
    this.start = 0;
    this.total = 0;
    this.body = h("tbody");
    this.table = h("table", {}, h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, heads.map((text) => head(text, numbers.includes(text))))), this.body);
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
    this.body.replaceChildren(...lines.map((line) => h("tr", {}, this.cells(line).map((cell, at) => h("td", { "data-head": this.heads[at], class: this.numbers.includes(this.heads[at]) ? "number" : null }, cell)))));
    const end = this.end = this.start + lines.length;
    const early = found.complete === false ? "; the search ended early, give more of the name" : "";
    this.place.textContent = (found.total ? `${count(this.start + 1)} to ${count(end)} of ${count(found.total)}` : "") + early;
    this.before.disabled = this.start === 0;
    this.behind.disabled = end >= found.total;
    this.pager.hidden = found.total <= lines.length && !this.start && !early;
    this.table.hidden = !lines.length;
    this.nothing.hidden = lines.length > 0;
    return found;
  }
}
