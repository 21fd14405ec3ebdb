// Answers as tables: crossed, or a row for each number. The table is what a reader who does not see the chart has.

const Z = { 0.8: 1.2816, 0.9: 1.6449, 0.95: 1.96, 0.99: 2.5758 };
const MOST = 1500; // rows in the page; the file has all
const numberCell = (n, unit) => {
  if (n === null || n.value === null) return make("td", { title: "nobody is there" }, "–");
  const unclear = n.low !== null && n.low <= 0 && unit !== "number";
  const error = n.stderr === null ? [] : [" ", make("small", {}, "± " + shown(n.stderr, unit))];
  const told = n.low === null ? "no error is known" : `${shown(n.low, unit)} to ${shown(n.high, unit)}`;
  return make("td", { class: unclear ? "unclear" : null, title: unclear ? `${told}; the interval reaches zero` : told }, shown(n.value, unit), ...error);
};
const heading = (text, attributes = {}) => make("th", { scope: "col", dir: "auto", title: text, ...attributes }, text);
const rowHeading = (text, attributes = {}) => make("th", { scope: "row", dir: "auto", title: text, ...attributes }, text);

const crossTable = (grid, caption) => {
  const panels = grid.panels.length ? grid.panels.map((p, k) => [p, k]) : [["", 0]];
  const columns = panels.flatMap(([p, k]) => grid.columns.map((c, j) => [p, k, c, j]));
  const top = grid.panels.length
    ? [make("tr", {}, make("td", {}), ...panels.map(([p]) => make("th", { scope: "colgroup", colspan: grid.columns.length, dir: "auto" }, p)))] : [];
  const head = make("tr", {}, heading(`${grid.names[0]} \\ ${grid.names[1]}`, { class: "label" }), ...columns.map(([, , c]) => heading(c)));
  const body = grid.rows.slice(0, MOST).map((row, i) => make("tr", {}, rowHeading(row), ...columns.map(([, k, , j]) => numberCell(grid.at(i, j, k), grid.unit))));
  return make("table", { class: "data" }, make("caption", {}, caption), make("thead", {}, ...top, head), make("tbody", {}, ...body));
};

// Whether two numbers differ by less than their errors together, taken as independent.
const near = (a, b, level) => a !== null && b !== null && a.stderr !== null && b.stderr !== null && a.value !== null && b.value !== null
  && Math.abs(a.value - b.value) <= Z[level] * Math.hypot(a.stderr, b.stderr);

// items: [{ labels, n, extra }]; each row of an answer. groups: what is compared, whose own numbers stand first.
const listTable = (grid, items, caption, order, onOrder) => {
  const { unit, level } = grid, errors = items.some((i) => i.n.stderr !== null), bounds = items.some((i) => i.n.least !== undefined);
  const sorting = (name, key) => {
    const way = order.key === key ? (order.down ? "descending" : "ascending") : "none";
    const button = make("button", { type: "button" }, name);
    button.addEventListener("click", () => onOrder({ key, down: order.key === key ? !order.down : key === "value" }));
    return make("th", { scope: "col", "aria-sort": way, class: key === "value" ? null : "label" }, button);
  };
  const apart = !grid.compared && order.key === "value" && errors;
  const heads = [...grid.names.map((name, i) => sorting(name, i)), ...(grid.groups ?? []).map((g) => heading(g)), sorting(grid.measure, "value")];
  if (grid.compared) heads.push(heading("told apart"));
  if (errors) heads.push(heading("± standard error"), heading(`${Math.round(100 * level)} % interval`));
  if (apart) heads.push(heading("from the row above"));
  if (bounds) heads.push(heading("bins leave open"));
  const body = items.slice(0, MOST).map((item, i) => {
    const { n } = item;
    const cells = [...item.labels.map((v, at) => (at ? make("td", { dir: "auto", class: "label" }, v) : rowHeading(v)))];
    for (const own of item.own ?? []) cells.push(numberCell(own, unit));
    cells.push(make("td", {}, shown(n.value, unit)));
    if (grid.compared) {
      const within = n.low === null || (n.low <= 0 && n.high >= 0);
      cells.push(make("td", { class: within ? "within" : null }, n.low === null ? "not known" : within ? "≈ smaller than its error" : "yes"));
    }
    if (errors) cells.push(make("td", {}, n.stderr === null ? "–" : "± " + shown(n.stderr, unit)), make("td", {}, n.low === null ? "–" : `${shown(n.low, unit)} to ${shown(n.high, unit)}`));
    if (apart) {
      const same = i > 0 && near(n, items[i - 1].n, level);
      cells.push(make("td", { class: same ? "within" : null }, i === 0 ? "" : same ? "≈ smaller than its error" : "told apart"));
    }
    if (bounds) cells.push(make("td", {}, `${shown(n.least, unit)} to ${shown(n.most, unit)}`));
    return make("tr", {}, ...cells);
  });
  return make("table", { class: "data" }, make("caption", {}, caption), make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...body));
};

// A wide or long table scrolls inside its frame; the frame says so as long as there is more to see.
const scroller = (table, label) => {
  const inner = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
  const frame = make("div", { class: "frame" }, inner, make("p", { class: "cue quiet", "aria-hidden": "true" }));
  const look = () => {
    const right = inner.scrollWidth - inner.clientWidth - inner.scrollLeft > 2, below = inner.scrollHeight - inner.clientHeight - inner.scrollTop > 2;
    frame.classList.toggle("right", right);
    frame.classList.toggle("below", below);
    frame.lastChild.textContent = [right && "scroll sideways →", below && `${table.tBodies[0].rows.length} rows: scroll down ↓`].filter(Boolean).join("   ");
  };
  inner.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(inner);
  return frame;
};
