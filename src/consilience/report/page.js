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
  const reach = (t, i) => (t.l === null ? null : (t.h[i] - t.l[i]) / 2);
  const cell = (t, i) => (t.l === null ? { count: t.c[i] } : { count: t.c[i], reach: reach(t, i), low: t.l[i], high: t.h[i] });
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
    if (t.r === null) { // no intervals are known
      spec.layer?.pop();
      spec.encoding.tooltip = spec.encoding.tooltip.filter((c) => !["reach", "low", "high"].includes(c.field));
      if (spec.layer) Object.values(spec.layer[0].encoding)[0].title = "count";
    }
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
  const both = (t, i) => (t.r === null ? [show(t.c[i])] : [show(t.c[i]), " ", make("small", {}, "± " + show(reach(t, i)))]);
  const dataTable = (t) => {
    const last = t.a[t.a.length - 1], rest = t.a.slice(0, -1).join(" · ");
    const what = t.r === null ? ": counts" : t.a.length === 1 ? ": counts and 90 % intervals" : ": counts, ± half-width of the 90 % interval";
    const caption = make("caption", {}, t.a.join(" × ") + what);
    const columns = labels[last];
    if (t.a.length === 1) {
      const heads = t.r === null ? [last, "count"] : [last, "count", "90 % interval"];
      const head = make("tr", {}, ...heads.map((h) => make("th", { scope: "col" }, h)));
      const body = columns.map((v, i) => {
        const x = cell(t, i);
        return make("tr", {}, make("th", { scope: "row" }, v), make("td", {}, show(x.count)), ...(t.r === null ? [] : [make("td", {}, `${show(x.low)} to ${show(x.high)}`)]));
      });
      return make("table", { class: "data" }, caption, make("thead", {}, head), make("tbody", {}, ...body));
    }
    const head = make("tr", {}, make("th", { scope: "col" }, `${rest} \\ ${last}`), ...columns.map((v) => make("th", { scope: "col" }, v)));
    const body = rowNames(t).map((y, j) =>
      make("tr", {}, make("th", { scope: "row", title: y }, y), ...columns.map((_, k) => make("td", {}, ...both(t, j * columns.length + k)))));
    return make("table", { class: "data" }, caption, make("thead", {}, head), make("tbody", {}, ...body));
  };
  // A wide or long table scrolls inside its frame; the frame says so as long as there is more to see.
  const scroller = (t) => {
    const columns = t.a.length === 1 ? 2 : labels[t.a[t.a.length - 1]].length, rows = t.a.length === 1 ? labels[t.a[0]].length : rowNames(t).length;
    const inner = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table of ${t.a.join(" by ")}` }, dataTable(t));
    const cue = make("p", { class: "cue quiet", "aria-hidden": "true" });
    const frame = make("div", { class: "frame" }, inner, cue);
    const look = () => {
      const right = inner.scrollWidth - inner.clientWidth - inner.scrollLeft > 2, below = inner.scrollHeight - inner.clientHeight - inner.scrollTop > 2;
      frame.classList.toggle("right", right);
      frame.classList.toggle("below", below);
      const wide = inner.scrollWidth > inner.clientWidth + 2, long = inner.scrollHeight > inner.clientHeight + 2;
      cue.textContent = [wide && `${columns} columns: scroll sideways →`, long && `${rows} rows: scroll down ↓`].filter(Boolean).join("   ");
    };
    inner.addEventListener("scroll", look, { passive: true });
    new ResizeObserver(look).observe(inner);
    return frame;
  };
  const list = read("list"), meanings = read("meanings");
  const nameOf = (entry) => entry.a.join(" × ");
  const percent = (v) => (v === null ? "not known" : `${+(100 * v).toPrecision(3)} %`);
  const flags = (entry) => entry.v === null ? [] : [
    make("span", { class: `flag ${entry.b}`, title: meanings[entry.b] }, entry.b),
    ...(entry.m ? [make("span", { class: "flag misfit" }, "further off than its noise explains")] : []),
  ];
  const detail = document.getElementById("detail"), shelf = document.getElementById("listed");
  let chosen = null;
  const open = (entry) => {
    chosen = entry;
    const more = entry.u ? `, ${percent(entry.u)} of the counts could be zero` : "";
    detail.replaceChildren(
      make("h3", {}, nameOf(entry), " ", ...flags(entry)),
      make("p", { class: "quiet" }, `${number.format(entry.n)} counts. Expected total variation ${percent(entry.v)}${more}. Standard errors: ${entry.h}.`),
    );
    render();
    if (entry.id === null) {
      detail.append(make("p", {}, "This table is too large for this page; it is in the release's folder of tables."));
      return;
    }
    const t = tableOf(entry.id);
    const figure = (spec, caption) => make("figure", {}, make("figcaption", {}, caption),
      make("div", { class: "chart", role: "img", "aria-label": `Chart of ${t.a.join(" by ")}. ${caption} The numbers are in the table below.`, "data-spec": spec, "data-table": entry.id }));
    const known = t.r !== null;
    const charts = t.a.length === 1
      ? [figure(labels[t.a[0]].length > templates.long ? "columns" : "bars", known ? "Counts; the line is the 90 % interval." : "Counts.")]
      : [make("div", { class: "pair" }, figure("counts", "Counts."), ...(known ? [figure("reach", "Half-width of the 90 % interval of each count.")] : []))];
    detail.append(...charts, scroller(t));
    views.forEach((view, place) => { if (!place.isConnected) { view.finalize(); views.delete(place); } });
    detail.querySelectorAll(".chart").forEach(start);
  };

  // -- the list of tables: in groups by column, and only what can be seen of it is in the page ------------
  const HEIGHT = 40;
  const filter = document.getElementById("filter"), found = document.getElementById("found"), order = document.getElementById("order");
  const chips = [...document.querySelectorAll("#chips button")];
  const shut = new Set();
  let rows = [], groups = 0;
  const arrange = () => {
    const words = filter.value.toLowerCase().split(/[\s,×]+/).filter(Boolean);
    const wanted = chips.filter((c) => c.getAttribute("aria-pressed") === "true").map((c) => c.textContent);
    const hits = list.filter((e) => wanted.every((a) => e.a.includes(a)) && words.every((w) => nameOf(e).toLowerCase().includes(w)));
    found.textContent = `${number.format(hits.length)} of ${number.format(list.length)} tables`;
    groups = 0;
    if (order.selectedIndex) rows = hits.sort((x, y) => (y.v ?? 0) - (x.v ?? 0)).map((entry) => ({ entry }));
    else {
      const shelves = new Map(chips.map((c) => [c.textContent, []]));
      for (const e of hits) (shelves.get(e.a.find((a) => !wanted.includes(a)) ?? e.a[0]) ?? []).push(e);
      const kept = [...shelves].filter(([, entries]) => entries.length);
      groups = kept.length;
      rows = kept.flatMap(([name, entries]) => [
        { name, count: entries.length },
        ...(shut.has(name) ? [] : entries.map((entry) => ({ entry }))),
      ]);
    }
    shelf.firstChild.style.height = `${rows.length * HEIGHT}px`;
    shelf.scrollTop = 0;
    render();
  };
  const render = () => {
    const from = Math.max(0, Math.floor(shelf.scrollTop / HEIGHT) - 4), to = Math.min(rows.length, from + Math.ceil(shelf.clientHeight / HEIGHT) + 9);
    shelf.firstChild.replaceChildren(...rows.slice(from, to).map((row, k) => {
      const at = `top: ${(from + k) * HEIGHT}px`;
      if (!row.entry) {
        const head = make("div", { class: "group", style: at, role: "presentation" }, shut.has(row.name) ? "▸ " : "▾ ", row.name, make("span", { class: "quiet number" }, String(row.count)));
        head.addEventListener("click", () => { shut.has(row.name) ? shut.delete(row.name) : shut.add(row.name); const top = shelf.scrollTop; arrange(); shelf.scrollTop = top; });
        return head;
      }
      const e = row.entry;
      const option = make("div", { class: "option", style: at, role: "option", id: `option-${list.indexOf(e)}`, "aria-selected": String(e === chosen), title: nameOf(e), "aria-setsize": String(list.length) },
        make("span", { class: "name" }, nameOf(e)), ...(e.m || e.b !== "measured" ? [make("span", { class: `mark ${e.b}`, title: meanings[e.b] }, e.m ? "!" : "?")] : []),
        make("span", { class: "quiet number" }, e.v === null ? "" : percent(e.v)));
      option.addEventListener("click", () => choose(e));
      return option;
    }));
    if (chosen) shelf.setAttribute("aria-activedescendant", `option-${list.indexOf(chosen)}`);
  };
  const choose = (entry, follow = true) => {
    open(entry);
    if (follow && matchMedia("(max-width: 54rem)").matches) detail.scrollIntoView();
  };
  const reveal = (entry) => {
    const at = rows.findIndex((r) => r.entry === entry);
    if (at < 0) return;
    if (at * HEIGHT < shelf.scrollTop) shelf.scrollTop = at * HEIGHT;
    else if ((at + 1) * HEIGHT > shelf.scrollTop + shelf.clientHeight) shelf.scrollTop = (at + 1) * HEIGHT - shelf.clientHeight;
  };
  const move = (to) => {
    const entries = rows.filter((r) => r.entry).map((r) => r.entry);
    if (!entries.length) return;
    const next = entries[Math.max(0, Math.min(entries.length - 1, to(entries.indexOf(chosen), entries.length)))];
    choose(next, false);
    reveal(next);
    render();
  };
  const keys = { ArrowDown: (i) => i + 1, ArrowUp: (i) => i - 1, Home: () => 0, End: (_, n) => n - 1, PageDown: (i) => i + 10, PageUp: (i) => i - 10, Enter: (i) => Math.max(i, 0), " ": (i) => Math.max(i, 0) };
  shelf.addEventListener("keydown", (event) => { if (keys[event.key]) { event.preventDefault(); move(keys[event.key]); } });
  shelf.addEventListener("scroll", render, { passive: true });
  new ResizeObserver(render).observe(shelf);
  filter.addEventListener("input", arrange);
  order.addEventListener("change", arrange);
  chips.forEach((chip) => chip.addEventListener("click", () => {
    chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
    arrange();
  }));
  arrange();

  addEventListener("beforeprint", () => document.querySelectorAll(".chart").forEach(start));
  const follow = () => {
    if (location.hash === "#everything") return document.querySelectorAll(".chart").forEach(start);
    const name = /^#table-(\w+)$/.exec(location.hash)?.[1];
    const entry = name && list.find((e) => e.id === name);
    if (!entry) return;
    filter.value = "";
    chips.forEach((c) => c.setAttribute("aria-pressed", "false"));
    shut.clear();
    arrange();
    choose(entry);
    reveal(entry);
    render();
    document.getElementById("tables").scrollIntoView();
  };
  addEventListener("hashchange", follow);

  // -- find an answer --------------------------------------------------------------------------------------
  const which = document.getElementById("which"), where = document.getElementById("where"), answer = document.getElementById("answer");
  const respond = () => {
    const t = tableOf(which.value);
    const codes = [...where.querySelectorAll("select")].map((s) => s.selectedIndex);
    const i = t.a.reduce((at, a, k) => at * labels[a].length + codes[k], 0);
    const x = cell(t, i);
    const wide = t.r === null ? "; how far it is from the truth is not known" : ` with a 90 % interval from ${show(x.low)} to ${show(x.high)}`;
    answer.replaceChildren(make("span", { class: "big number" }, show(x.count)), wide);
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
  open(list.find((e) => e.id === which?.value) ?? list[0]);
  reveal(chosen);
  render();

  watch(document);
  follow();
})();
