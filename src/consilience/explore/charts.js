"use strict";
// Charts as SVG. Each draws a grid: { rows, columns, panels, at(i, j, k) -> number or null }, whose numbers have an interval
// wherever one is known. Labels are text nodes, never markup.

const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes)) if (v !== null) element.setAttribute(k, v);
  element.append(...children);
  return element;
};
const draw = (tag, attributes = {}, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attributes)) if (v !== null) element.setAttribute(k, v);
  element.append(...children);
  return element;
};
// Style goes through the object model: a page that forbids style attributes allows that.
const styled = (element, rules) => { Object.assign(element.style, rules); return element; };
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const dark = matchMedia("(prefers-color-scheme: dark)");
const CATEGORIES = {
  light: ["#2b6ca3", "#c5671c", "#23796b", "#7d4a9c", "#8a7412", "#b1364a"],
  dark: ["#8fc1f0", "#f0a868", "#6fd0bd", "#d3a4e8", "#e8d36a", "#f08d9b"],
};
const category = (k) => CATEGORIES[dark.matches ? "dark" : "light"][k % 6];

// -- words that fit -------------------------------------------------------------------------------------
const pen = document.createElement("canvas").getContext("2d");
const widthOf = (text, font = "12px system-ui, sans-serif") => { pen.font = font; return pen.measureText(text).width; };
const fitted = (text, room) => {
  if (widthOf(text) <= room) return text;
  let [low, high] = [0, Math.min(text.length, 200)];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (widthOf(text.slice(0, middle) + "…") <= room) low = middle; else high = middle - 1;
  }
  return low > 0 ? text.slice(0, low).trimEnd() + "…" : "";
};
const words = (text, x, y, attributes = {}, room = Infinity) => {
  const shown = fitted(text, room);
  const element = draw("text", { x, y, ...attributes }, shown);
  if (shown !== text) element.append(draw("title", {}, text));
  return element;
};

// -- numbers --------------------------------------------------------------------------------------------
const format = (digits) => new Intl.NumberFormat("en", digits);
const whole = format({ maximumFractionDigits: 0 }), one = format({ maximumFractionDigits: 1 }), four = format({ maximumSignificantDigits: 4 });
const shorter = format({ notation: "compact", maximumSignificantDigits: 3 });
const shown = (v, unit) => {
  if (v === null || v === undefined) return "–";
  if (unit === "share") return `${one.format(100 * v)} %`;
  return (Math.abs(v) >= 1000 ? whole : unit === "count" || Math.abs(v) >= 100 ? one : four).format(v);
};
const brief = (v, unit) => (v === null ? "–" : unit === "share" ? `${one.format(100 * v)}%` : Math.abs(v) < 1000 ? shown(v, unit) : shorter.format(v));

// -- scales ---------------------------------------------------------------------------------------------
const ends = (numbers, zero) => {
  let [least, most] = zero ? [0, 0] : [Infinity, -Infinity];
  for (const n of numbers) {
    if (n === null || n.value === null) continue;
    least = Math.min(least, n.value, n.low ?? n.value);
    most = Math.max(most, n.value, n.high ?? n.value);
  }
  if (!Number.isFinite(least)) return [0, 1];
  return least === most ? [least, least + 1] : [least, most];
};
const ticksOf = (least, most, count) => {
  const rough = (most - least) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let t = Math.ceil(least / step - 1e-9) * step; t <= most + 1e-9 * step; t += step) found.push(Math.abs(t) < 1e-12 * step ? 0 : t);
  return found;
};
const everything = (grid) => {
  const found = [];
  for (let k = 0; k < Math.max(1, grid.panels.length); k++)
    for (let i = 0; i < Math.max(1, grid.rows.length); i++)
      for (let j = 0; j < Math.max(1, grid.columns.length); j++) found.push(grid.at(i, j, k));
  return found;
};

// -- what a mark says when it is pointed at ---------------------------------------------------------------
const tip = () => document.getElementById("tip");
const tells = (element, lines) => {
  element.classList.add("hover");
  element.addEventListener("pointermove", (event) => {
    tip().replaceChildren(...lines.filter(Boolean).map((line, i) => make(i ? "div" : "strong", { dir: "auto" }, line)));
    tip().hidden = false;
    const box = tip().getBoundingClientRect();
    tip().style.left = Math.max(4, Math.min(event.clientX + 12, innerWidth - box.width - 8)) + "px";
    tip().style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - box.height - 8)) + "px";
  });
  element.addEventListener("pointerleave", () => { tip().hidden = true; });
  return element;
};
const told = (n, unit, level) => [
  shown(n.value, unit) + (n.stderr === null ? "" : ` ± ${shown(n.stderr, unit)}`),
  n.low === null ? "no error is known" : `${Math.round(100 * level)} % interval: ${shown(n.low, unit)} to ${shown(n.high, unit)}`,
  n.least === undefined ? "" : `bins leave open: ${shown(n.least, unit)} to ${shown(n.most, unit)}`,
];
const picture = (width, height, label) => draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });

// -- bars -----------------------------------------------------------------------------------------------
const bars = (grid, j, k, room, scale, label) => {
  const { unit, level } = grid, step = 24, top = 4, foot = 26;
  const left = Math.min(Math.max(40, ...grid.rows.map((r) => Math.min(widthOf(r), 260) + 14)), 0.38 * room), right = 96;
  const width = Math.max(260, room), [least, most] = scale;
  const x = (v) => left + ((v - least) / (most - least)) * (width - left - right);
  const height = top + step * grid.rows.length + foot, svg = picture(width, height, label);
  for (const t of ticksOf(least, most, Math.max(2, Math.floor((width - left - right) / 90)))) {
    svg.append(draw("line", { class: t === 0 ? "zero" : "grid", x1: x(t), x2: x(t), y1: top, y2: height - foot }));
    svg.append(words(brief(t, unit), x(t), height - 8, { class: "tick", "text-anchor": "middle" }));
  }
  grid.rows.forEach((row, i) => {
    const n = grid.at(i, j, k), y = top + step * i;
    svg.append(words(row, left - 8, y + 16, { "text-anchor": "end" }, left - 12));
    if (n === null || n.value === null) return svg.append(words("nobody", x(Math.max(0, least)) + 6, y + 16, { class: "quiet" }));
    const from = x(Math.max(least, Math.min(most, 0))), to = x(n.value);
    const unclear = grid.compared && n.low !== null && n.low <= 0 && n.high >= 0;
    const group = draw("g", {}, draw("rect", { class: unclear ? "bar within" : "bar", x: Math.min(from, to), y: y + 4, width: Math.max(1, Math.abs(to - from)), height: step - 9, rx: 2 }));
    if (n.low !== null) group.append(draw("path", { class: "whisker", d: `M${x(n.low)} ${y + 8}v7M${x(n.low)} ${y + 11.5}H${x(n.high)}M${x(n.high)} ${y + 8}v7` }));
    group.append(words(shown(n.value, unit), Math.max(to, n.high === null ? to : x(n.high), from) + 7, y + 16, { class: "small" }));
    svg.append(tells(group, [row, ...told(n, unit, level), unclear ? "smaller than its error" : ""]));
  });
  return svg;
};

// -- lines ----------------------------------------------------------------------------------------------
// One line per column over ordered rows; what has no place in the order, (missing), stands at the right as a point.
const outside = (label) => /^\(.*\)$/.test(label);
const lines = (grid, k, room, scale, label) => {
  const { unit, level } = grid, [least, most] = scale, left = 62, right = 18, top = 12, width = Math.max(260, room), height = 300;
  const turned = grid.rows.some((r) => widthOf(r) > (width - left) / grid.rows.length - 6), foot = turned ? 84 : 30;
  const y = (v) => top + (1 - (v - least) / (most - least)) * (height - top - foot);
  const x = (i) => left + ((i + 0.5) / grid.rows.length) * (width - left - right);
  const svg = picture(width, height, label);
  for (const t of ticksOf(least, most, 5)) {
    svg.append(draw("line", { class: t === 0 ? "zero" : "grid", x1: left, x2: width - right, y1: y(t), y2: y(t) }));
    svg.append(words(brief(t, unit), left - 8, y(t) + 4, { class: "tick", "text-anchor": "end" }));
  }
  const every = Math.max(1, Math.ceil((grid.rows.length * (turned ? 15 : 8)) / (width - left - right)));
  grid.rows.forEach((row, i) => {
    if (i % every) return;
    const at = turned ? { "text-anchor": "end", transform: `rotate(-45 ${x(i)} ${height - foot + 14})` } : { "text-anchor": "middle" };
    svg.append(words(row, x(i), height - foot + (turned ? 14 : 18), { class: "tick", ...at }, turned ? 96 : Infinity));
  });
  const columns = grid.columns.length ? grid.columns : [""];
  columns.forEach((column, j) => {
    const stroke = columns.length > 1 ? category(j) : colour("accent");
    const there = grid.rows.map((row, i) => ({ row, i, n: grid.at(i, j, k) })).filter((p) => p.n !== null && p.n.value !== null);
    const inside = there.filter((p) => !outside(p.row));
    const known = inside.filter((p) => p.n.low !== null);
    if (known.length > 1) {
      const up = known.map((p) => `${x(p.i)} ${y(p.n.high)}`), down = known.map((p) => `${x(p.i)} ${y(p.n.low)}`).reverse();
      svg.append(draw("path", { class: "band", fill: stroke, d: `M${[...up, ...down].join("L")}Z` }));
    }
    if (inside.length > 1) svg.append(draw("path", { class: "line", stroke, d: `M${inside.map((p) => `${x(p.i)} ${y(p.n.value)}`).join("L")}` }));
    for (const { row, i, n } of there) {
      const mark = draw("g", {});
      if (n.low !== null) mark.append(styled(draw("path", { class: "whisker", d: `M${x(i)} ${y(n.low)}V${y(n.high)}` }), { stroke }));
      mark.append(draw("circle", { cx: x(i), cy: y(n.value), r: grid.rows.length > 60 ? 2 : 3.5, fill: stroke }), draw("circle", { cx: x(i), cy: y(n.value), r: 9, fill: "transparent" }));
      svg.append(tells(mark, [[row, column].filter(Boolean).join(" · "), ...told(n, unit, level)]));
    }
  });
  return svg;
};

// -- heat maps ------------------------------------------------------------------------------------------
const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const between = (a, b, t) => a.map((v, i) => Math.round(v + (b[i] - v) * t));
const ramps = () => {
  const one = ["low", "middle", "high"].map((name) => rgb(colour(name)));
  const warm = rgb(dark.matches ? "#f0a868" : "#b3561a");
  return {
    up: (t) => (t < 0.5 ? between(one[0], one[1], 2 * t) : between(one[1], one[2], 2 * t - 1)),
    both: (t) => (t < 0 ? between(one[0], warm, -t) : between(one[0], rgb(colour("middle")), t)),
  };
};
const readable = ([r, g, b]) => (0.2126 * (r / 255) ** 2.2 + 0.7152 * (g / 255) ** 2.2 + 0.0722 * (b / 255) ** 2.2 > 0.22 ? "#10161d" : "#ffffff");
const shade = (grid, scale) => {
  const [least, most] = scale, { up, both } = ramps(), far = Math.max(Math.abs(least), Math.abs(most)) || 1;
  return (v) => (grid.compared ? both(v / far) : up(Math.max(0, Math.min(1, (v - least) / (most - least)))));
};
// The foot of a cell holds its interval, on the scale of the colours from its left to its right.
const heat = (grid, k, room, scale, label) => {
  const { unit, level } = grid, [least, most] = scale, fill = shade(grid, scale);
  const left = Math.min(Math.max(40, ...grid.rows.map((r) => Math.min(widthOf(r), 240) + 12)), 0.36 * room);
  const cell = Math.max(26, Math.min(110, (room - left - 4) / grid.columns.length)), tall = grid.rows.length > 40 ? 18 : 30;
  const turned = grid.columns.some((c) => widthOf(c) > cell - 6);
  const top = turned ? Math.min(110, 16 + Math.max(...grid.columns.map((c) => widthOf(c))) * 0.72) : 24;
  const width = left + cell * grid.columns.length + (turned ? 40 : 4), height = top + tall * grid.rows.length + 4, svg = picture(width, height, label);
  grid.columns.forEach((column, j) => {
    const at = left + cell * (j + 0.5);
    svg.append(words(column, at, top - 8, turned ? { transform: `rotate(-45 ${at} ${top - 8})` } : { "text-anchor": "middle" }, turned ? 130 : cell - 4));
  });
  grid.rows.forEach((row, i) => {
    svg.append(words(row, left - 8, top + tall * i + tall / 2 + 4, { "text-anchor": "end" }, left - 12));
    grid.columns.forEach((column, j) => {
      const n = grid.at(i, j, k), x = left + cell * j, y = top + tall * i;
      if (n === null || n.value === null) return;
      const back = fill(n.value), ink = readable(back), unclear = n.low !== null && n.low <= 0 && n.high >= 0;
      const group = draw("g", {}, draw("rect", { x: x + 1, y: y + 1, width: cell - 2, height: tall - 2, rx: 3, fill: `rgb(${back})` }));
      const text = brief(n.value, unit), deep = tall >= 30;
      if (widthOf(text) <= cell - 6) group.append(styled(draw("text", { x: x + cell / 2, y: y + (deep ? 16 : tall / 2 + 4), "text-anchor": "middle" }, text), { fill: ink, ...(unclear ? { opacity: ".65", fontStyle: "italic" } : {}) }));
      if (deep && n.low !== null) {
        const along = (v) => x + 4 + ((Math.max(least, Math.min(most, v)) - least) / (most - least)) * (cell - 8);
        const a = along(n.low), b = Math.max(along(n.high), a + 1.5);
        group.append(draw("path", { stroke: ink, "stroke-width": 1, opacity: 0.35, d: `M${x + 4} ${y + 24.5}H${x + cell - 4}` }));
        group.append(draw("path", { stroke: ink, "stroke-width": 3, d: `M${a} ${y + 24.5}H${b}` }));
      }
      svg.append(tells(group, [`${row} · ${column}`, ...told(n, unit, level), unclear ? "its interval reaches zero" : ""]));
    });
  });
  return svg;
};

// -- which chart ----------------------------------------------------------------------------------------
const kindOf = (grid, wanted) => {
  const ordered = grid.ordered && grid.rows.length >= 4;
  if (grid.compared && !wanted && !grid.columns.length) return "bars";
  if (!grid.columns.length) return wanted === "lines" || (wanted !== "bars" && ordered && !grid.sorted) ? "lines" : "bars";
  if (wanted) return wanted;
  return ordered && grid.columns.length <= 6 && !grid.sorted ? "lines" : "heat";
};
const legendOf = (grid, kind, scale) => {
  const parts = [];
  if (kind === "lines" && grid.columns.length) grid.columns.forEach((c, j) => {
    const dot = make("i", {});
    dot.style.background = category(j);
    parts.push(make("span", { dir: "auto" }, dot, c));
  });
  if (kind === "heat") {
    const ramp = make("span", { class: "ramp" }), fill = shade(grid, scale), [least, most] = scale;
    ramp.style.background = `linear-gradient(to right, ${[0, 0.25, 0.5, 0.75, 1].map((t) => `rgb(${fill(least + t * (most - least))})`).join(",")})`;
    parts.push(brief(least, grid.unit), ramp, brief(most, grid.unit), ...(everything(grid).some((n) => n && n.low !== null) ? [make("span", {}, "bar at the foot: the interval, on this scale")] : []));
  }
  return parts.length ? [make("div", { class: "legend" }, ...parts)] : [];
};
// The chart of a grid for a width in pixels; what = in words, for those who do not see it.
const chartOf = (grid, wanted, room, what) => {
  const kind = kindOf(grid, wanted);
  if (!grid.rows.length) {
    const n = grid.at(0, 0, 0), [value, interval, open] = told(n, grid.unit, grid.level);
    return [make("div", { class: "huge" }, value.split(" ± ")[0]), make("p", {}, [value.includes("±") ? `± ${value.split(" ± ")[1]}` : "", interval, open].filter(Boolean).join("; "))];
  }
  const scale = ends(everything(grid), kind === "bars" || grid.unit !== "number" || grid.compared);
  if (kind === "lines" && scale[1] > scale[0]) scale[1] += 0.04 * (scale[1] - scale[0]);
  const several = grid.panels.length > 0 || (kind === "bars" && grid.columns.length > 0);
  const wide = several ? Math.max(280, Math.min(room, room / Math.max(1, Math.floor((room + 19) / 371)) - 19)) : room;
  const one = (j, k, label) => (kind === "bars" ? bars(grid, j, k, wide, scale, label) : kind === "lines" ? lines(grid, k, wide, scale, label) : heat(grid, k, wide, scale, label));
  if (!several) return [...legendOf(grid, kind, scale), one(0, 0, what)];
  const frames = [];
  (grid.panels.length ? grid.panels : [""]).forEach((panel, k) => {
    (kind === "bars" && grid.columns.length ? grid.columns : [""]).forEach((column, j) => {
      const name = [panel, column].filter(Boolean).join(" · ");
      const inner = make("div", {}, one(j, k, `${what}: ${name}`));
      inner.style.overflowX = "auto";
      frames.push(make("div", {}, make("h3", { dir: "auto" }, name), inner));
    });
  });
  return [...legendOf(grid, kind, scale), make("div", { class: "panels" }, ...frames.slice(0, 60)), ...(frames.length > 60 ? [make("p", { class: "quiet" }, `the first 60 of ${frames.length} panels; the table has all`)] : [])];
};
