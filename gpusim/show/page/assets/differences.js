// What differs between two runs, and between two folders.

const LISTED = 2000; // runs that a list names

class Differences {
  constructor(page) {
    this.page = page;
    this.all = page.folders.flatMap((runs) => [...Array(runs.size).keys()].map((row) => [runs, row]));
    this.all.sort(([a, i], [b, j]) => page.folders.indexOf(a) - page.folders.indexOf(b) || a.runs.number[i] - b.runs.number[j]);
    this.chosen = this.first();
    this.listed = this.all.length <= LISTED;
    this.selects = [0, 1].map((side) => this.chooser(side));
    this.names = [0, 1].map(() => make("span", { class: "soft" }));
    this.only = make("input", { type: "checkbox", checked: true, onchange: () => this.draw() });
    this.body = make("div");
    this.element = make("div", {}, make("div", { class: "bar" }, "A", this.selects[0], this.names[0], "B", this.selects[1], this.names[1],
      make("button", { type: "button", onclick: () => { this.chosen.reverse(); this.draw(); } }, "swap"),
      make("label", {}, this.only, " only what differs")), this.body);
    repainted.add(() => this.started && this.draw());
    whenSeen(this.body, () => { this.started = true; this.draw(); });
  }

  chooser(side) {
    // By name, or of very many runs by number.
    const label = `Run ${"AB"[side]}`, last = this.all.length;
    const choose = (at) => { this.chosen[side] = Math.max(0, Math.min(last - 1, Math.round(at) || 0)); this.draw(); };
    if (!this.listed) return make("input", { type: "number", min: 1, max: last, "aria-label": `${label}, 1 to ${last}`, onchange: (event) => choose(event.target.value - 1) });
    return make("select", { "aria-label": label, onchange: (event) => choose(Number(event.target.value)) },
      ...this.all.map(([runs, row], at) => make("option", { value: at }, runs.name(row))));
  }

  first() {
    // The best and the last run of the hardest place, or the first two.
    const wins = this.all.findIndex(([runs, row]) => runs.wins.has(row));
    const one = Math.max(0, wins), place = this.all[one] && this.all[one][0].runs.place[this.all[one][1]];
    const other = this.all.findLastIndex(([runs, row], at) => at !== one && runs.runs.place[row] === place);
    return [one, other >= 0 ? other : Math.min(1, this.all.length - 1)];
  }

  choose(runs, row, side) {
    this.chosen[side] = this.all.findIndex(([r, i]) => r === runs && i === row);
    this.started = true;
    this.draw();
  }

  rows() {
    const [[a, i], [b, j]] = this.chosen.map((at) => this.all[at]);
    const names = [...new Set([...a.columns, ...b.columns].filter((one) => !one.cells && one.unit !== undefined && one.group !== "run").map((one) => one.id))];
    return names.map((id) => {
      const [x, y] = [[a, i], [b, j]].map(([runs, row]) => (runs.byId.has(id) ? runs.value(runs.byId.get(id), row) : null));
      const column = a.byId.get(id) || b.byId.get(id);
      const better = x === null || y === null || x === y || !column.better ? null : (y < x) === (column.better === "lower");
      return { column, x, y, ratio: x && y !== null ? y / x : null, better };
    }).filter(({ x, y }) => (x !== null || y !== null) && (!this.only.checked || x !== y));
  }

  draw() {
    this.selects.forEach((select, side) => { select.value = this.chosen[side] + (this.listed ? 0 : 1); });
    const [[a, i], [b, j]] = this.chosen.map((at) => this.all[at]);
    if (!this.listed) [[a, i], [b, j]].forEach(([runs, row], side) => { this.names[side].textContent = runs.name(row); });
    const ends = [[a, i], [b, j]].map(([runs, row]) => runs.runs.ending[row] || "finished");
    const keys = a.columns.filter((one) => one.key && b.byId.has(one.id)).map((one) => [one.header, a.text(one, i), b.text(b.byId.get(one.id), j)]);
    const setup = [...keys, ["outcome", ...ends]].filter(([, x, y]) => !this.only.checked || x !== y);
    const rows = this.rows();
    const head = make("thead", {}, make("tr", {}, make("th", { class: "first" }, "what"), ...["A", "B", "B − A", "change", ""].map((w) => make("th", { class: "number" }, w)), make("th", {}, "meaning")));
    const body = make("tbody", {}, ...setup.map(([what, x, y]) => make("tr", {}, make("td", { class: "first" }, what), make("td", { class: "number" }, x),
      make("td", { class: "number" }, y), make("td"), make("td"), make("td"), make("td"))),
    ...rows.map(({ column, x, y, ratio, better }) => make("tr", {}, make("td", { class: "first" }, column.id),
      make("td", { class: "number", title: exact(x, column.unit) }, show(x, column.unit)), make("td", { class: "number", title: exact(y, column.unit) }, show(y, column.unit)),
      make("td", { class: "number", title: x !== null && y !== null ? exact(y - x, column.unit) : "" }, x !== null && y !== null ? signed(y - x, column.unit) : ""),
      make("td", { class: "number" }, ratio === null ? (x === 0 && y ? "from zero" : "") : `${ratio >= 1 ? "+" : "−"}${Math.abs(100 * (ratio - 1)).toFixed(2)} %`),
      make("td", { class: better === null ? "" : better ? "good" : "alarm" }, better === null ? "" : better ? "better" : "worse"),
      make("td", { class: "soft" }, column.meaning))));
    const memory = [[a, i], [b, j]].map(([runs, row], side) => this.page.memory(runs.runs.key[row], `${"AB"[side]}: ${runs.name(row)}`));
    const both = [a.runs.key[i], b.runs.key[j]];
    this.body.replaceChildren(
      make("p", { role: "status" }, setup.length + rows.length ? `${grouped(rows.length)} numbers differ${this.only.checked ? "" : " or are equal"}.` : "Nothing differs."),
      make("div", { class: "scroll" }, make("table", {}, head, body)),
      both.every((key) => this.page.timelines.has(key)) ? make("div", { class: "bar" }, make("button", { type: "button", onclick: () => this.page.showTimeline(...both) }, "their timelines, one below the other")) : "",
      make("div", { class: "beside" }, ...memory.filter(Boolean)),
    );
  }
}

const signed = (value, unit) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${show(Math.abs(value), unit)}`;

function folderDifferences(found) {
  // The changes of results.compare, pair by pair: sorted and filtered like any table.
  const body = make("tbody"), count = make("span", { class: "count", role: "status" });
  const metrics = [...new Set(found.changes.map((one) => one.metric))];
  const query = make("input", { type: "search", class: "grow", placeholder: "filter by run", "aria-label": "Filter the differences", oninput: () => draw() });
  const metric = make("select", { "aria-label": "Metric", onchange: () => draw() }, make("option", { value: "" }, "metric: all"),
    ...metrics.map((name) => make("option", { selected: name === found.compared }, name)));
  const way = make("select", { "aria-label": "Better or worse", onchange: () => draw() }, ...["better and worse", "better", "worse"].map((w) => make("option", {}, w)));
  const order = { by: null, falling: false };
  const columns = [["run", (c) => c.run], ["metric", (c) => c.metric], ["A", (c) => c.a], ["B", (c) => c.b], ["change", (c) => c.ratio], ["", (c) => c.better]];
  const head = make("tr", {}, ...columns.map(([title, of], at) => make("th", { class: at === 0 ? "first" : at > 1 ? "number" : "", "aria-sort": "none" }, make("button", { type: "button", onclick: (event) => {
    order.falling = order.by === of && !order.falling;
    order.by = of;
    for (const other of head.children) other.setAttribute("aria-sort", "none");
    event.target.closest("th").setAttribute("aria-sort", order.falling ? "descending" : "ascending");
    draw();
  } }, title))));
  const MOST = 1000;
  function draw() {
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    let rows = found.changes.filter((one) => words.every((word) => one.run.toLowerCase().includes(word))
      && (!metric.value || one.metric === metric.value) && (way.selectedIndex === 0 || one.better === (way.selectedIndex === 1)));
    if (order.by) {
      const sign = order.falling ? -1 : 1, key = order.by;
      rows = [...rows].sort((p, q) => {
        const [x, y] = [key(p), key(q)];
        if (x === null || y === null) return (x === null) - (y === null);
        return sign * (typeof x === "string" || typeof y === "string" ? String(x).localeCompare(String(y)) : x - y);
      });
    }
    count.textContent = `${grouped(rows.length)} differences${rows.length > MOST ? `, the first ${grouped(MOST)} are shown` : ""}`;
    body.replaceChildren(...rows.slice(0, MOST).map((one) => make("tr", {}, make("td", { class: "first" }, one.run), make("td", {}, one.metric),
      make("td", { class: "number", title: exactly(one.a, one.unit) }, one.textA), make("td", { class: "number", title: exactly(one.b, one.unit) }, one.textB),
      make("td", { class: "number" }, one.ratio === null ? "" : `${one.ratio >= 1 ? "+" : "−"}${Math.abs(100 * (one.ratio - 1)).toFixed(2)} %`),
      make("td", { class: one.better === null ? "" : one.better ? "good" : "alarm" }, one.better === null ? "" : one.better ? "better" : "worse"))));
  }
  const exactly = (value, unit) => (typeof value === "number" ? exact(value, unit) : "");
  draw();
  return make("div", {}, make("p", {}, found.said), make("div", { class: "bar" }, query, metric, way, count), make("div", { class: "scroll", id: "changes" },
    make("table", {}, make("thead", {}, head), body)));
}
