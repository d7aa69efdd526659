// Selection of a parent topic.

import { ask } from "./api.js";
import { field, h, plural } from "./dom.js";

export const SEPARATORS = [["__", "__ (lite)"], ["/", "/ (mqtt)"], [".", ". (nats, wamp)"]];

// Return the parents, a select field, and the separator of the selected parent.
export async function parentChoice(chosen, signal, onchange) {
  const { parents, total } = await ask("parents", { size: 500 }, signal);
  const current = chosen && parents.some((each) => each.parent === chosen) ? chosen : parents.length ? parents[0].parent : "";
  const list = h("select", { onchange: () => onchange(list.value) },
    parents.map((each) => h("option", { value: each.parent, selected: each.parent === (chosen || current) },
      `${each.parent} (${plural(each.topics, "topic")})`)));
  const found = parents.find((each) => each.parent === (chosen || current));
  return {
    parent: chosen || current,
    separator: found ? found.separator : "__",
    total,
    control: field("Parent", list, total > parents.length ? h("small", {}, `${parents.length} of ${total} parents; open others by address`) : null),
  };
}
