// Plots as SVG: bars over time, with a cross-hair for pointer and keyboard.

import { h } from "./dom.js";

const HEIGHT = 190;
const LEFT = 56;
const BOTTOM = 26;

function steps(most) {
  const rough = most / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, at) => at * step);
}

// `bars`: {label, parts: [{value, kind}], text}; `unit(value)` formats a value of the axis.
export function plot({ label, bars, unit, width, least = 1 }) {
  const WIDTH = Math.max(300, width);
  const total = (bar) => bar.parts.reduce((sum, part) => sum + part.value, 0);
  const most = Math.max(least, ...bars.map(total));
  const ticks = steps(most);
  const top = ticks[ticks.length - 1];
  const plain = HEIGHT - BOTTOM - 8;
  const y = (value) => 8 + plain - (value / top) * plain;
  const step = (WIDTH - LEFT) / Math.max(bars.length, 30);
  const told = h("p", { class: "told", role: "status" }, bars.length ? bars[bars.length - 1].text : "");
  const cursor = h("rect", { class: "cursor", x: LEFT, y: 8, width: step, height: plain, visibility: "hidden" });
  let at = bars.length - 1;
  const point = (to) => {
    if (!bars.length) return;
    at = Math.min(bars.length - 1, Math.max(0, to));
    cursor.setAttribute("x", LEFT + at * step);
    cursor.setAttribute("visibility", "visible");
    told.textContent = bars[at].text;
  };
  const svg = h("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: "0", "aria-label": `${label}. Use the arrow keys to select a bar.`, class: "plot",
    onpointermove: (event) => {
      const box = svg.getBoundingClientRect();
      point(Math.floor((((event.clientX - box.left) / box.width) * WIDTH - LEFT) / step));
    },
    onkeydown: (event) => {
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: bars.length - 1 }[event.key];
      if (to !== undefined) { point(to); event.preventDefault(); }
    },
  },
  h("g", { class: "grid" }, ticks.map((tick) => [
    h("line", { x1: LEFT, x2: WIDTH, y1: y(tick), y2: y(tick) }),
    h("text", { x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" }, unit(tick)),
  ])),
  cursor,
  h("g", {}, bars.map((bar, number) => {
    let below = 0;
    return bar.parts.filter((part) => part.value > 0).map((part) => {
      const from = below;
      below += part.value;
      return h("rect", { class: `bar ${part.kind}`, x: LEFT + number * step + step * 0.1, width: Math.max(1, step * 0.8),
        y: y(below), height: Math.max(0.8, y(from) - y(below)) });
    });
  })),
  h("g", { class: "grid" }, bars.length > 1 ? [0, Math.floor(bars.length / 2), bars.length - 1].map((number, place) =>
    h("text", { x: LEFT + number * step + (place === 2 ? step : 0), y: HEIGHT - 6, "text-anchor": ["start", "middle", "end"][place] }, bars[number].label)) : null));
  return h("figure", {}, svg, told);
}

export const key = (entries) => h("ul", { class: "key", "aria-label": "Colours" }, entries.map(([kind, text]) =>
  h("li", {}, h("svg", { viewBox: "0 0 10 10", width: "10", height: "10", "aria-hidden": "true" }, h("rect", { class: `bar ${kind}`, width: "10", height: "10" })), text)));
