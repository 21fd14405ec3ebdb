"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const themes = read("themes"), templates = read("templates"), labels = read("labels");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
  const show = (v) => number.format(Math.abs(v) >= 100 ? Math.round(v) : v);
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [k, v] of Object.entries(attributes)) element.setAttribute(k, v);
    element.append(...children);
    return element;
  };

  // A table as it is embedded: attributes a, counts c and half-widths r (one number if all are equal), cells in row order.
  const tables = new Map();
  const tableOf = (id) => {
    if (!tables.has(id)) tables.set(id, read(id));
    return tables.get(id);
  };
  const reach = (t, i) => (t.h[i] - t.l[i]) / 2;
  const cell = (t, i) => ({ count: t.c[i], reach: reach(t, i), low: t.l[i], high: t.h[i] });
  const rowNames = (t) => t.a.slice(0, -1).reduce((names, a) => names.flatMap((n) => labels[a].map((v) => (n ? n + " · " + v : v))), [""]);
  const cells = (t) => {
    const columns = labels[t.a[t.a.length - 1]];
    if (t.a.length === 1) return columns.map((label, i) => ({ label, ...cell(t, i) }));
    return rowNames(t).flatMap((y, j) => columns.map((x, k) => ({ x, y, ...cell(t, j * columns.length + k) })));
  };

  // -- charts ----------------------------------------------------------------------------------------
  const tip = document.getElementById("tip");
  const tooltip = (_, event, __, value) => {
    tip.hidden = !value;
    if (!value) return;
    tip.replaceChildren(...Object.entries(value).map(([k, v]) => make("div", {}, `${k}: ${v}`)));
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 12, innerWidth - box.width - 8)) + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - box.height - 8)) + "px";
  };
  const specOf = (place) => {
    if (!place.dataset.table) return read(place.dataset.spec);
    const t = tableOf(place.dataset.table);
    const spec = structuredClone(templates[place.dataset.spec]);
    spec.data.values = cells(t);
    const last = t.a[t.a.length - 1], rest = t.a.slice(0, -1).join(" · ");
    if (t.a.length > 1) {
      spec.encoding.x.title = last;
      spec.encoding.y.title = rest;
      spec.encoding.tooltip[0].title = rest;
      spec.encoding.tooltip[1].title = last;
      const many = rowNames(t).length;
      spec.height = many * (many > 60 ? 6 : many > 30 ? 12 : 20);
    } else if (place.dataset.spec === "bars") spec.height = 22 * spec.data.values.length;
    return spec;
  };
  const views = new Map();
  const draw = async (place) => {
    if (views.has(place)) views.get(place).finalize();
    const spec = specOf(place);
    const x = spec.encoding?.x;
    if (x?.axis?.labelAngle) {
      const room = (place.clientWidth - 120) / new Set(spec.data.values.map((d) => d[x.field])).size; // pixels per label
      x.axis.labelAngle = room < 18 ? -90 : -45;
      x.axis.labelOverlap = room < 12;
    }
    const config = dark.matches ? themes.dark : themes.light;
    const many = (spec.data?.values?.length ?? 0) > 1500;
    views.set(place, await vegaEmbed(place, spec, { config, tooltip, actions: false, defaultStyle: false, renderer: many ? "canvas" : "svg" }));
    place.dataset.drawn = "yes";
  };
  const pending = new Set();
  const start = (place) => {
    if (place.dataset.drawn || pending.has(place)) return;
    pending.add(place);
    draw(place).catch((error) => {
      place.textContent = "This chart could not be drawn.";
      console.error(error);
    });
  };
  const watcher = new IntersectionObserver((seen) => {
    for (const entry of seen) if (entry.isIntersecting) { watcher.unobserve(entry.target); start(entry.target); }
  }, { rootMargin: "300px" });
  const watch = (root) => root.querySelectorAll(".chart").forEach((place) => watcher.observe(place));
  dark.addEventListener("change", () => views.forEach((_, place) => draw(place)));

  // -- tables ----------------------------------------------------------------------------------------
  const both = (t, i) => [show(t.c[i]), " ", make("small", {}, "± " + show(reach(t, i)))];
  const dataTable = (t) => {
    const last = t.a[t.a.length - 1], rest = t.a.slice(0, -1).join(" · ");
    const caption = make("caption", {}, t.a.join(" × ") + (t.a.length === 1 ? ": counts and 90 % intervals" : ": counts, ± half-width of the 90 % interval"));
    const columns = labels[last];
    if (t.a.length === 1) {
      const head = make("tr", {}, ...[last, "count", "90 % interval"].map((h) => make("th", { scope: "col" }, h)));
      const body = columns.map((v, i) => {
        const x = cell(t, i);
        return make("tr", {}, make("th", { scope: "row" }, v), make("td", {}, show(x.count)), make("td", {}, `${show(x.low)} to ${show(x.high)}`));
      });
      return make("table", { class: "data" }, caption, make("thead", {}, head), make("tbody", {}, ...body));
    }
    const head = make("tr", {}, make("th", { scope: "col" }, `${rest} \\ ${last}`), ...columns.map((v) => make("th", { scope: "col" }, v)));
    const body = rowNames(t).map((y, j) =>
      make("tr", {}, make("th", { scope: "row", title: y }, y), ...columns.map((_, k) => make("td", {}, ...both(t, j * columns.length + k)))));
    return make("table", { class: "data" }, caption, make("thead", {}, head), make("tbody", {}, ...body));
  };
  const open = (details) => {
    const body = details.querySelector(".body");
    const id = body.dataset.table;
    if (!id || body.dataset.filled) return;
    body.dataset.filled = "yes";
    const t = tableOf(id);
    const figure = (spec, caption) => make("figure", {}, make("figcaption", {}, caption),
      make("div", { class: "chart", role: "img", "aria-label": `Chart of ${t.a.join(" by ")}. ${caption} The numbers are in the table below.`, "data-spec": spec, "data-table": id }));
    const charts = t.a.length === 1
      ? [figure(labels[t.a[0]].length > templates.long ? "columns" : "bars", "Counts; the line is the 90 % interval.")]
      : [make("div", { class: "pair" }, figure("counts", "Counts."), figure("reach", "Half-width of the 90 % interval of each count."))];
    body.append(...charts, make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table of ${t.a.join(" by ")}` }, dataTable(t)));
    watch(body);
  };
  document.querySelectorAll("details").forEach((details) => details.addEventListener("toggle", () => { if (details.open) open(details); }));
  const everything = () => {
    document.querySelectorAll("details").forEach((details) => { details.open = true; open(details); });
    document.querySelectorAll(".chart").forEach(start);
  };
  addEventListener("beforeprint", () => document.querySelectorAll("main > section .chart").forEach(start));
  const follow = () => {
    if (location.hash === "#everything") return everything();
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target?.tagName === "DETAILS") { target.open = true; open(target); target.scrollIntoView(); }
  };
  addEventListener("hashchange", follow);

  // -- find a table, find an answer --------------------------------------------------------------------
  const filter = document.getElementById("filter"), listed = [...document.querySelectorAll("details[data-name]")];
  const found = document.getElementById("found");
  filter?.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/[\s,×]+/).filter(Boolean);
    let count = 0;
    for (const details of listed) {
      const hit = words.every((w) => details.dataset.name.includes(w));
      details.hidden = !hit;
      count += hit;
    }
    found.textContent = `${count} of ${listed.length} tables`;
  });
  const order = document.getElementById("order"), shelf = document.getElementById("listed");
  order?.addEventListener("change", () => {
    const worst = (a, b) => b.dataset.variation - a.dataset.variation;
    shelf.append(...(order.selectedIndex ? [...listed].sort(worst) : listed));
  });
  const which = document.getElementById("which"), where = document.getElementById("where"), answer = document.getElementById("answer");
  const respond = () => {
    const t = tableOf(which.value);
    const codes = [...where.querySelectorAll("select")].map((s) => s.selectedIndex);
    const i = t.a.reduce((at, a, k) => at * labels[a].length + codes[k], 0);
    const x = cell(t, i);
    answer.replaceChildren(make("span", { class: "big number" }, show(x.count)), ` with a 90 % interval from ${show(x.low)} to ${show(x.high)}`);
  };
  let begin = (where?.dataset.start ?? "").split(" ").map(Number);
  const offer = () => {
    const t = tableOf(which.value);
    where.replaceChildren(...t.a.map((a, k) => {
      const select = make("select", {}, ...labels[a].map((v) => make("option", {}, v)));
      select.selectedIndex = begin[k] ?? 0;
      select.addEventListener("change", respond);
      return make("label", {}, a, select);
    }));
    begin = [];
    respond();
  };
  which?.addEventListener("change", offer);
  if (which) offer();

  watch(document);
  follow();
})();
