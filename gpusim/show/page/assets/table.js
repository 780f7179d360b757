// The table of runs: sorted by any column, filtered by words and comparisons, with as many rows in the page as are in view.

const ROW_HEIGHT = 30, OVERHANG = 12;

class Runs {
  // The rows of one folder: `about` as content.table says, `numbers` the columns of numbers.
  constructor(letter, words, about, numbers) {
    Object.assign(this, { letter, words, columns: about.columns, runs: about.runs, compared: about.compared, numbers });
    this.size = this.runs.key.length;
    this.byId = new Map(this.columns.map((one) => [one.id, one]));
    this.wins = new Set(this.runs.wins);
    this.oracles = new Set(this.runs.oracle);
  }

  value(column, row) {
    // What the column is sorted and compared by; null where there is none.
    if (column.cells) return column.order[column.cells[row]];
    const found = this.numbers[column.id][row];
    return Number.isNaN(found) ? null : found;
  }

  shown(column, row) {
    // The number in the unit of the header.
    const found = this.value(column, row);
    return found === null || column.cells ? found : found / column.divisor;
  }

  text(column, row) {
    if (column.id === this.compared && this.runs.ending[row]) return this.runs.ending[row];
    if (column.cells) return column.words[column.cells[row]];
    const found = this.value(column, row);
    if (found === null) return "-";
    if (found === 0 && !column.behind) return "0";
    return grouped(found / column.divisor, column.decimals) + column.behind;
  }

  name(row) {
    return `${this.letter ? `${this.letter} ` : ""}${this.runs.number[row]} · ${this.runs.name[row]}${this.oracles.has(row) ? " *" : ""}`;
  }
}

const COMPARISON = /^([\p{L}\p{N}_]+)(<=|>=|!=|<|>|=|:)(.+)$/u;

function matcher(runs, query) {
  // Words that a row's names must all have, and comparisons with a column in the unit of its header: slowdown<1.5 evict=lru.
  const keys = runs.columns.filter((column) => column.key);
  const tests = query.trim().split(/\s+/).filter(Boolean).map((word) => {
    const parts = word.match(COMPARISON);
    const column = parts && (runs.byId.get(parts[1]) || runs.columns.find((one) => one.header.split(" [")[0].replaceAll(" ", "_") === parts[1]));
    if (!column) {
      const wanted = word.toLowerCase();
      return (row) => keys.some((key) => runs.text(key, row).toLowerCase().includes(wanted))
        || (runs.runs.ending[row] || "").includes(wanted) || runs.runs.name[row].toLowerCase().includes(wanted);
    }
    const [, , sign, right] = parts, limit = Number(right.replace(/[×%]$/, ""));
    if (column.cells || Number.isNaN(limit)) {
      const wanted = right.toLowerCase();
      const same = (row) => runs.text(column, row).toLowerCase().replaceAll(" ", "").replace("*", "") === wanted.replaceAll(" ", "");
      return sign === "!=" ? (row) => !same(row) : same;
    }
    const compare = { "<": (v) => v < limit, ">": (v) => v > limit, "<=": (v) => v <= limit, ">=": (v) => v >= limit,
      "!=": (v) => v !== limit, "=": (v) => v === limit, ":": (v) => v === limit }[sign];
    return (row) => { const v = runs.shown(column, row); return v !== null && compare(Number(v.toFixed(column.decimals))); };
  });
  return (row) => tests.every((test) => test(row));
}

class Table {
  constructor(runs, opened) {
    this.runs = runs;
    this.opened = opened;
    this.sort = { column: null, falling: false };
    this.visible = new Set(runs.columns.filter((column) => column.shown).map((column) => column.id));
    this.rows = [...Array(runs.size).keys()];
    this.chosen = new Map(); // column -> the only word that is shown
    this.element = make("div", {}, this.filters(), this.frame());
    this.renew();
  }

  filters() {
    this.query = make("input", { type: "search", class: "grow", "aria-label": "Filter the runs", placeholder:
      "filter: words, or comparisons in the unit of the header, as evict=lru slowdown<1.5", oninput: () => this.renew() });
    const selects = this.runs.columns.filter((column) => column.key && column.words.length > 1 && column.words.length <= 60)
      .map((column) => make("select", { "aria-label": column.header, onchange: (event) => {
        if (event.target.value === "") this.chosen.delete(column);
        else this.chosen.set(column, Number(event.target.value));
        this.renew();
      } }, make("option", { value: "" }, `${column.header}: all`), ...this.byOrder(column).map((at) => make("option", { value: at }, column.words[at]))));
    this.count = make("span", { class: "count", role: "status" });
    const save = make("button", { type: "button", onclick: () => saveAs(`${this.runs.words.name}.csv`, this.csv(), "text/csv") }, "CSV");
    return make("div", {}, make("div", { class: "bar" }, this.query, ...selects, save, this.count), this.chooser());
  }

  byOrder(column) {
    const order = column.words.map((_, at) => at);
    return column.numeric ? order.sort((a, b) => column.order[a] - column.order[b]) : order;
  }

  chooser() {
    // Which columns are shown; all that the runs have, by group.
    const box = make("div", { class: "columns" });
    let group = "";
    for (const column of this.runs.columns) {
      if (column.key) continue;
      if (column.group !== group) box.append(make("h4", {}, group = column.group));
      box.append(make("label", { title: column.meaning }, make("input", { type: "checkbox", checked: column.shown, onchange: (event) => {
        if (event.target.checked) this.visible.add(column.id); else this.visible.delete(column.id);
        this.head();
        this.draw();
      } }), column.header));
    }
    return make("details", {}, make("summary", {}, "Columns"), box);
  }

  frame() {
    this.header = make("thead");
    this.body = make("tbody");
    this.scroll = make("div", { class: "scroll", tabindex: 0, onscroll: () => this.draw() }, make("table", { class: "runs" }, this.header, this.body));
    this.head();
    return this.scroll;
  }

  shownColumns() {
    return this.runs.columns.filter((column) => this.visible.has(column.id));
  }

  head() {
    const cells = this.shownColumns().map((column, at) => make("th", {
      scope: "col", class: [column.numeric ? "number" : "", at === 0 ? "first" : ""].join(" "), title: column.meaning, "data-id": column.id,
      "aria-sort": this.sort.column === column ? (this.sort.falling ? "descending" : "ascending") : "none",
    }, make("button", { type: "button", onclick: () => this.sortBy(column) }, column.header)));
    this.header.replaceChildren(make("tr", {}, ...cells));
  }

  sortBy(column) {
    // Rising, falling, and back to the order of the report.
    if (this.sort.column !== column) this.sort = { column, falling: false };
    else if (!this.sort.falling) this.sort.falling = true;
    else this.sort = { column: null, falling: false };
    this.head();
    this.renew();
  }

  renew() {
    const matches = matcher(this.runs, this.query.value), { column, falling } = this.sort;
    this.rows = [];
    for (let row = 0; row < this.runs.size; row++)
      if ([...this.chosen].every(([key, at]) => key.cells[row] === at) && matches(row)) this.rows.push(row);
    if (column) {
      const sign = falling ? -1 : 1, values = this.rows.map((row) => this.runs.value(column, row));
      // A run that failed has no time that could be compared: it stands last in either order.
      const order = [...this.rows.keys()].sort((a, b) => {
        const [x, y] = [values[a], values[b]];
        if (x === null || y === null) return (x === null) - (y === null) || a - b;
        return sign * (typeof x === "string" ? x.localeCompare(String(y)) : x - y) || a - b;
      });
      this.rows = order.map((at) => this.rows[at]);
    }
    this.count.textContent = this.rows.length === this.runs.size ? `${grouped(this.runs.size)} run${this.runs.size === 1 ? "" : "s"}` : `${grouped(this.rows.length)} of ${grouped(this.runs.size)} runs`;
    this.scroll.scrollTop = 0;
    this.draw();
  }

  draw() {
    // The rows in view, between two rows as high as all others together.
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / ROW_HEIGHT) - OVERHANG);
    const many = Math.ceil((this.scroll.clientHeight || 800) / ROW_HEIGHT) + 2 * OVERHANG;
    const few = this.rows.length <= 200, last = few ? this.rows.length : Math.min(this.rows.length, first + many);
    const columns = this.shownColumns(), start = few ? 0 : first;
    const pad = (rows) => make("tr", { class: "pad", "aria-hidden": true }, make("td", { colspan: columns.length, style: `height:${rows * ROW_HEIGHT}px` }));
    this.body.replaceChildren(...(start ? [pad(start)] : []), ...this.rows.slice(start, last).map((row) => this.row(row, columns)),
      ...(last < this.rows.length ? [pad(this.rows.length - last)] : []));
  }

  row(row, columns) {
    const failed = this.runs.runs.ending[row];
    const cells = columns.map((column, at) => make("td", {
      class: [at === 0 ? "first" : "", failed && column.id === this.runs.compared ? "failed" : column.numeric ? "number" : ""].join(" "),
    }, this.runs.text(column, row)));
    return make("tr", { class: this.runs.wins.has(row) ? "best" : "", "data-row": row, tabindex: -1, title: "what this run came to",
      onclick: () => this.opened(this.runs, row) }, ...cells);
  }

  csv() {
    // What is filtered, in base units.
    const columns = this.shownColumns();
    const quoted = (cell) => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
    const lines = this.rows.map((row) => columns.map((column) => {
      const found = column.cells ? this.runs.text(column, row) : this.runs.value(column, row);
      return quoted(String(found ?? ""));
    }).join(","));
    return [columns.map((column) => quoted(column.cells ? column.header : column.id)).join(","), ...lines].join("\n") + "\n";
  }
}

function opener(page) {
  // A function that shows all that is known of one run.
  const dialog = make("dialog", { id: "run", "aria-label": "One run" });
  document.body.append(dialog);
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  return (runs, row) => {
    const known = runs.runs, metrics = runs.columns.filter((column) => !column.cells && !column.key && runs.value(column, row) !== null);
    const groups = Map.groupBy ? Map.groupBy(metrics, (column) => column.group) : metrics.reduce((found, column) =>
      found.set(column.group, [...(found.get(column.group) || []), column]), new Map());
    const close = (then) => () => { dialog.close(); then(); };
    const actions = [
      ["timeline", page.timelines.has(known.key[row]), () => page.showTimeline(known.key[row])],
      ["address map", page.maps.has(known.key[row]), () => page.showMap(known.key[row])],
      ["compare as A", page.two, () => page.compare(runs, row, 0)], ["compare as B", page.two, () => page.compare(runs, row, 1)],
    ].filter(([, there]) => there).map(([words, , then]) => make("button", { type: "button", onclick: close(then) }, words));
    const failure = known.failure[row];
    const command = `gpusim run ${runs.words.name}/experiment.yaml ${known.again[row]} -o again`.replace(/ +/g, " ");
    dialog.replaceChildren(
      make("button", { type: "button", class: "close", onclick: () => dialog.close() }, "close"),
      make("h3", {}, `Run ${runs.name(row)}`),
      make("p", { class: "soft" }, `key ${known.key[row]}; ${known.checked[row] === null ? "not recomputed from its event log yet"
        : known.checked[row] ? "recomputed from its event log: right" : "contradicted by its own event log"}`),
      known.ending[row] ? make("p", { class: "alarm" }, `${known.ending[row]}. ${(failure && failure.advice) || ""}`) : "",
      make("div", { class: "bar" }, ...actions),
      page.memory(known.key[row]) || "",
      ...(runs.words.experiment ? [make("h4", {}, "The command that repeats it alone"), make("pre", {}, command), copyButton(command),
        page.timelines.has(known.key[row]) ? "" : make("p", { class: "soft" }, "With --log it has a timeline.")] : []),
      ...[...groups].flatMap(([group, columns]) => [make("h4", {}, group), make("div", { class: "scroll" }, make("table", {},
        ...columns.map((column) => make("tr", {}, make("td", { title: column.meaning }, column.id), make("td", { class: "number" },
          show(runs.value(column, row), column.unit)), make("td", { class: "number" }, exact(runs.value(column, row), column.unit)),
        make("td", { class: "soft" }, column.meaning)))))]),
    );
    dialog.showModal();
    dialog.scrollTop = 0;
  };
}
