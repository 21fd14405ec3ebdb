// The question in the form, in the address and in words; its answer from the server, or from the files beside the page.

const facts = JSON.parse(document.getElementById("facts").textContent);
const $ = (id) => document.getElementById(id);
const columns = new Map(facts.columns.map((c) => [c.name, c]));
const OF_NUMBERS = ["mean", "median", "quantile", "sum"];
const live = facts.held === null;

// -- the state, and its address ---------------------------------------------------------------------------
const START = { measure: "count", of: "", at: "0.9", is: [], by: facts.start, where: [], compare: "", one: "", two: "", percent: "", sort: "", chart: "", layout: "", level: String(facts.level) };
let state = structuredClone(START);
const PLAIN = ["measure", "of", "at", "compare", "one", "two", "percent", "sort", "chart", "layout", "level"];

const addressOf = (s) => {
  const p = new URLSearchParams();
  for (const key of PLAIN) if (s[key] !== START[key]) p.set(key, s[key]);
  for (const v of s.is) p.append("is", v);
  for (const name of s.by) p.append("by", name);
  if (!s.by.length) p.set("by", "");
  for (const [name, labels] of s.where) { p.append("where", name); for (const v of labels) p.append("label", v); }
  return "#" + p;
};
const stateOf = (hash) => {
  if (hash.length < 2) return structuredClone(START);
  const s = { ...structuredClone(START), by: [], is: [], where: [] };
  for (const [key, value] of new URLSearchParams(hash.slice(1))) {
    if (PLAIN.includes(key)) s[key] = value;
    else if (key === "by" && columns.has(value)) s.by.push(value);
    else if (key === "is") s.is.push(value);
    else if (key === "where" && columns.has(value)) s.where.push([value, []]);
    else if (key === "label" && s.where.length) s.where.at(-1)[1].push(value);
  }
  return s;
};

// -- the question in the words of `consilience answer` -----------------------------------------------------
const quote = (word) => (/^[\p{L}\p{N}_.+-]+$/u.test(word) ? word : '"' + word.replaceAll('"', '""') + '"');
const condition = (name, labels) => {
  const all = columns.get(name).labels, left = all.filter((v) => !labels.includes(v));
  const [sign, named] = left.length && left.length < labels.length ? ["!=", left] : ["=", labels];
  return quote(name) + sign + named.map(quote).join("|");
};
const measureOf = (s, within = []) => {
  if (s.measure === "share") return `share(${condition(s.of, s.is)})`;
  if (s.measure === "quantile") return `quantile(${quote(s.of)}, ${s.at})`;
  if (s.measure !== "count") return `${s.measure}(${quote(s.of)})`;
  if (!s.percent) return "";
  const kept = { all: [], row: [s.by[0], s.by[2]], column: [s.by[1], s.by[2]] }[s.percent];
  return `share(${[...kept.filter(Boolean), ...within].map(quote).join(", ")})`;
};
const whereOf = (s) => s.where.filter(([, labels]) => labels.length).map(([name, labels]) => condition(name, labels));
// What is asked for: one question, or with two groups the difference and the numbers of both.
const askedOf = (s) => {
  const base = { by: s.by, where: whereOf(s).join(","), level: s.level, filters: s.where.filter(([, labels]) => labels.length) };
  if (!s.compare) return [{ ...base, ask: measureOf(s) }];
  const groups = [s.one, s.two].map((v) => condition(s.compare, [v]));
  const both = [...whereOf(s), condition(s.compare, [s.one, s.two])].join(",");
  return [
    { ...base, ask: `difference(${measureOf(s) || "count()"}, ${groups.join(", ")})` },
    { ...base, ask: measureOf(s, [s.compare]), by: [...s.by, s.compare], where: both },
  ];
};
// The command and the line of Python that give the same numbers.
const shellWord = (w) => (/^[\w@%+=:,./-]+$/.test(w) ? w : "'" + w.replaceAll("'", `'"'"'`) + "'");
const commandOf = (a) => ["consilience", "answer", facts.folder, ...(a.ask ? [a.ask] : []), ...(a.by.length ? ["--by", a.by.map(quote).join(",")] : []),
  ...(a.where ? ["--where", a.where] : []), ...(Number(a.level) === facts.level ? [] : ["--level", a.level])].map(shellWord).join(" ");
const pythonOf = (a) => {
  const by = a.by.length === 1 && quote(a.by[0]) === a.by[0] ? JSON.stringify(a.by[0]) : JSON.stringify(a.by);
  const given = [...(a.ask ? [JSON.stringify(a.ask)] : []), ...(a.by.length ? [`by=${by}`] : []), ...(a.where ? [`where=${JSON.stringify(a.where)}`] : []), ...(Number(a.level) === facts.level ? [] : [`level=${a.level}`])];
  return `cs.read_release(${JSON.stringify(facts.folder)}).answer(${given.join(", ")})`;
};
const queryOf = (asked) => {
  const p = new URLSearchParams();
  if (asked.ask) p.set("ask", asked.ask);
  for (const name of asked.by) p.append("by", name);
  if (asked.where) p.set("where", asked.where);
  if (Number(asked.level) !== facts.level) p.set("level", asked.level);
  return String(p);
};
const inWords = (s) => {
  const what = { count: "People", share: `Share of people with ${s.of} ${few(s.is)}`, quantile: `${s.of}, quantile ${s.at}` }[s.measure] ?? `${s.measure[0].toUpperCase()}${s.measure.slice(1)} of ${s.of}`;
  const groups = s.compare ? `, ${s.compare} ${s.one} less ${s.two}` : "";
  const among = s.where.filter(([, l]) => l.length).map(([n, l]) => `${n} ${few(l)}`).join(", ");
  const part = { all: ", in per cent of everybody", row: `, in per cent of each ${s.by[0]}`, column: `, in per cent of each ${s.by[1]}` }[s.measure === "count" ? s.percent : ""] ?? "";
  return what + (s.by.length ? ` by ${s.by.join(", ")}` : "") + groups + part + (among ? `; ${among}` : "");
};
const few = (labels) => (labels.length > 4 ? `${labels.slice(0, 3).join(", ")} and ${labels.length - 3} more` : labels.join(" or "));

// -- answers ----------------------------------------------------------------------------------------------
// An export has a file for each family of columns: { question: answer }. One label of a column is a slice of the table that has it.
const arrived = new Map();
window.answered = (file, answers) => arrived.get(file).resolve(answers);
const load = (file) => {
  if (!arrived.has(file)) {
    const waits = {};
    waits.promise = new Promise((resolve, reject) => {
      waits.resolve = resolve;
      const script = make("script", { src: file });
      script.onerror = () => { arrived.delete(file); reject(new Error(`the file ${file} must lie beside this page, it does not`)); };
      document.head.append(script);
    });
    arrived.set(file, waits);
  }
  return arrived.get(file).promise;
};
const fromFile = async (asked) => {
  const wanted = new Map(asked.filters.map(([name, labels]) => [name, labels]));
  const all = [...asked.by, ...[...wanted.keys()].filter((n) => !asked.by.includes(n))];
  const sliced = asked.ask.startsWith("share") ? wanted.size === 0 : [...wanted].every(([n, l]) => l.length === 1 || asked.by.includes(n));
  const entry = facts.held.find(([by, asks]) => by.length === all.length && all.every((n) => by.includes(n)) && asks.includes(asked.ask));
  if (!entry || !sliced || Number(asked.level) !== facts.level) throw new Error("this copy of the page holds the tables that were prepared for it, and this is none of them: ask with the command below, or with consilience explore");
  const a = (await load(entry[2]))[asked.ask];
  const here = asked.by.map((n) => a.by.indexOf(n));
  const rank = a.labels.map((l, i) => i).filter((i) => a.by.every((n, d) => !wanted.has(n) || wanted.get(n).includes(a.labels[i][d])));
  const place = asked.by.map((n) => new Map(labelsOf(n).map((v, i) => [v, i])));
  const before = (i, j) => { for (const [d, at] of here.entries()) { const less = place[d].get(a.labels[i][at]) - place[d].get(a.labels[j][at]); if (less) return less; } return 0; };
  rank.sort(before);
  const taken = Object.fromEntries(["value", "stderr", "low", "high", "least", "most"].filter((k) => a[k]).map((k) => [k, rank.map((i) => a[k][i])]));
  return { ...a, ...taken, by: asked.by, labels: rank.map((i) => here.map((at) => a.labels[i][at])) };
};
const kept = new Map();
const ask = (asked) => {
  const query = queryOf(asked);
  if (!kept.has(query)) {
    const found = live
      ? fetch("answer.json?" + query).then(async (reply) => {
        const said = await reply.json();
        if (!reply.ok) throw new Error(said.error);
        return said;
      })
      : fromFile(asked);
    found.catch(() => kept.delete(query));
    kept.set(query, found);
  }
  return kept.get(query);
};
const numbersOf = (a) => a.labels.map((_, i) => {
  const n = { value: a.value[i], stderr: a.stderr[i], low: a.low[i], high: a.high[i] };
  return a.least === undefined ? n : { ...n, least: a.least[i], most: a.most[i] };
});
const distinct = (values) => [...new Set(values)];
const unitOf = (s) => (s.measure === "count" ? (s.percent ? "share" : "count") : s.measure === "share" ? "share" : "number");

const gridOf = (s, answer, own) => {
  const numbers = numbersOf(answer), place = new Map(answer.labels.map((l, i) => [JSON.stringify(l), i]));
  let [rows, cols, panels] = [0, 1, 2].map((d) => distinct(answer.labels.map((l) => l[d]).filter((v) => v !== undefined)));
  const at = (i, j, k) => numbers[place.get(JSON.stringify([rows[i], cols[j], panels[k]].slice(0, answer.by.length)))] ?? null;
  if (s.sort && rows.length) {
    const size = new Map(rows.map((row, i) => [row, everything({ rows: [row], columns: cols, panels, at: (_, j, k) => at(i, j, k) }).reduce((sum, n) => sum + (n?.value ?? 0), 0)]));
    const order = { down: (a, b) => size.get(b) - size.get(a), up: (a, b) => size.get(a) - size.get(b), name: (a, b) => a.localeCompare(b) }[s.sort];
    rows = [...rows].sort(order);
  }
  const items = answer.labels.map((labels, i) => ({ labels, n: numbers[i] }));
  if (own) {
    const others = numbersOf(own), where = new Map(own.labels.map((l, i) => [JSON.stringify(l), i]));
    for (const item of items) item.own = [s.one, s.two].map((v) => others[where.get(JSON.stringify([...item.labels, v]))] ?? null);
  }
  return {
    rows, columns: cols, panels, at, items, names: answer.by, unit: unitOf(s), level: answer.level, sorted: Boolean(s.sort), compared: Boolean(own),
    ordered: answer.by.length > 0 && columns.get(answer.by[0]).ordered, measure: own ? "difference" : unitOf(s) === "share" ? "share" : answer.measure, groups: own ? [s.one, s.two] : null,
  };
};

// -- the view ---------------------------------------------------------------------------------------------
let grid = null, order = { key: null, down: false }, asking = 0;
const drawChart = () => {
  if (!grid) return;
  const room = $("chart").clientWidth || 600;
  $("chart").replaceChildren(...chartOf(grid, state.chart, room, `${$("title").textContent}; the table below has the numbers`));
  $("chart").dataset.drawn = String(Number($("chart").dataset.drawn ?? 0) + 1);
};
const drawTable = () => {
  const percent = `${Math.round(100 * grid.level)} %`;
  const caption = `${$("title").textContent}${grid.items.some((i) => i.n.stderr !== null) ? ": ± one standard error" : ""}`;
  const crossed = grid.columns.length > 0 && state.layout !== "list" && !grid.compared;
  let items = grid.items;
  if (!crossed) {
    const key = order.key ?? ({ down: "value", up: "value", name: 0 }[state.sort] ?? null), down = order.key === null ? state.sort === "down" : order.down;
    const compare = key === "value" ? (a, b) => (a.n.value ?? -Infinity) - (b.n.value ?? -Infinity) : (a, b) => a.labels[key].localeCompare(b.labels[key]);
    if (key !== null) items = [...items].sort((a, b) => (down ? -1 : 1) * compare(a, b));
    const again = (next) => { order = next; drawTable(); $("table").querySelectorAll("th button")[next.key === "value" ? grid.names.length : next.key]?.focus(); };
    if (grid.names.length || grid.compared) $("table").replaceChildren(scroller(listTable(grid, items, caption, { key, down }, again), `Table: ${$("title").textContent}`));
    else $("table").replaceChildren();
  } else $("table").replaceChildren(scroller(crossTable(grid, caption), `Table: ${$("title").textContent}`));
  $("caption").textContent = grid.items.some((i) => i.n.low !== null) ? `Intervals hold the true number ${percent} of the time, each by itself; they count the noise alone.` : "No errors are known for these numbers.";
};
const show = async (push) => {
  const mine = ++asking, begun = performance.now();
  $("title").textContent = inWords(state);
  document.title = `${inWords(state)} · ${facts.title}`;
  $("answered").classList.add("stale");
  const waiting = setTimeout(() => { if (mine === asking) $("status").textContent = "asking …"; }, 250);
  if (push && location.hash !== addressOf(state)) history.pushState(null, "", addressOf(state));
  const asked = askedOf(state);
  $("csv").href = "answer.csv?" + queryOf(asked[0]);
  $("command").textContent = commandOf(asked[0]);
  $("python").textContent = pythonOf(asked[0]);
  let found = null, problem = "";
  try { found = await Promise.all(asked.map(ask)); } catch (error) { problem = error.message; }
  clearTimeout(waiting);
  if (mine !== asking) return;
  $("problem").hidden = !problem;
  $("answered").hidden = Boolean(problem);
  $("rests").hidden = Boolean(problem);
  $("problem").textContent = problem;
  $("answered").classList.remove("stale");
  if (problem) {
    $("status").textContent = "";
    grid = null;
  } else {
    const [answer, own] = found;
    grid = gridOf(state, answer, own);
    order = { key: null, down: false };
    $("flag").textContent = answer.verdict;
    $("flag").className = `flag ${answer.verdict}`;
    $("basis").textContent = answer.basis.startsWith(answer.verdict) ? answer.basis.slice(answer.verdict.length).trim() : answer.basis;
    drawTable();
    drawChart();
    $("notes").replaceChildren(...answer.notes.map((note) => make("li", { dir: "auto" }, note)), ...(answer.labels.length > MOST ? [make("li", {}, `the table shows ${MOST} of ${answer.labels.length} rows; the file has all`)] : []));
    if (!live) $("csv").href = fileOf(answer);
    $("status").textContent = `${answer.labels.length.toLocaleString("en")} number${answer.labels.length === 1 ? "" : "s"}`;
  }
  document.body.dataset.shown = String(mine);
  document.body.dataset.took = String(Math.round(performance.now() - begun));
};
// The file of an export is made here: the same columns as the server's. A label that a spreadsheet would run is marked as text.
const fileOf = (a) => {
  const text = (v) => { const marked = /^[=@+\-'\t\r]/.test(v) && !/^[+-]?[0-9]*\.?[0-9]+$/.test(v) ? "'" + v : v; return /[",\n\r]/.test(marked) ? `"${marked.replaceAll('"', '""')}"` : marked; };
  const more = a.least === undefined ? [] : [["at_least", a.least], ["at_most", a.most]];
  const parts = [[a.measure, a.value], ["stderr", a.stderr], ["low", a.low], ["high", a.high], ...more];
  const lines = [[...a.by.map(text), ...parts.map(([n]) => n)], ...a.labels.map((l, i) => [...l.map(text), ...parts.map(([, v]) => v[i] ?? "")])];
  return "data:text/csv;charset=utf-8," + encodeURIComponent(lines.map((l) => l.join(",")).join("\n") + "\n");
};

// -- the form ---------------------------------------------------------------------------------------------
const offer = (select, names, chosen, none) => {
  const listed = names.map((name) => { const o = make("option", { value: name, dir: "auto" }, name); o.selected = name === chosen; return o; });
  select.replaceChildren(...(none === undefined ? [] : [make("option", { value: "" }, none)]), ...listed);
  if (!names.includes(chosen)) select.value = none === undefined ? names[0] ?? "" : "";
};
const baseOf = (name) => columns.get(name).of;
const labelsOf = (name) => columns.get(name)?.labels ?? [];
const picker = (name, chosen, remove, change) => {
  const all = labelsOf(name), id = `pick-${name}-${remove ? "f" : "s"}`.replace(/\W/g, "_") + facts.columns.findIndex((c) => c.name === name);
  const opener = make("button", { type: "button", class: "opener", "aria-expanded": String(chosen.open), "aria-controls": id, dir: "auto" });
  const boxes = all.map((label) => {
    const box = make("input", { type: "checkbox" });
    box.checked = chosen.labels.includes(label);
    box.addEventListener("change", () => { chosen.labels = all.filter((v, i) => boxes[i].checked); say(); change(); });
    return box;
  });
  const say = () => { opener.textContent = `${name}: ${chosen.labels.length === 0 ? "any" : few(chosen.labels)}`; };
  const list = make("div", { class: "labels", id, role: "group", "aria-label": `Labels of ${name}` }, ...all.map((label, i) => make("label", { dir: "auto" }, boxes[i], make("span", {}, label))));
  list.hidden = !chosen.open;
  opener.addEventListener("click", () => { chosen.open = list.hidden; list.hidden = !list.hidden; opener.setAttribute("aria-expanded", String(!list.hidden)); });
  say();
  const head = make("div", { class: "head" }, opener);
  if (remove) {
    const away = make("button", { type: "button", "aria-label": `Remove the filter on ${name}`, title: "Remove" }, "✕");
    away.addEventListener("click", remove);
    head.append(away);
  }
  return make("div", { class: "filter" }, head, list);
};
let opened = new Set();
const fill = () => {
  const names = [...columns.keys()], numbers = facts.columns.filter((c) => c.numbers).map((c) => c.name);
  const s = state;
  for (const option of $("measure").options) option.disabled = OF_NUMBERS.includes(option.value) && !numbers.length;
  $("measure").value = s.measure;
  $("of-label").hidden = s.measure === "count";
  $("at-label").hidden = s.measure !== "quantile";
  if (s.measure !== "count") offer($("of"), s.measure === "share" ? names : numbers, s.of);
  $("at").value = s.at;
  $("is").replaceChildren();
  if (s.measure === "share") {
    const chosen = { labels: s.is, open: true };
    $("is").append(picker(s.of, chosen, null, () => { if (chosen.labels.length) { state.is = chosen.labels; show(true); } }));
  }
  [0, 1, 2].forEach((d) => {
    const select = $("by" + d);
    const taken = new Set([...s.by.filter((_, other) => other !== d), s.compare].filter(Boolean).map(baseOf)); // one level of a column at a time
    offer(select, names.filter((n) => n === s.by[d] || !taken.has(baseOf(n))), s.by[d] ?? "", d ? "none" : "everybody");
    select.disabled = d > s.by.length;
  });
  $("swap").disabled = s.by.length < 2;
  $("filters").replaceChildren(...s.where.map((entry) => {
    const chosen = { labels: entry[1], get open() { return opened.has(entry[0]); }, set open(v) { if (v) opened.add(entry[0]); else opened.delete(entry[0]); } };
    return picker(entry[0], chosen, () => { state.where = state.where.filter((e) => e !== entry); fill(); $("filter").focus(); show(true); }, () => { entry[1] = chosen.labels; show(true); });
  }));
  offer($("filter"), names.filter((n) => !s.where.some(([w]) => w === n)), "", "choose a column");
  offer($("compare"), names.filter((n) => labelsOf(n).length > 1 && !s.by.some((b) => baseOf(b) === baseOf(n))), s.compare, "none");
  document.querySelectorAll(".pick").forEach((p) => { p.hidden = !s.compare; });
  if (s.compare) { offer($("one"), labelsOf(s.compare), s.one); offer($("two"), labelsOf(s.compare), s.two); }
  if (!live) {
    for (const option of $("measure").options) if (["share", "quantile", "sum"].includes(option.value)) option.disabled = true;
    for (const id of ["compare", "level"]) $(id).disabled = true;
  }
  $("percent").disabled = s.measure !== "count";
  for (const option of $("percent").options) option.disabled = (option.value === "column" && s.by.length < 2) || (option.value !== "" && !s.by.length);
  for (const [id, key] of [["percent", "percent"], ["sort", "sort"], ["chart-kind", "chart"], ["layout", "layout"], ["level", "level"]]) $(id).value = s[key];
};
// Whatever the address or the last choice says, a question that can be asked.
const settle = (s) => {
  const numbers = facts.columns.filter((c) => c.numbers).map((c) => c.name);
  s.by = s.by.filter((n, d) => columns.has(n) && s.by.findIndex((b) => columns.has(b) && baseOf(b) === baseOf(n)) === d).slice(0, 3);
  s.where = s.where.filter(([n]) => columns.has(n)).map(([n, l]) => [n, labelsOf(n).filter((v) => l.includes(v))]);
  if (OF_NUMBERS.includes(s.measure) && !numbers.length) s.measure = "count";
  if (s.measure === "share") {
    if (!columns.has(s.of)) s.of = facts.columns[0].name;
    s.is = labelsOf(s.of).filter((v) => s.is.includes(v));
    if (!s.is.length) s.is = labelsOf(s.of).slice(0, 1);
  } else if (OF_NUMBERS.includes(s.measure)) { if (!numbers.includes(s.of)) s.of = numbers[0]; } else if (s.measure !== "count") s.measure = "count";
  if (!columns.has(s.compare) || s.by.some((b) => baseOf(b) === baseOf(s.compare)) || labelsOf(s.compare).length < 2) s.compare = "";
  if (s.compare) {
    const all = labelsOf(s.compare);
    if (!all.includes(s.one)) s.one = all[0];
    if (!all.includes(s.two) || s.two === s.one) s.two = all.find((v) => v !== s.one);
  } else [s.one, s.two] = ["", ""];
  if (s.measure !== "share") s.is = [];
  if (s.measure === "count") s.of = "";
  if (s.measure !== "count" || (s.percent === "column" && s.by.length < 2) || !s.by.length) s.percent = "";
  if (!["0.8", "0.9", "0.95", "0.99"].includes(s.level)) s.level = String(facts.level);
  return s;
};
const change = (alter) => { alter(state); settle(state); fill(); show(true); };
const on = (id, alter) => $(id).addEventListener("change", () => change((s) => alter(s, $(id).value)));
on("measure", (s, v) => { s.measure = v; });
on("of", (s, v) => { s.of = v; s.is = []; });
on("at", (s, v) => { s.at = v; });
[0, 1, 2].forEach((d) => on("by" + d, (s, v) => { if (v) s.by[d] = v; else s.by = s.by.slice(0, d).concat(d < 2 ? s.by.slice(d + 1) : []); }));
on("compare", (s, v) => { s.compare = v; });
on("one", (s, v) => { s.one = v; });
on("two", (s, v) => { s.two = v; });
for (const [id, key] of [["percent", "percent"], ["sort", "sort"], ["chart-kind", "chart"], ["layout", "layout"], ["level", "level"]]) on(id, (s, v) => { s[key] = v; });
$("filter").addEventListener("change", () => {
  const name = $("filter").value;
  if (!name) return;
  opened.add(name);
  state.where.push([name, []]);
  fill();
  $("filters").lastChild.querySelector("input")?.focus();
});
$("swap").addEventListener("click", () => change((s) => {
  [s.by[0], s.by[1]] = [s.by[1], s.by[0]];
  s.percent = { row: "column", column: "row" }[s.percent] ?? s.percent;
}));
$("form").addEventListener("submit", (event) => event.preventDefault());

// -- taking it elsewhere ------------------------------------------------------------------------------------
const copy = async (text, what) => {
  try {
    await navigator.clipboard.writeText(text);
    $("copied").textContent = `${what} copied`;
  } catch { $("copied").textContent = `this browser does not let pages copy: mark the text and copy it`; }
};
document.querySelectorAll("[data-copy]").forEach((b) => b.addEventListener("click", () => copy($(b.dataset.copy).textContent, b.dataset.copy === "python" ? "line of Python" : "command")));
$("share").addEventListener("click", () => copy(location.href, "address"));

// -- begin --------------------------------------------------------------------------------------------------
const follow = () => { state = settle(stateOf(location.hash)); opened = new Set(); fill(); show(false); };
addEventListener("popstate", follow);
addEventListener("hashchange", () => { if (location.hash !== addressOf(state)) follow(); });
dark.addEventListener("change", drawChart);
let width = 0;
new ResizeObserver(() => { if ($("chart").clientWidth !== width) { width = $("chart").clientWidth; drawChart(); } }).observe($("chart"));
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); $("view").focus(); $("view").scrollIntoView(); });
$("question").open = innerWidth > 864;
follow();
