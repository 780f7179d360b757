// Metrics over time below a timeline, over the same span of it: one metric at a time, a line for each value of its labels.

const CHART = 120, AROUND = 4; // pixels; moments before and after over which the growth of a counter is taken
const METRICS = new Set(); // all charts: they show the same metric

class MetricChart {
  constructor(bytes, timeline) {
    this.data = unpack(bytes);
    this.timeline = timeline;
    const { families, nothing } = this.data.about;
    this.families = new Map(families.map((family) => [family.name, { ...family, curves: family.labels.map((_, i) => this.curve(family, i)) }]));
    this.family = this.families.get(["stall_seconds", "kernel_seconds"].find((name) => this.families.has(name))) || [...this.families.values()][0];
    this.select = make("select", { "aria-label": "Metric over time", onchange: () => METRICS.forEach((chart) => chart.choose(this.select.value)) },
      ...[...new Set(families.map((family) => family.group))].map((group) => make("optgroup", { label: group },
        ...families.filter((family) => family.group === group).map((family) => make("option", { value: family.name }, family.name.replaceAll("_", " "))))));
    this.legend = make("span", { class: "keys" });
    this.meaning = make("p", { class: "note" });
    this.canvas = make("canvas", { role: "img", "aria-label": "The metric over time" });
    this.canvas.style.height = `${CHART}px`;
    this.tip = make("div", { class: "tip", role: "status" });
    this.element = make("div", { class: "metrics" }, make("div", { class: "bar" }, make("span", { class: "soft" }, "Over time:"), this.select, this.legend),
      make("div", { class: "canvas" }, this.canvas, this.tip), this.meaning);
    this.nothing = nothing.length ? ` 0 throughout: ${nothing.map((name) => name.replaceAll("_", " ")).join(", ")}.` : "";
    this.canvas.addEventListener("pointermove", (event) => this.point(event.clientX - this.canvas.getBoundingClientRect().left));
    this.canvas.addEventListener("pointerleave", () => { this.tip.style.display = "none"; });
    METRICS.add(this);
    repainted.add(() => this.choose(this.family.name));
    this.choose(this.family.name);
  }

  curve(family, i) {
    // What holds from each moment to the next: of a counter how fast it grows around it, per simulated second.
    const at = this.data.at, values = Array.from(this.data[`${family.name}.${i}`], (value) => value * family.scale);
    return family.counter ? values.map((_, k) => { const [a, b] = this.around(k); return (values[b] - values[a]) / ((at[b] - at[a]) / 1e9); }) : values;
  }

  around(k) { return [Math.max(0, k - AROUND), Math.min(this.data.at.length - 1, k + AROUND)]; }

  choose(name) {
    if (!this.families.has(name)) return;
    this.family = this.families.get(name);
    this.select.value = name;
    const { labels, meaning, counter } = this.family;
    this.legend.replaceChildren(...(labels.length > 1 || labels[0] ? labels.map((label, i) => make("span", {}, make("i", { style: `background:${this.paintOf(i)}` }), label)) : []));
    this.meaning.textContent = `${meaning}${counter ? " Drawn is how fast that grows, per simulated second, over a sixtieth of the run." : ""}${this.nothing}`;
    this.paint();
  }

  paintOf(i) {
    // As in the timeline above, where that has one.
    const label = this.family.labels[i];
    const known = STALL_COLOURS[`stall_${label}`] || KIND_COLOURS[`swap_${label}`] || this.timeline.words.colours[label] || LINK_COLOURS[label];
    return colour(known || SPARE_COLOURS[(i + 7) % SPARE_COLOURS.length]);
  }

  text(value) {
    const { unit, counter } = this.family;
    if (unit === "bytes") return `${counter ? `${rounded(value / 1e9, 4)} GB/s` : show(value, "B", 4)}`;
    if (unit === "bytes_per_second") return `${rounded(value / 1e9, 4)} GB/s`;
    if (unit === "ratio" || (unit === "seconds" && counter)) return `${rounded(100 * value, 4)} %`;
    return unit === "seconds" ? show(value * 1e9, "ns", 4) : `${rounded(value, 4)}${counter ? " /s" : ""}`;
  }

  at(time) { return Math.max(0, firstAbove(this.data.at, time, 0, this.family.curves[0].length) - 1); }

  point(x) {
    const time = this.timeline.timeAt(x), k = this.at(time), { labels, curves, counter } = this.family;
    const inside = x >= this.timeline.gutter() && time >= 0 && time <= this.data.at[this.data.at.length - 1];
    this.tip.style.display = inside ? "block" : "none";
    if (!inside) return;
    const [from, to] = this.around(k).map((other) => show(this.data.at[other], "ns", 4)), when = counter ? `${from} to ${to}` : `at ${show(this.data.at[k], "ns", 4)}`;
    this.tip.replaceChildren(make("b", {}, when), ...labels.map((label, i) => make("div", {}, `${label ? `${label}: ` : ""}${this.text(curves[i][k])}`)));
    this.tip.style.left = `${Math.max(4, Math.min(x + 14, this.canvas.clientWidth - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = "4px";
  }

  paint() {
    const wide = this.canvas.clientWidth, ratio = Math.min(window.devicePixelRatio || 1, 2);
    if (!wide) return;
    this.canvas.width = Math.round(wide * ratio);
    this.canvas.height = Math.round(CHART * ratio);
    const pen = this.canvas.getContext("2d"), [t0, t1] = this.timeline.view, { at } = this.data, left = this.timeline.gutter(), base = CHART - 8;
    const first = this.at(t0), curves = this.family.curves, last = Math.min(curves[0].length, this.at(t1) + 1);
    const highest = Math.max(...curves.map((values) => values.slice(first, last).reduce((a, b) => Math.max(a, b), 0)));
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, wide, CHART);
    pen.strokeStyle = styleOf("line");
    pen.strokeRect(left + 0.5, base + 0.5, wide, 0);
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, wide, CHART);
    pen.clip();
    pen.lineWidth = 1.5;
    curves.forEach((values, i) => {
      pen.strokeStyle = this.paintOf(i);
      pen.beginPath();
      for (let k = first; k < last; k++) {
        const y = base - (values[k] / (highest || 1)) * (CHART - 20);
        pen.lineTo(this.timeline.xAt(at[k]), y);
        pen.lineTo(this.timeline.xAt(at[Math.min(k + 1, at.length - 1)]), y);
      }
      pen.stroke();
    });
    pen.restore();
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = styleOf("ink");
    pen.fillText(fitted(pen, `to ${this.text(highest)}`, left - 10), 6, 16);
  }
}
