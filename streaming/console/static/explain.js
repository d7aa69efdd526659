// Why a client does or does not receive a topic.

import { ask } from "./api.js";
import { field, h, hash, isNarrow, link, name, shown, spaced, wait, when } from "./dom.js";
import { parentChoice } from "./parents.js";
import { cause } from "./rows.js";
import { steps } from "./steps.js";

// Sign, class and name of a check: an entry that matches or not, a hint, or a plain fact.
const mark = ({ name: kind, met }) => (met === true ? ["\u2713", "met", "matches"] : met === false ? ["\u2717", "unmet", "does not match"]
  : kind === "hint" ? ["\u2192", "hint", "hint"] : ["\u2022", "fact", "fact"]);

export async function explain({ root, parameters, signal, complain, on }) {
  const asked = { group: "", client: "", part: "", topic: "" };
  for (const key of Object.keys(asked)) asked[key] = parameters.get(key) || "";
  const choice = await parentChoice(parameters.get("parent"), signal, complain, (value) => { location.hash = hash("explain", { ...asked, parent: value }); });
  const parent = choice.parent;
  const answer = h("section", { class: "answer", "aria-label": "Answer", "aria-live": "polite" });

  const clientList = h("datalist", { id: "client-list" });
  const topicList = h("datalist", { id: "topic-list" });
  const suggestClients = wait(150, async () => {
    try {
      const { subscribers } = await ask("subscribers", { parent, search: inputs.client.value, size: 20 }, signal);
      clientList.replaceChildren(...subscribers.map((each) => h("option", { value: each.client }, `in ${each.group}`)));
    } catch (error) { complain(error); }
  });
  const suggestTopics = wait(150, async () => {
    try {
      const { topics } = await ask("topics", { parent, search: inputs.topic.value, how: "begins", size: 20 }, signal);
      topicList.replaceChildren(...topics.map((each) => h("option", { value: each.topic })));
    } catch (error) { complain(error); }
  });
  const input = (key, more) => h("input", { type: "text", required: key !== "group", spellcheck: "false", autocomplete: "off", value: asked[key], ...more });
  const inputs = {
    client: input("client", { list: "client-list", oninput: suggestClients }),
    group: input("group", { placeholder: "any" }),
    topic: input("topic", { list: "topic-list", oninput: suggestTopics }),
  };
  const form = h("form", { class: "tools", onsubmit: (event) => {
    event.preventDefault();
    const kept = inputs.client.value === asked.client && inputs.group.value === asked.group ? asked.part : "";
    const to = hash("explain", { parent, group: inputs.group.value, client: inputs.client.value, part: kept, topic: inputs.topic.value });
    if (to === location.hash) load().catch(complain);
    else location.hash = to;
  } }, choice.control, field("Client", inputs.client), field("Group", inputs.group), field("Topic", inputs.topic),
  h("button", { type: "submit", class: "primary" }, "Explain"), clientList, topicList);

  const question = { parent, group: asked.group, client: asked.client, topic: asked.topic, ...(asked.part ? { part: asked.part } : {}) };
  async function load() {
    draw(await ask("explain", { ...question, source: "updates" }, signal)); // at once; the job may take seconds
    if (isNarrow()) answer.scrollIntoView({ block: "start" });
    await loadAgain();
  }
  const loadAgain = async () => draw(await ask("explain", question, signal));
  function draw(found) {
    const [group, ...others] = found.groups;
    answer.replaceChildren(
      h("p", { class: `headline ${found.receives ? "good" : "bad"}` }, h("span", { class: "mark", "aria-hidden": "true" }, found.receives ? "\u2713" : "\u2717"), h("span", {}, shown(found.headline))),
      group ? h("p", {}, "In group ", name(group), others.length ? ["; the client is also in ", ...others.flatMap((each, at) => [at ? ", " : "",
        link(hash("explain", { ...asked, parent, group: each }), shown(each))])] : "") : "",
      h("ul", { class: "plain checks" }, found.checks.map((check) => {
        const [sign, kind, word] = mark(check);
        return h("li", { class: `check-line ${kind}` }, h("span", { class: "mark", role: "img", "aria-label": word }, sign),
          h("div", {}, h("div", {}, h("strong", {}, check.name), " ", shown(check.detail)), steps(check.steps, "Pattern and topic, segment by segment")));
      })),
      found.history.length ? h("h2", {}, "Updates of this pair") : "",
      found.history.length ? h("ul", { class: "plain changes" }, found.history.map((seen) => h("li", {}, when(seen.source.timestamp || seen.seen_ms), h("span", { class: `op ${seen.op.toLowerCase()}` }, seen.op), cause(seen.cause), place(seen.source)))) : "",
      h("p", { class: "note" }, found.basis));
  }
  const place = (source) => (source.topic ? name(`${source.topic}[${source.partition}]@${source.offset}${source.entry ? `#${source.entry}` : ""}`) : "");

  root.replaceChildren(h("h1", {}, "Explain"), form, answer);
  if (!asked.client || !asked.topic) {
    answer.append(h("p", { class: "muted" }, "Enter a client and a topic. “Why?” next to a row in other views also opens this view."));
    return;
  }
  await load();
  const refresh = spaced(1000, () => loadAgain().catch(complain));
  on("changes", ({ changes }) => { if (changes.some((change) => change.topic === asked.topic && change.parent === parent)) refresh(); });
}
