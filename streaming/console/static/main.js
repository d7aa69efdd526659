// Views by the fragment of the address, which can be bookmarked; health at the top, data sources at the bottom.

import { ask, Refused } from "./api.js";
import { count, h, plural } from "./dom.js";
import { feed } from "./feed.js";
import { clients } from "./clients.js";
import { explain } from "./explain.js";
import { groups } from "./groups.js";
import { letters } from "./letters.js";
import { live } from "./live.js";
import { overview } from "./overview.js";
import { playground } from "./playground.js";
import { timings } from "./timings.js";
import { topics } from "./topics.js";

const VIEWS = { overview, topics, clients, groups, playground, explain, live, letters, timings };
const main = document.getElementById("main");
const notice = document.getElementById("notice");
let leave = () => {};
let shownView = "";

function place() {
  const [view, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { view: VIEWS[view] ? view : "overview", parameters: new URLSearchParams(query || "") };
}

export function complain(error) {
  if (error.name === "AbortError") return;
  notice.hidden = false;
  notice.textContent = error instanceof Refused ? error.message : `The console cannot be reached: ${error.message}`;
}

async function show() {
  const { view, parameters } = place();
  const moved = shownView !== "" && shownView !== view;
  shownView = view;
  leave();
  notice.hidden = true;
  for (const anchor of document.querySelectorAll("nav a")) {
    if (anchor.hash === `#/${view}`) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  const title = document.querySelector("nav a[aria-current]").textContent;
  document.title = `${title} - reexpand console`;
  const root = h("div", { class: `view ${view}` });
  main.replaceChildren(root);
  const gone = new AbortController();
  const stops = [];
  leave = () => { gone.abort(); stops.forEach((stop) => stop()); };
  const context = {
    root, parameters, state, signal: gone.signal, complain,
    on: (kind, act) => stops.push(feed.on(kind, act)),
    every: (milliseconds, act) => { const timer = setInterval(act, milliseconds); stops.push(() => clearInterval(timer)); },
  };
  try { await VIEWS[view](context); } catch (error) { complain(error); }
  if (moved) main.focus({ preventScroll: true });
}

const health = document.getElementById("health");

// The state that the page shows everywhere. Data are live only if the console, its reader and Kafka are all well.
function judged(found, connected) {
  if (!connected) return ["bad", "not connected"];
  if (found.error) return ["bad", "stopped"];
  if (found.trouble) return ["bad", "no Kafka"];
  return found.ready ? ["good", "live"] : ["busy", "reading"];
}

function figures(found, connected) {
  const [kind, word] = judged(found, connected);
  const job = connected && found.job.state ? found.job : null;
  health.replaceChildren(...[
    h("span", { class: `state ${kind}` }, word),
    job ? h("span", { class: `state ${job.level}` }, `job ${job.state}`) : null,
    job && job.level === "bad" ? h("span", { class: "bad" }, job.reason) : null,
    h("span", {}, plural(found.topics, "topic")),
    h("span", {}, plural(found.subscribers, "subscriber")),
    h("span", {}, plural(found.rows, "row")),
    found.ready ? null : h("span", {}, `${plural(found.changes, "update")} read`),
    found.left_out ? h("span", { class: "bad" }, `${plural(found.left_out, "row is", "rows are")} omitted: the maximum is ${count(state.maxRows)}`) : null,
    found.malformed ? h("span", { class: "bad" }, `${plural(found.malformed, "record")} malformed`) : null,
    found.error ? h("span", { class: "bad" }, found.error) : null,
    found.trouble && !found.error ? h("span", { class: "bad" }, `Kafka: ${found.trouble}`) : null,
  ].filter(Boolean));
}

const state = {};

async function begin() {
  Object.assign(state, await ask("state"));
  document.getElementById("logout").hidden = !state.hasToken;
  document.getElementById("about").replaceChildren(
    ...Object.entries(state.about).map(([key, value]) => h("span", {}, `${key} `, h("code", {}, value))));
  figures(state, true);
  let last = state;
  feed.on("state", (found) => { last = found; figures(found, true); });
  feed.on("lost", () => figures(last, false));
  feed.on("again", show); // the console was restarted, or has caught up: reload the view
  feed.open();
  addEventListener("hashchange", show);
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
  await show();
}

begin().catch(complain);
