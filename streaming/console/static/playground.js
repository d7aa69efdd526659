// A pattern that is tried on topics while you type.

import { tell } from "./api.js";
import { count, field, h, name, select, spaced, wait } from "./dom.js";
import { currentParent, parentFields } from "./parents.js";
import { steps } from "./steps.js";

const EXAMPLES = {
  lite: ["eu__*__created", "eu__acme__created\neu__globex__created\nus__acme__created\neu__acme__created__again"],
  mqtt: ["eu/+/temp", "eu/berlin/temp\neu/berlin/humidity\neu/temp\n$SYS/eu/temp"],
  nats: ["orders.*.>", "orders.eu.created\norders.eu\norders.us.refunded.twice\ninvoices.eu.created"],
  wamp: ["com.*.create", "com.shop.create\ncom.shop.delete\ncom..create\norg.shop.create"],
};
const NOTES = {
  lite: "__ divides; * is one segment, ** at the end one or more.",
  mqtt: "/ divides; + is one level, # at the end any number. A wildcard does not begin with $ topics.",
  nats: ". divides; * is one token, > at the end one or more.",
  wamp: ". divides; with a policy the pattern is exact, a prefix, or has empty components as wildcards.",
};

// Limits of a request: the server refuses more topics, and a body above one megabyte.
const MOST = 1000;
const CHARACTERS = 250_000;

// The first topics of a text, one per line, as many as one request may have, and the number of all.
function pasted(text) {
  const all = text.split(/\r?\n/).filter((line) => line !== "");
  let room = CHARACTERS;
  const topics = all.slice(0, MOST).filter((topic) => (room -= topic.length + 3) >= 0);
  return { topics, all: all.length };
}

const kept = { dialect: "lite", policy: "", innerMulti: false, source: "own", parent: "", pattern: null, topics: null };

export async function playground({ root, parameters, state, signal, complain, on }) {
  const given = parameters.get("dialect");
  if (given && EXAMPLES[given]) Object.assign(kept, { dialect: given, pattern: parameters.get("pattern"), parent: parameters.get("parent") || "", source: parameters.get("parent") ? "parent" : "own" });
  const current = await currentParent(given && kept.parent, signal);
  if (!current.parent) kept.source = "own";
  kept.parent = current.parent;
  if (kept.pattern === null) [kept.pattern] = EXAMPLES[kept.dialect];
  if (kept.topics === null) [, kept.topics] = EXAMPLES[kept.dialect];

  const verdict = h("div", { class: "verdict-line", role: "status", "aria-live": "polite", id: "verdict" });
  const matching = h("div", { class: "verdicts" });
  const others = h("div", { class: "verdicts" });
  let running = new AbortController();

  async function attempt() {
    running.abort();
    running = new AbortController();
    const mine = AbortSignal.any([signal, running.signal]);
    const { topics, all } = kept.source === "own" ? pasted(kept.topics) : { topics: [], all: 0 };
    const question = { pattern: kept.pattern, dialect: kept.dialect, policy: kept.dialect === "wamp" ? kept.policy : "",
      innerMulti: kept.dialect === "lite" && kept.innerMulti, ...(kept.source === "own" ? { topics } : { parent: kept.parent }) };
    try { show(await tell("match", question, mine), all > topics.length ? ` Only the first ${count(topics.length)} of ${count(all)} topics are tried.` : ""); } catch (error) { complain(error); }
  }
  const later = wait(90, attempt);

  function show(found, limit) {
    pattern.setAttribute("aria-invalid", String(!found.valid));
    if (!found.valid) {
      verdict.className = "verdict-line bad";
      verdict.replaceChildren(h("strong", {}, "Invalid pattern: "), `${found.reason}, in segment ${found.segment}; ${found.hint}.`, caret(found.position) || "");
      matching.replaceChildren();
      others.replaceChildren();
      return;
    }
    const cut = found.checked < found.candidates && kept.source === "own" ? ` among the first ${count(found.checked)}` : found.checked < found.candidates ? ` among the first ${count(found.checked)} of ${count(found.candidates)} with its prefix` : "";
    verdict.className = `verdict-line ${found.matched ? "good" : ""}`;
    verdict.replaceChildren(h("strong", {}, `${count(found.matched)} of ${count(found.total)}`), ` ${limit && "tried "}topics match${cut}.${limit}${found.cut && ` ${found.cut}`}`);
    matching.replaceChildren(...section("Match", found.matching, found.matched));
    const left = found.total - found.matched;
    others.replaceChildren(...section(kept.source === "own" ? "Do not match" : "Do not match, near misses first", found.others, cut ? found.others.length : left));
  }

  function caret(position) {
    const text = kept.pattern.slice(0, 200);
    if (position > text.length) return null;
    return h("pre", { class: "caret", "aria-hidden": "true" }, text.slice(0, position), h("mark", {}, text[position] || " "), text.slice(position + 1));
  }

  function section(title, list, total) {
    if (!list.length) return [];
    return [
      h("h2", {}, title, h("small", {}, total > list.length ? ` ${count(list.length)} of ${count(total)}` : ` ${count(total)}`)),
      h("ul", { class: "plain" }, list.map((each) => h("li", { class: `trial ${each.matched ? "fits" : "differs"}` },
        h("div", { class: "trial-head" }, h("span", { class: "mark", "aria-hidden": "true" }, each.matched ? "\u2713" : "\u2717"), name(each.topic),
          each.matched ? null : h("span", { class: "reason" }, each.reason)),
        steps(each.steps, `${each.topic}, segment by segment`)))),
    ];
  }

  const pattern = h("input", { type: "text", class: "big", spellcheck: "false", autocomplete: "off", autocapitalize: "off", maxlength: "16384",
    "aria-describedby": "verdict pattern-note", value: kept.pattern, oninput: () => { kept.pattern = pattern.value; later(); } });
  const own = h("textarea", { rows: "7", spellcheck: "false", value: kept.topics, oninput: () => { kept.topics = own.value; later(); } });
  const ownField = field("Topics, one per line", own, h("small", {}, `At most ${count(MOST)} topics are tried.`));
  const parentChoice = h("div", {}, parentFields("Topics of", current, signal, complain, (value) => { kept.parent = value; later(); }).fields);
  const policy = field("Policy", select([["", "none: wildcard *"], ...state.policies.map((each) => [each, each])], kept.policy, (value) => { kept.policy = value; later(); }));
  const inner = h("input", { type: "checkbox", checked: kept.innerMulti, onchange: () => { kept.innerMulti = inner.checked; later(); } });
  const innerField = h("label", { class: "check" }, inner, "** before the end");
  const note = h("small", { id: "pattern-note" });
  const arrange = () => {
    policy.hidden = kept.dialect !== "wamp";
    innerField.hidden = kept.dialect !== "lite";
    ownField.hidden = kept.source !== "own";
    parentChoice.hidden = kept.source === "own";
    note.textContent = NOTES[kept.dialect];
  };
  const radio = (value, text) => h("label", { class: "check" },
    h("input", { type: "radio", name: "source", value, checked: kept.source === value, onchange: () => { kept.source = value; arrange(); later(); } }), text);
  const dialect = select(state.dialects.map((each) => [each, each]), kept.dialect, (value) => {
    const untouched = [kept.pattern, kept.topics].every((text, at) => text === EXAMPLES[kept.dialect][at]);
    kept.dialect = value;
    if (untouched) {
      [kept.pattern, kept.topics] = EXAMPLES[value];
      pattern.value = kept.pattern;
      own.value = kept.topics;
    }
    arrange();
    later();
  });
  root.replaceChildren(h("h1", {}, "Playground"),
    h("div", { class: "split narrow-left" },
      h("section", { class: "panel form", "aria-label": "Pattern and topics" },
        h("div", { class: "tools" }, field("Dialect", dialect), policy, innerField),
        field("Pattern", pattern, note),
        current.parent ? h("fieldset", {}, h("legend", {}, "Try it on"), radio("own", "own topics"), radio("parent", "received topics")) : null,
        ownField, parentChoice),
      h("section", { class: "detail", "aria-label": "Result" }, verdict, matching, others)));
  arrange();
  await attempt();
  on("changes", spaced(1000, () => { if (kept.source === "parent") attempt(); }));
}
