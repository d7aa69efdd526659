// Topics without receivers. The job lists its topics in parts, so the reader decides how far the search goes.

import { ask } from "./api.js";
import { count, h, plural, when } from "./dom.js";
import { Table } from "./rows.js";

export class Unreceived {
  // `cell(topic)` returns the element that chooses a topic.
  constructor({ parent, asked, cell, signal, complain }) {
    Object.assign(this, { parent, asked, signal, complain });
    this.table = new Table("Topics without receivers", [["Topic", (each) => each.topic, (each) => cell(each.topic)],
      ["Expires", (each) => each.expires || Infinity, (each) => (each.expires ? when(each.expires) : "never")]]);
    this.place = h("p", { class: "muted", role: "status" });
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.search().catch(this.complain) }, "Search more topics");
    this.element = h("div", {}, this.table.element, this.place, this.more);
  }

  load() {
    this.after = "0:0";
    this.searched = 0;
    this.run = {};
    this.table.show([]);
    this.more.hidden = true;
    this.place.textContent = "The job is being asked.";
    return this.search();
  }

  async search() {
    const { after, run } = this;
    this.more.disabled = true;
    const found = await ask("unreceived", { parent: this.parent, after, ...this.asked }, this.signal);
    if (run !== this.run) return; // a later search has begun
    this.more.disabled = false;
    if (found.error) {
      this.place.textContent = found.error;
      this.more.hidden = after === "0:0";
      return;
    }
    if (found.names !== null) this.names = found.names;
    this.searched += found.searched;
    this.after = found.more;
    this.table.show([...this.table.items, ...found.topics]);
    this.more.hidden = !found.more;
    this.place.textContent = `${plural(this.table.items.length, "topic")} without receivers${this.asked.search ? " in this selection" : ""}; ${found.more
      ? `searched ${count(this.searched)} of about ${plural(this.names, "topic")} of the job.` : `searched all: ${plural(this.searched, "topic")} of the job.`}`;
  }
}
