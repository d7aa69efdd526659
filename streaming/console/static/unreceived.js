// Topics without receivers. The job lists its topics in parts, so the reader decides how far the search goes.

import { ask } from "./api.js";
import { count, h, plural, say, when } from "./dom.js";
import { Table } from "./rows.js";

export class Unreceived {
  // `cell(topic)` returns the element that chooses a topic.
  constructor({ parent, asked, cell, signal, complain }) {
    Object.assign(this, { parent, asked, signal, complain });
    this.table = new Table("Topics without receivers", [["Topic", (each) => each.topic, (each) => cell(each.topic)],
      ["Expires", (each) => each.expires || Infinity, (each) => (each.expires ? when(each.expires) : "never")]]);
    this.place = h("p", { class: "muted", role: "status" });
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.search(this.run.parts.length).catch(this.complain) }, "Search more topics");
    this.element = h("div", {}, this.table.element, this.place, this.more);
  }

  load() {
    this.run = { parts: [], pending: 0, last: Promise.resolve() };
    this.table.show([]);
    this.more.hidden = true;
    this.place.textContent = "The job is being asked.";
    return this.search(0);
  }

  // Ask for the next of the parts again, in turn: each refresh is the work of one part, however far the reader has searched.
  async refresh() {
    const { run } = this;
    if (run.pending || run.failed || document.hidden) return;
    run.turn = ((run.turn || 0) + 1) % Math.max(1, run.parts.length);
    await this.search(run.turn);
  }

  // Search a part, one after the other.
  search(at) {
    const { run } = this;
    run.pending += 1;
    run.last = run.last.catch(() => {}).then(() => this.ask(run, Math.min(at, run.parts.length))).finally(() => { run.pending -= 1; });
    run.last.catch(() => { run.failed = true; });
    return run.last;
  }

  async ask(run, at) {
    const { parts } = run;
    if (at && !parts[at - 1].more) return;
    const found = await ask("unreceived", { parent: this.parent, after: at ? parts[at - 1].more : "0:0", ...this.asked }, this.signal);
    if (run !== this.run) return; // a later search has begun
    if (found.error) {
      say(this.place, found.error);
      this.more.hidden = !parts.length;
      return;
    }
    if (found.names !== null) this.names = found.names;
    parts[at] = found;
    if (!found.more) parts.length = at + 1;
    this.show();
  }

  show() {
    const { parts } = this.run;
    const topics = new Map(parts.flatMap((part) => part.topics.map((each) => [each.topic, each]))); // parts may overlap after changes
    const searched = parts.reduce((sum, part) => sum + part.searched, 0);
    this.table.show([...topics.values()]);
    const isWhole = !parts.at(-1).more;
    this.more.hidden = isWhole;
    say(this.place, `${plural(topics.size, "topic")} without receivers${this.asked.search ? " in this selection" : ""}; ${isWhole
      ? `searched all: ${plural(searched, "topic")} of the job.` : `searched ${count(searched)} of about ${plural(this.names, "topic")} of the job.`}`);
  }
}
