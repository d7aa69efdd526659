// Elements with text. Text always becomes text nodes, never markup, because names are untrusted.

export function h(tag, attributes, ...children) {
  const svg = tag === "svg" || SVG.has(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SVG = new Set(["g", "rect", "line", "path", "text", "circle", "polyline", "desc"]);

export const count = (number) => Number(number).toLocaleString("en-US");

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

// Times are in UTC. The tooltip has the browser's time zone.
export const hour = (milliseconds) => new Date(milliseconds).toISOString().slice(11, 19);

export const clock = (milliseconds) => `${new Date(milliseconds).toISOString().slice(11, 23)} UTC`;

export function when(milliseconds) {
  if (!milliseconds || milliseconds < 0) return "unknown";
  const at = new Date(milliseconds);
  const text = `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  return h("time", { datetime: at.toISOString(), title: `here ${at.toLocaleString("en-GB", { timeZoneName: "short" })}` }, text);
}

// Makes visible: invisible characters, spaces other than U+0020, and characters that change the text direction.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]|(?! )\p{Zs}/gu;

export function shown(text) {
  if (text === "") return h("span", { class: "empty" }, "(empty)");
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    const code = found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    parts.push(text.slice(from, found.index), h("span", { class: "hidden-character", title: `U+${code}` }, `U+${code}`));
    from = found.index + found[0].length;
  }
  return h("bdi", {}, ...parts, text.slice(from));
}

export const name = (text, kind = "") => h("code", { class: `name ${kind}`.trim() }, shown(text));

export const isNarrow = () => matchMedia("(max-width: 52rem)").matches;

// In a narrow window, where a detail is below its list, scroll to it and move the focus to its heading. A button leads back.
export function reach(detail) {
  if (!isNarrow()) return;
  const heading = detail.querySelector("h2");
  heading.before(h("button", { type: "button", class: "back", onclick: () => {
    const list = detail.previousElementSibling;
    const chosen = list.querySelector("[aria-current=true], [aria-selected=true]");
    (chosen || list).scrollIntoView({ block: "center" });
    if (chosen) chosen.focus({ preventScroll: true });
  } }, "Back to the list"));
  heading.setAttribute("tabindex", "-1");
  heading.focus({ preventScroll: true });
  detail.scrollIntoView({ block: "start" });
}

// Show a text of a live region, which is announced only if it differs.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function link(target, ...children) {
  return h("a", { href: target }, ...children);
}

export function hash(view, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(given).toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

export function wait(milliseconds, act) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...given), milliseconds);
  };
}

// At most one call per `milliseconds`, and always the last call: for lists that follow live changes.
export function spaced(milliseconds, act) {
  let timer = 0;
  return () => {
    if (!timer) timer = setTimeout(() => { timer = 0; act(); }, milliseconds);
  };
}

export function field(label, control, note) {
  return h("div", { class: "field" }, h("label", {}, h("span", {}, label), control), note || null);
}

export function select(options, chosen, onchange, attributes = {}) {
  return h("select", { ...attributes, onchange: (event) => onchange(event.target.value) },
    options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
}
