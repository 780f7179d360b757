// Figures: panels that Plotly draws, below a legend that hides lines in all of them.

let plotlyThere = null;
function plotly() {
  // Inflated and started when the first figure is about to be seen.
  plotlyThere ??= blob("plotly").then((bytes) => {
    const script = document.createElement("script");
    script.textContent = new TextDecoder().decode(bytes);
    document.head.append(script);
    return window.Plotly;
  });
  return plotlyThere;
}

const narrow = window.matchMedia("(max-width: 40rem)");

function template() {
  const axis = { gridcolor: styleOf("line"), linecolor: styleOf("faint"), zerolinecolor: styleOf("faint"), ticks: "outside",
    tickcolor: styleOf("faint"), automargin: true, title: { standoff: 8 } };
  return {
    font: { family: "system-ui, sans-serif", size: 12, color: styleOf("ink") }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 56, r: 16, t: 12, b: 44 }, showlegend: false, hovermode: "closest", dragmode: narrow.matches ? false : "zoom",
    hoverlabel: { bgcolor: styleOf("ink"), bordercolor: styleOf("ink"), font: { color: styleOf("paper"), size: 12.5 }, align: "left", namelength: -1 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: styleOf("soft"), activecolor: styleOf("accent") }, xaxis: axis, yaxis: axis,
  };
}

function merged(under, over) {
  if (!over || typeof over !== "object" || Array.isArray(over)) return over === undefined ? under : over;
  const found = { ...(under && typeof under === "object" ? under : {}) };
  for (const [key, value] of Object.entries(over)) found[key] = merged(found[key], value);
  return found;
}

function painted(value) {
  // The same traces in the colours of the theme.
  if (typeof value === "string") return value.startsWith("#") ? colour(value) : value;
  if (ArrayBuffer.isView(value)) return value;
  if (Array.isArray(value)) return value.length && typeof value[0] === "number" ? value : value.map(painted);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, painted(v)]));
  return value;
}

const CONFIG = { displaylogo: false, scrollZoom: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  toImageButtonOptions: { format: "svg" } };

const resized = new ResizeObserver((entries) => entries.forEach(({ target }) => {
  const plot = target.lastElementChild;
  if (plot && plot.data && plot.isConnected && plot.clientWidth) window.Plotly.Plots.resize(plot);
}));

class Figure {
  // `chart` as charts/parts.py has it; a panel may be a function that makes its data and layout when it is drawn.
  constructor(chart) {
    this.chart = chart;
    this.hidden = new Set(chart.legend.filter((entry) => entry.hidden).map((entry) => entry.name));
    this.view = 0;
    this.plots = [];
    this.legend = make("div", { class: "legend", role: "group", "aria-label": "Legend: what is shown" });
    this.panels = make("div", { class: "panels" });
    const views = chart.views.length > 1 ? make("div", { class: "bar", role: "group" }, ...chart.views.map((view, at) => make("button", {
      type: "button", "aria-pressed": String(at === 0), onclick: (event) => {
        for (const other of event.target.parentElement.children) other.setAttribute("aria-pressed", String(other === event.target));
        this.view = at;
        this.draw();
      } }, view.label))) : "";
    this.element = make("div", { class: "figure" }, make("h3", {}, chart.title), make("p", {}, chart.answer), views, this.legend, this.panels,
      make("p", { class: "note" }, chart.note));
    repainted.add(() => { this.keys(); if (this.started) this.draw(); });
    this.keys();
    whenSeen(this.panels, () => { this.started = true; this.draw(); });
  }

  keys() {
    this.legend.replaceChildren(...this.chart.legend.map((entry) => make("button", {
      type: "button", "aria-pressed": String(!this.hidden.has(entry.name)), title: "hide or show; with Alt, or by a double click: this one alone",
      onclick: (event) => this.toggle(entry.name, event.altKey), ondblclick: () => this.toggle(entry.name, true),
    }, swatch(entry), entry.name)));
  }

  toggle(name, alone) {
    const all = this.chart.legend.map((entry) => entry.name);
    if (alone) {
      const others = all.filter((other) => other !== name), isAlone = others.every((other) => this.hidden.has(other));
      this.hidden = new Set(isAlone ? [] : others);
    } else if (!this.hidden.delete(name)) this.hidden.add(name);
    this.keys();
    for (const plot of this.plots) {
      const seen = plot.data.map((trace) => !this.hidden.has(trace.legendgroup));
      window.Plotly.restyle(plot, { visible: seen });
    }
  }

  async draw() {
    const Plotly = await plotly();
    const panels = this.chart.views[this.view].panels;
    while (this.panels.children.length > panels.length) this.panels.lastChild.remove();
    while (this.panels.children.length < panels.length) this.panels.append(make("div", { class: "panel" }, make("h4"), make("div")));
    const places = panels.map((panel, at) => {
      const [title, plot] = this.panels.children[at].children;
      title.textContent = panel.title;
      title.hidden = !panel.title;
      plot.style.height = `${panel.height}px`;
      resized.observe(plot.parentElement);
      return plot;
    });
    this.plots = [];
    for (const [at, panel] of panels.entries()) {
      const plot = places[at], { data, layout } = panel.make ? panel.make() : panel;
      if (!plot.isConnected) return; // what it stood in was closed meanwhile
      await Plotly.react(plot, painted(data).map((trace) => ({ ...trace, visible: !this.hidden.has(trace.legendgroup) })),
        merged(template(), painted({ ...layout, uirevision: this.view })), CONFIG);
      this.plots.push(plot);
    }
  }
}

function swatch(entry) {
  const paint = colour(entry.colour), svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 22 12");
  svg.setAttribute("aria-hidden", "true");
  svg.innerHTML = entry.mark === "box" ? `<rect x="3" y="1" width="16" height="10" rx="1.5" fill="${paint}"/>`
    : `<line x1="1" y1="6" x2="21" y2="6" stroke="${paint}" stroke-width="2.4" stroke-dasharray="${{ dash: "5 3", dot: "2 2.5" }[entry.mark] || ""}"/>`;
  return svg;
}

// Memory over time: the one figure whose curves come as columns, since every run may be asked for.

const LEVELS = [["requested", "#56B4E9"], ["allocated", "#0072B2"], ["reserved", "#E69F00"], ["host", "#CC79A7"]];
const MEMORY = [["capacity", "#B3261E", "dash"], ["static plan", "#1F2430", "dot"]];

function memoryPanel(columns, run, title) {
  const top = Math.max(run.capacity || 0, run.highest), [perByte, byteUnit] = stepOf("B", top);
  const [perTime, timeUnit] = run.timed ? stepOf("ns", run.until) : [1, ""];
  const scaled = (values, unit) => Array.from(values, (value) => value / unit);
  const made = () => {
    const data = LEVELS.filter(([level]) => columns[`${run.key}.${level}.time`]).map(([level, paint]) => {
      const exactly = columns[`${run.key}.${level}.bytes`], words = level === "host" ? "swapped out" : level;
      return { type: "scatter", mode: "lines", legendgroup: words, x: scaled(columns[`${run.key}.${level}.time`], perTime), y: scaled(exactly, perByte),
        line: { color: paint, width: 1.6, shape: level === "host" ? "linear" : "hv", dash: level === "host" ? "dashdot" : "solid" },
        ...(level === "requested" ? { fill: "tozeroy", fillcolor: "rgba(86,180,233,0.28)" } : {}),
        text: Array.from(exactly, (value) => `<b>${words}</b> ${show(value, "B")} (${exact(value, "B")})`), hovertemplate: `%{text}<br>at %{x} ${timeUnit}<extra></extra>` };
    });
    for (const [name, value, [, paint, dash]] of [["capacity", run.capacity, MEMORY[0]], ["static plan", run.plan, MEMORY[1]]])
      if (value) data.push({ type: "scatter", mode: "lines", legendgroup: name, x: [0, run.until / perTime], y: [value / perByte, value / perByte],
        line: { color: paint, dash, width: 1.4 }, text: Array(2).fill(`${name}: ${exact(value, "B")}`), hovertemplate: "%{text}<extra></extra>" });
    if (run.ending) data.push({ type: "scatter", mode: "markers", legendgroup: "the run stops", x: [run.until / perTime], y: [run.highest / perByte],
      marker: { symbol: "x", size: 10, color: "#B3261E" }, text: [run.ending], hovertemplate: "%{text}<extra></extra>" });
    return { data, layout: { xaxis: { title: { text: run.timed ? `time [${timeUnit}]` : "event of the program" } },
      yaxis: { title: { text: `memory [${byteUnit}]` }, rangemode: "tozero" } } };
  };
  return { title, height: 280, make: made };
}

function memoryLegend(runs, columns) {
  const there = (level) => runs.some((run) => columns[`${run.key}.${level}.time`]);
  return [
    ...LEVELS.filter(([level]) => there(level)).map(([level, paint]) => ({ name: level === "host" ? "swapped out" : level, colour: paint, mark: "line" })),
    ...MEMORY.filter(([name]) => runs.some((run) => (name === "capacity" ? run.capacity : run.plan))).map(([name, paint, mark]) => ({ name, colour: paint, mark })),
    ...(runs.some((run) => run.ending) ? [{ name: "the run stops", colour: "#B3261E", mark: "box" }] : []),
  ];
}
