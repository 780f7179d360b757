// A run in time: one component over one set of rows (device, host, tenant, request, lane, kind, name, start, span, cause, bytes).
//
// A frame costs as much as it has columns of pixels, whatever the number of rows: the rows of a track follow each other, so the
// rows of a column are found by bisection, their time comes from a running sum, and the longest of them, which gives the colour,
// from blocks that know their longest.

const KIND_WORDS = {
  kernel: "kernel", copy_in: "copy from the host", copy_out: "copy to the host", copy_peer: "copy to another GPU", collective: "collective",
  nvme_read: "read from disk", nvme_write: "write to disk", host: "work of the host", swap_in: "swap in", swap_out: "swap out", migration: "migration of pages",
  eviction: "eviction of pages", fault_batch: "faults served", host_fault: "fault of the CPU", stall: "stall", device_call: "call of the allocator",
  phase: "phase", step: "step of the program", queued: "queued", waiting_for_kv: "waiting for keys and values", prefill: "prefill", decode: "decode", preempted: "preempted",
  computing: "computing", saving: "stopped for a checkpoint", blocked: "blocked by a copy on its way", restarting: "noticing, restarting, loading",
  short_of_nodes: "waiting for nodes", checkpoint_copy: "copy of a checkpoint", failure: "failure", job: "job",
};
const KIND_COLOURS = {
  kernel: "#0072B2", copy_in: "#56B4E9", copy_out: "#7F7A1C", copy_peer: "#332288", collective: "#882255", nvme_read: "#009E73", nvme_write: "#5B6270",
  host: "#7F7A1C", swap_in: "#D55E00", swap_out: "#E69F00", migration: "#D55E00", eviction: "#E69F00", fault_batch: "#882255", host_fault: "#CC79A7",
  stall: "#B3261E", device_call: "#5B6270", phase: "#8A8F99", step: "#8A8F99", queued: "#CC79A7", waiting_for_kv: "#E69F00", prefill: "#D55E00", decode: "#0072B2", preempted: "#B3261E",
  computing: "#0072B2", saving: "#E69F00", blocked: "#CC79A7", restarting: "#D55E00", short_of_nodes: "#332288", checkpoint_copy: "#56B4E9", failure: "#B3261E", job: "#0072B2",
};
const STALL_COLOURS = {
  stall_swap_in: "#D55E00", stall_swap_out: "#E69F00", stall_alloc: "#CC79A7", stall_launch: "#56B4E9", stall_sync: "#009E73", stall_event: "#7F7A1C",
  stall_sms: "#332288", stall_copy_engine: "#B3261E", stall_fault: "#882255", stall_migration: "#332288", stall_remote: "#8A8F99", stall_explicit: "#7F7A1C",
  stall_host: "#009E73",
};
const LINK_COLOURS = { h2d: "#D55E00", d2h: "#E69F00" };
const SPARE_COLOURS = ["#CC79A7", "#882255", "#56B4E9", "#7F7A1C", "#009E73", "#E69F00", "#332288", "#0072B2"];
const HEIGHTS = { stall: 12, phase: 14, request: 12 };
const TRACK = 24, GAP = 3, AXIS = 26, AREA = 110, RATE = 44, BLOCK = 64, LEAST_SPAN = 8;

function rgbOf(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function firstAbove(values, limit, from, to) {
  // The first index in [from, to) whose value is above the limit.
  while (from < to) {
    const middle = (from + to) >> 1;
    if (values[middle] > limit) to = middle; else from = middle + 1;
  }
  return from;
}

class Track {
  // The rows of one lane of one device: `rows` their numbers, in order of time.
  constructor(label, group, rows, data) {
    Object.assign(this, { label, group, rows, height: HEIGHTS[group] || TRACK });
    const count = rows.length;
    this.start = new Float64Array(count);
    this.end = new Float64Array(count);
    this.sum = new Float64Array(count + 1);
    for (let i = 0; i < count; i++) {
      this.start[i] = data.start[rows[i]];
      // What overlaps, against the promise of the rows, is drawn up to the next.
      this.end[i] = Math.max(this.start[i] + data.span[rows[i]], i ? this.end[i - 1] : -Infinity);
      this.sum[i + 1] = this.sum[i] + data.span[rows[i]];
    }
    const blocks = Math.ceil(count / BLOCK);
    this.longest = new Int32Array(blocks);
    for (let block = 0; block < blocks; block++) this.longest[block] = this.widest(block * BLOCK, Math.min(count, (block + 1) * BLOCK));
  }

  length(i) { return this.sum[i + 1] - this.sum[i]; }

  widest(from, to) {
    let best = from;
    for (let i = from + 1; i < to; i++) if (this.length(i) > this.length(best)) best = i;
    return best;
  }

  longestOf(from, to) {
    // The longest of the rows [from, to).
    const low = Math.ceil(from / BLOCK), high = Math.floor(to / BLOCK);
    if (high - low < 1) return this.widest(from, to);
    let best = this.widest(from, Math.max(from + 1, low * BLOCK));
    for (let block = low; block < high; block++) if (this.length(this.longest[block]) > this.length(best)) best = this.longest[block];
    if (high * BLOCK < to) {
      const last = this.widest(high * BLOCK, to);
      if (this.length(last) > this.length(best)) best = last;
    }
    return best;
  }

  busy(from, to, t0, t1) {
    // ns of the rows [from, to) that lie within [t0, t1].
    if (to <= from) return 0;
    return this.sum[to] - this.sum[from] - Math.max(0, t0 - this.start[from]) - Math.max(0, this.end[to - 1] - t1);
  }

  at(time, slack) {
    // The row at this time, or the nearest within so many ns; -1 for none.
    const i = firstAbove(this.end, time - slack, 0, this.rows.length);
    if (i >= this.rows.length || this.start[i] > time + slack) return -1;
    const j = firstAbove(this.start, time + slack, i, this.rows.length);
    return j - i > 1 ? this.longestOf(i, j) : i;
  }
}

class Series {
  // Counters that stand on each other, or beside each other: each value holds until the next.
  constructor(group, names, data, paints) {
    this.names = names;
    this.times = names.map((_, i) => data[`${group}.${i}.time`]);
    this.values = names.map((_, i) => data[`${group}.${i}.value`]);
    this.paints = names.map((name, i) => paints[name] || SPARE_COLOURS[i % SPARE_COLOURS.length]);
  }

  at(which, time) {
    const i = firstAbove(this.times[which], time, 0, this.times[which].length) - 1;
    return i < 0 ? 0 : this.values[which][i];
  }

  peaks(which) {
    // Of each block of values where the highest is.
    this.known ??= [];
    if (!this.known[which]) {
      const values = this.values[which], found = new Int32Array(Math.ceil(values.length / BLOCK));
      for (let i = 0; i < values.length; i++) {
        const block = Math.floor(i / BLOCK);
        if (i % BLOCK === 0 || values[i] > values[found[block]]) found[block] = i;
      }
      this.known[which] = found;
    }
    return this.known[which];
  }

  highest(which, t0, t1, from = 0) {
    // The highest value within [t0, t1), when, and from where on the next column is looked for.
    const times = this.times[which], values = this.values[which], before = firstAbove(times, t0, from, times.length) - 1;
    let best = before < 0 ? 0 : values[before], when = t0, i = Math.max(0, before);
    const j = firstAbove(times, t1, i, times.length);
    const look = (at) => { if (values[at] > best) { best = values[at]; when = Math.max(t0, times[at]); } };
    for (; i < j && i % BLOCK; i++) look(i);
    for (const peaks = this.peaks(which); i + BLOCK <= j; i += BLOCK) look(peaks[i / BLOCK]);
    for (; i < j; i++) look(i);
    return [best, when, Math.max(0, j - 1)];
  }
}

class Timeline {
  constructor(bytes, about) {
    this.data = unpack(bytes);
    this.words = this.data.about;
    this.about = about;
    this.count = this.data.start.length;
    this.listeners = new Set();
    this.tracks = this.makeTracks();
    const { owners, counters, rates, colours } = this.words;
    this.owners = new Series("owners", owners, this.data, colours);
    this.counters = new Series("counters", counters, this.data, { allocated: "#0072B2", reserved: "#B3261E" });
    this.rates = new Series("rates", rates, this.data, LINK_COLOURS);
    this.whole = this.extent();
    this.view = [...this.whole];
    this.matches = null;
    this.selected = -1;
    this.build();
  }

  extent() {
    let low = this.count ? this.data.start[0] : 0, high = low + 1;
    for (const track of this.tracks) if (track.rows.length) high = Math.max(high, track.end[track.rows.length - 1]);
    for (const series of [this.owners, this.counters]) for (const times of series.times) if (times.length) {
      low = Math.min(low, times[0]);
      high = Math.max(high, times[times.length - 1]);
    }
    return [low, high];
  }

  makeTracks() {
    const { lane, device, host } = this.data, lanes = this.words.lanes;
    const devices = device ? Math.max(...sample(device)) + 1 : 1;
    const keyOf = (row) => lane[row] + lanes.length * ((device ? device[row] : 0) + devices * (host ? host[row] : 0));
    const sizes = new Map();
    for (let row = 0; row < this.count; row++) { const key = keyOf(row); sizes.set(key, (sizes.get(key) || 0) + 1); }
    const rows = new Map([...sizes].map(([key, size]) => [key, [new Int32Array(size), 0]]));
    for (let row = 0; row < this.count; row++) { const one = rows.get(keyOf(row)); one[0][one[1]++] = row; }
    const order = ["phase", "stream", "stall", "copy engine", "link", "collective", "fault", "host", "request"];
    const found = [...rows].map(([key, [mine]]) => {
      const [name, group, number] = lanes[key % lanes.length], place = Math.floor(key / lanes.length);
      const [at, on] = [place % devices, Math.floor(place / devices)];
      // The stalls of a stream lie below it.
      const rank = [on, at, order.indexOf(group === "stall" ? "stream" : group), number, group === "stall" ? 1 : 0, key % lanes.length];
      const where = `${host ? `host ${on} ` : ""}${device ? `${this.words.device || "GPU"} ${at} ` : ""}`;
      return [rank, new Track(where + (group === "stall" ? "stalls" : name), group, mine, this.data)];
    });
    found.sort(([a], [b]) => a.reduce((found, value, i) => found || value - b[i], 0));
    return found.map(([, track]) => track);
  }

  // Elements

  build() {
    this.canvas = make("canvas", { tabindex: 0, role: "img", "aria-label": "Timeline: w and s zoom, a and d move, 0 shows all" });
    this.context = this.canvas.getContext("2d");
    this.tip = make("div", { class: "tip", role: "status" });
    this.hint = make("div", { class: "hint" }, "click, then the wheel zooms");
    this.detail = make("div", { class: "detail" }, make("p", { class: "soft" },
      "Wheel or pinch zooms, drag moves, a double click zooms to what is under the pointer; keys: w s a d or arrows, 0 for all, c to the cause, n for the next match."));
    this.search = make("input", { type: "search", class: "grow", placeholder: "search by name", "aria-label": "Search by name", oninput: () => this.find(this.search.value),
      onkeydown: (event) => { if (event.key === "Enter") { this.next(event.shiftKey ? -1 : 1); event.preventDefault(); } } });
    this.found = make("span", { class: "count", role: "status" });
    const button = (words, title, then) => make("button", { type: "button", title, "aria-label": title, onclick: then }, words);
    this.summary = make("div");
    this.element = make("div", { class: "timeline" },
      make("div", { class: "bar" }, this.search, button("‹", "previous match", () => this.next(-1)), button("›", "next match", () => this.next(1)), this.found,
        button("+", "zoom in", () => this.zoom(0.5)), button("−", "zoom out", () => this.zoom(2)), button("all", "show all", () => this.show(...this.whole))),
      this.keysOf(), make("div", { class: "canvas" }, this.canvas, this.tip, this.hint), this.about.metrics ? (this.metrics = new MetricChart(this.about.metrics, this)).element : "",
      this.detail, this.summary);
    this.listen();
    new ResizeObserver(() => this.paint()).observe(this.canvas.parentElement);
    repainted.add(() => { this.element.replaceChild(this.keysOf(), this.element.children[1]); this.paint(); });
  }

  keysOf() {
    const present = new Set(), { kind, name } = this.data;
    for (const track of this.tracks) for (let i = 0; i < track.rows.length; i += Math.max(1, Math.floor(track.rows.length / 4000)))
      present.add(track.group === "stall" ? this.words.names[name[track.rows[i]]] : this.words.kinds[kind[track.rows[i]]]);
    const keys = [...present].filter((word) => word !== "phase").sort((a, b) => a.startsWith("stall") - b.startsWith("stall")).map((word) => [STALL_COLOURS[word] || KIND_COLOURS[word],
      word.startsWith("stall_") ? `stall: ${word.slice(6).replaceAll("_", " ")}` : KIND_WORDS[word] || word]);
    return make("div", { class: "keys" }, ...keys.map(([paint, words]) => make("span", {}, make("i", { style: `background:${colour(paint)}` }), words)));
  }

  listen() {
    const canvas = this.canvas, points = new Map();
    let moved = 0, pinched = 0;
    const where = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    canvas.addEventListener("wheel", (event) => {
      const focused = document.activeElement === canvas;
      if (!focused && !event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return; // the page scrolls
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) this.move((event.deltaX || event.deltaY) / this.plotWidth());
      else this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.005), this.timeAt(where(event)[0]));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      points.set(event.pointerId, where(event));
      moved = 0;
      canvas.setPointerCapture(event.pointerId);
      if (event.pointerType === "mouse") canvas.focus({ preventScroll: true });
    });
    canvas.addEventListener("pointermove", (event) => {
      const now = where(event), before = points.get(event.pointerId);
      if (!before) { this.point(...now); return; }
      moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
      if (points.size === 2) {
        const other = [...points].find(([id]) => id !== event.pointerId)[1];
        const [a, b] = [Math.abs(before[0] - other[0]), Math.abs(now[0] - other[0])];
        pinched = 1;
        if (a > 4 && b > 4) this.zoom(a / b, this.timeAt((now[0] + other[0]) / 2));
      } else if (moved > 3) {
        canvas.classList.add("dragging");
        this.tip.style.display = "none";
        this.move((before[0] - now[0]) / this.plotWidth());
      }
      points.set(event.pointerId, now);
    });
    const up = (event) => {
      if (points.delete(event.pointerId) && moved <= 3 && !pinched && event.type === "pointerup") this.select(this.rowAt(...where(event)));
      if (!points.size) pinched = 0;
      canvas.classList.remove("dragging");
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", () => { this.tip.style.display = "none"; this.hovered = null; this.paint(); });
    canvas.addEventListener("focus", () => { this.hint.style.display = "none"; });
    canvas.addEventListener("blur", () => { this.hint.style.display = ""; });
    canvas.addEventListener("dblclick", (event) => {
      const row = this.rowAt(...where(event));
      if (row >= 0) this.showRow(row);
    });
    const keys = { w: () => this.zoom(0.6), s: () => this.zoom(1 / 0.6), "+": () => this.zoom(0.6), "-": () => this.zoom(1 / 0.6), a: () => this.move(-0.2), d: () => this.move(0.2),
      ArrowUp: () => this.zoom(0.6), ArrowDown: () => this.zoom(1 / 0.6), ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2),
      0: () => this.show(...this.whole), Home: () => this.show(...this.whole), c: () => this.toCause(), n: () => this.next(1), Escape: () => this.select(-1) };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  // Where the view is

  gutter() { return this.canvas.clientWidth < 560 ? 64 : 130; }
  plotWidth() { return Math.max(40, this.canvas.clientWidth - this.gutter()); }
  timeAt(x) { return this.view[0] + ((x - this.gutter()) / this.plotWidth()) * (this.view[1] - this.view[0]); }
  xAt(time) { return this.gutter() + ((time - this.view[0]) / (this.view[1] - this.view[0])) * this.plotWidth(); }

  show(from, to, quiet = false) {
    const all = this.whole[1] - this.whole[0], width = Math.min(Math.max(to - from, LEAST_SPAN), all * 1.02);
    let start = (from + to - width) / 2;
    start = Math.max(this.whole[0] - 0.01 * all, Math.min(start, this.whole[1] + 0.01 * all - width));
    this.view = [start, start + width];
    if (!quiet) this.listeners.forEach((listener) => listener(this.view));
    this.paint();
  }

  zoom(factor, around = (this.view[0] + this.view[1]) / 2) {
    this.show(around - (around - this.view[0]) * factor, around + (this.view[1] - around) * factor);
  }

  move(share) {
    const step = share * (this.view[1] - this.view[0]);
    this.show(this.view[0] + step, this.view[1] + step);
  }

  showRow(row) {
    const { start, span } = this.data, around = Math.max(span[row] * 3, 2000);
    this.show(start[row] + span[row] / 2 - around, start[row] + span[row] / 2 + around);
  }

  // What is under the pointer

  trackAt(y) { return this.tracks.find((track) => y >= track.top && y < track.top + track.height + GAP); }

  rowAt(x, y) {
    const track = this.trackAt(y);
    if (!track || x < this.gutter()) return -1;
    const i = track.at(this.timeAt(x), (1.5 * (this.view[1] - this.view[0])) / this.plotWidth());
    return i < 0 ? -1 : track.rows[i];
  }

  point(x, y) {
    const row = this.rowAt(x, y), time = this.timeAt(x);
    const words = row >= 0 ? this.brief(row) : x >= this.gutter() && y > this.areaTop ? this.levels(time) : "";
    this.hovered = x >= this.gutter() ? { x, row } : null;
    this.tip.style.display = words ? "block" : "none";
    if (words) {
      this.tip.innerHTML = words;
      const wide = this.canvas.clientWidth;
      this.tip.style.maxWidth = `${Math.min(420, wide - 16)}px`;
      const own = this.tip.offsetWidth;
      this.tip.style.left = `${Math.max(4, Math.min(x + 14, wide - own - 4))}px`;
      this.tip.style.top = `${Math.max(2, y + 18 + this.tip.offsetHeight > this.canvas.clientHeight ? y - this.tip.offsetHeight - 10 : y + 18)}px`;
    }
    this.paint();
  }

  nameOf(row) { return this.words.names[this.data.name[row]] ?? ""; }
  kindOf(row) { return this.words.kinds[this.data.kind[row]]; }

  causeOf(row) { return this.data.back[row] ? row - this.data.back[row] : -1; }

  titleOf(row) {
    const kind = this.kindOf(row), name = this.nameOf(row);
    if (kind === "stall") return `stall: ${name.replace("stall_", "").replaceAll("_", " ")}`;
    if (name.startsWith("request ") || (kind === "queued" && name)) return `${name}: ${KIND_WORDS[kind]}`;
    return kind === "kernel" || kind === "phase" || kind === "step" || kind === "job" ? name : `${KIND_WORDS[kind] || kind}${name ? ` of ${name}` : ""}`;
  }

  facts(row) {
    const { start, span, bytes, op, unit } = this.data, kind = this.kindOf(row), cause = this.causeOf(row), said = [];
    said.push(["takes", `${show(span[row], "ns", 4)} (${exact(span[row], "ns")})`], ["from", `${exact(start[row], "ns")} to ${exact(start[row] + span[row], "ns")}`]);
    if (bytes[row] > 0) said.push(["bytes", `${show(bytes[row], "B", 4)} (${exact(bytes[row], "B")})${span[row] > 0 ? `, ${rounded(bytes[row] / span[row])} GB/s` : ""}`]);
    if (kind === "stall" && this.words.meanings[this.nameOf(row)]) said.push(["why", this.words.meanings[this.nameOf(row)]]);
    if (cause >= 0) said.push([kind === "stall" ? "waited for" : "began after", `${this.titleOf(cause)}, which took ${show(span[cause], "ns", 4)}`]);
    if (op[row] >= 0) said.push(["operator", grouped(op[row])]);
    if (unit[row] >= 0) said.push(["tensor", grouped(unit[row])]);
    for (const name of ["device", "host", "tenant", "request"]) if (this.data[name] && this.data[name][row] >= 0) said.push([name, grouped(this.data[name][row])]);
    return said;
  }

  brief(row) {
    const escape = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
    return `<b>${escape(this.titleOf(row))}</b>${this.facts(row).slice(0, 5).map(([what, value]) => `<br>${what} ${escape(value)}`).join("")}`;
  }

  levels(time) {
    const lines = this.owners.names.map((name, i) => [name, this.owners.at(i, time)]).filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]);
    const other = this.counters.names.map((name, i) => [name, this.counters.at(i, time)]).filter(([, value]) => value > 0);
    const rates = this.rates.names.map((name, i) => [name, this.rates.at(i, time)]).filter(([, value]) => value > 0);
    return [`<b>at ${exact(Math.round(time), "ns")}</b>`, ...lines.map(([name, value]) => `${name}: ${show(value, "B")} (${exact(value, "B")})`),
      ...other.map(([name, value]) => `<i>${name}</i>: ${show(value, "B")} (${exact(value, "B")})`), ...rates.map(([name, value]) => `${name}: ${rounded(value / 1e9)} GB/s`)].join("<br>");
  }

  select(row) {
    this.selected = row;
    if (row < 0) this.detail.replaceChildren();
    else {
      const cause = this.causeOf(row);
      this.detail.replaceChildren(make("h4", {}, this.titleOf(row)), make("p", {}, this.facts(row).map(([what, value]) => `${what} ${value}`).join("; ") + "."),
        cause >= 0 ? make("button", { type: "button", onclick: () => this.toCause() }, "to its cause") : "");
    }
    this.paint();
  }

  toCause() {
    const cause = this.selected >= 0 ? this.causeOf(this.selected) : -1;
    if (cause < 0) return;
    const { start, span } = this.data;
    if (start[cause] < this.view[0] || start[cause] + span[cause] > this.view[1]) this.showRow(cause);
    this.select(cause);
  }

  // Search

  find(text) {
    const wanted = text.trim().toLowerCase();
    this.matches = null;
    if (wanted) {
      const { name, kind } = this.data, names = this.words.names.map((word) => word.toLowerCase().includes(wanted));
      const kinds = this.words.kinds.map((word) => (KIND_WORDS[word] || word).includes(wanted));
      this.matches = new Uint8Array(this.count);
      let many = 0, total = 0;
      for (let row = 0; row < this.count; row++) if (names[name[row]] || kinds[kind[row]]) { this.matches[row] = 1; many++; total += this.data.span[row]; }
      this.found.textContent = `${grouped(many)} match${many === 1 ? "es" : ""}, ${show(total, "ns")}`;
    } else this.found.textContent = "";
    for (const track of this.tracks) {
      track.matched = null;
      if (!this.matches) continue;
      track.matched = new Int32Array(track.rows.length + 1); // how many match before each
      for (let i = 0; i < track.rows.length; i++) track.matched[i + 1] = track.matched[i] + this.matches[track.rows[i]];
    }
    this.paint();
  }

  next(step) {
    if (!this.matches) return;
    let row = this.selected >= 0 ? this.selected : firstAbove(this.data.start, this.view[0], 0, this.count) - (step > 0 ? 1 : 0);
    for (let tried = 0; tried < this.count; tried++) {
      row = (row + step + this.count) % this.count;
      if (this.matches[row]) {
        const { start, span } = this.data;
        if (start[row] < this.view[0] || start[row] + span[row] > this.view[1]) this.showRow(row);
        this.select(row);
        return;
      }
    }
  }

  // Painting

  paint() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => { this.asked = 0; this.paintNow(); });
  }

  layout() {
    let top = AXIS;
    for (const track of this.tracks) {
      track.top = top;
      top += track.height + (track.group === "stream" ? 1 : GAP);
    }
    this.areaTop = top + 6;
    if (this.owners.names.length || this.counters.names.length) top = this.areaTop + AREA;
    this.rateTop = top + 14;
    if (this.rates.names.length) top = this.rateTop + RATE;
    return top + 6;
  }

  paintNow() {
    const wide = this.canvas.clientWidth, high = this.layout(), ratio = Math.min(window.devicePixelRatio || 1, 2);
    if (!wide) return;
    const began = performance.now();
    if (this.canvas.width !== Math.round(wide * ratio) || this.canvas.height !== Math.round(high * ratio)) {
      this.canvas.width = Math.round(wide * ratio);
      this.canvas.height = Math.round(high * ratio);
      this.canvas.style.height = `${high}px`;
    }
    const pen = this.context;
    this.ink = { paper: rgbOf(hexOf(styleOf("card"))), ink: styleOf("ink"), soft: styleOf("soft"), line: styleOf("line"), card: styleOf("card"), alarm: styleOf("alarm") };
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = this.ink.card;
    pen.fillRect(0, 0, wide, high);
    this.axis(pen, high);
    this.strips(pen, ratio);
    this.labels(pen);
    if (this.owners.names.length || this.counters.names.length) this.area(pen);
    if (this.rates.names.length) this.links(pen);
    this.marks(pen, high);
    if (this.metrics) this.metrics.paint();
    clearTimeout(this.later);
    this.later = setTimeout(() => this.summarise(), 180);
    this.painted = performance.now() - began; // ms
  }

  axis(pen, high) {
    const [t0, t1] = this.view, [unit, word] = stepOf("ns", Math.max(Math.abs(t1), 1)), ticks = Math.max(2, Math.floor(this.plotWidth() / 110));
    const raw = (t1 - t0) / ticks, power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.textAlign = "center";
    const decimals = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
    for (let t = Math.ceil(t0 / step) * step; t <= t1; t += step) {
      const x = Math.round(this.xAt(t)) + 0.5;
      pen.strokeStyle = this.ink.line;
      pen.beginPath();
      pen.moveTo(x, AXIS - 6);
      pen.lineTo(x, high);
      pen.stroke();
      pen.fillStyle = this.ink.soft;
      pen.fillText(`${grouped(t / unit, Math.min(decimals, 9))} ${word}`, Math.max(this.gutter() + 20, Math.min(x, this.canvas.clientWidth - 30)), AXIS / 2 - 1);
    }
    pen.textAlign = "left";
  }

  paintOf(row) {
    const kind = this.kindOf(row), name = this.data.name[row];
    const hex = kind === "stall" ? STALL_COLOURS[this.words.names[name]] || KIND_COLOURS.stall : KIND_COLOURS[kind] || "#8A8F99";
    const rgb = rgbOf(colour(hex)), shift = kind === "kernel" || kind === "phase" ? (((name * 7) % 5) - 2) * 14 : 0; // names of a kind differ a little
    return rgb.map((part) => Math.max(0, Math.min(255, part + shift)));
  }

  strips(pen, ratio) {
    // One line of pixels for each track, drawn as high as the track.
    const across = Math.round(this.plotWidth() * ratio), rows = this.tracks.length;
    if (!rows) return;
    if (!this.sheet || this.sheet.width !== across || this.sheet.height !== rows) {
      this.sheet = new OffscreenCanvas(across, rows);
      this.image = new ImageData(across, rows);
    }
    this.image.data.fill(0);
    const shades = new Map();
    this.tracks.forEach((track, at) => this.strip(track, new Uint8ClampedArray(this.image.data.buffer, 4 * at * across, 4 * across), across, shades));
    this.sheet.getContext("2d").putImageData(this.image, 0, 0);
    pen.imageSmoothingEnabled = false;
    this.tracks.forEach((track, at) => pen.drawImage(this.sheet, 0, at, across, 1, this.gutter(), track.top, this.plotWidth(), track.height));
    this.names(pen);
  }

  strip(track, line, across, shades) {
    const [t0, t1] = this.view, per = (t1 - t0) / across, { start, end, rows } = track, count = rows.length;
    const put = (x, row, strength) => {
      const key = this.kindOf(row) === "stall" ? -1 - this.data.name[row] : this.data.kind[row] * 65536 + (this.data.name[row] % 5);
      let rgb = shades.get(key);
      if (!rgb) shades.set(key, (rgb = this.paintOf(row)));
      line[4 * x] = rgb[0]; line[4 * x + 1] = rgb[1]; line[4 * x + 2] = rgb[2]; line[4 * x + 3] = 255 * strength;
    };
    let i = firstAbove(end, t0, 0, count);
    for (let x = 0; x < across && i < count;) {
      const from = t0 + x * per;
      if (start[i] >= from + per) { x = Math.min(across, Math.max(x + 1, Math.floor((start[i] - t0) / per))); continue; }
      const j = firstAbove(start, from + per, i, Math.min(count, i + 1)) === i + 1 && (i + 1 >= count || start[i + 1] >= from + per) ? i + 1 : firstAbove(start, from + per, i, count);
      const dim = track.matched && track.matched[j] === track.matched[i];
      if (j - i === 1 && end[i] >= from + per) {
        // One row fills columns up to its end; a thin line sets it apart from its neighbour.
        const last = Math.min(across, Math.max(x + 1, Math.floor((end[i] - t0) / per)));
        for (let to = x; to < last; to++) put(to, rows[i], dim ? 0.16 : to === x && last - x > 5 ? 0.6 : 1);
        x = last;
      } else {
        const share = Math.min(1, track.busy(i, j, from, from + per) / per), strong = 0.3 + 0.7 * share;
        let row = rows[track.longestOf(i, j)];
        if (track.matched && !dim) { let k = i; while (!this.matches[rows[k]]) k++; row = rows[k]; }
        put(x, row, dim ? 0.12 : track.matched ? 1 : strong);
        x++;
      }
      i = firstAbove(end, t0 + x * per, i, count);
    }
  }

  names(pen) {
    // Names in rows that are wide enough.
    const [t0, t1] = this.view, least = ((t1 - t0) / this.plotWidth()) * 38;
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    for (const track of this.tracks) {
      if (track.height < 12) continue;
      const { start, end, rows } = track;
      let shown = 0;
      for (let i = firstAbove(end, t0, 0, rows.length); i < rows.length && start[i] < t1 && shown < 400; i++) {
        if (end[i] - start[i] < least) {
          if (rows.length > 20000) { const far = firstAbove(end, start[i] + least / 8, i, rows.length); i = Math.max(i, far - 1); }
          continue;
        }
        shown++;
        const left = Math.max(this.gutter(), this.xAt(start[i])) + 4, right = Math.min(this.canvas.clientWidth, this.xAt(end[i])) - 3;
        const words = this.titleOf(rows[i]), room = Math.floor((right - left) / 5.8);
        if (room < 3 || (this.matches && !this.matches[rows[i]])) continue;
        const [r, g, b] = this.paintOf(rows[i]);
        pen.fillStyle = r * 0.3 + g * 0.59 + b * 0.11 > 140 ? "#101318" : "#ffffff";
        pen.fillText(words.length > room ? `${words.slice(0, room - 1)}…` : words, left, track.top + track.height / 2 + 0.5, right - left);
      }
    }
  }

  labels(pen) {
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    const room = this.gutter() - 10;
    for (const track of this.tracks) {
      pen.fillStyle = track.group === "stall" ? this.ink.soft : this.ink.ink;
      pen.fillText(fitted(pen, track.group === "stall" ? `   ${track.label}` : track.label, room), 6, track.top + track.height / 2 + 0.5);
    }
  }

  area(pen) {
    // Memory by owner, stacked; of each column the moment at which most is allocated.
    const width = this.plotWidth(), [t0, t1] = this.view, per = (t1 - t0) / width, left = this.gutter(), base = this.areaTop + AREA;
    const sum = this.counters.names.indexOf("allocated"), reserved = this.counters.names.indexOf("reserved");
    const series = this.owners.names.length ? this.owners : null;
    // What stands on what: of each owner the height up to and with it, by column.
    const columns = Math.ceil(width), layers = (series ? series.names : [""]).map(() => new Float64Array(columns)), held = new Float64Array(columns);
    let top = 0, at = 0, atHeld = 0, most = 0, when = t0;
    for (let x = 0; x < columns; x++) {
      const from = t0 + x * per;
      if (sum >= 0) [most, when, at] = this.counters.highest(sum, from, from + per, at);
      else when = from;
      let total = 0;
      layers.forEach((layer, i) => { layer[x] = total += series ? series.at(i, when) : most; });
      if (reserved >= 0) [held[x], , atHeld] = this.counters.highest(reserved, from, from + per, atHeld);
      top = Math.max(top, held[x], total);
    }
    this.top = top = Math.max(top, this.about.capacity && this.about.capacity < 1.6 * top ? this.about.capacity : 0) || 1;
    const scale = (AREA - 14) / top, paints = (series ? series.paints : ["#0072B2"]).map((hex) => colour(hex));
    for (let i = layers.length - 1; i >= 0; i--) {
      pen.fillStyle = paints[i];
      pen.beginPath();
      pen.moveTo(left, base);
      for (let x = 0; x < columns; x++) { const y = base - layers[i][x] * scale; pen.lineTo(left + x, y); pen.lineTo(left + x + 1, y); }
      pen.lineTo(left + columns, base);
      pen.fill();
    }
    pen.lineWidth = 1.4;
    const line = (paint, dash, of) => {
      pen.strokeStyle = paint;
      pen.setLineDash(dash);
      pen.beginPath();
      for (let x = 0; x < columns; x++) { const y = base - of(x) * scale; if (x) pen.lineTo(left + x, y); else pen.moveTo(left, y); }
      pen.stroke();
      pen.setLineDash([]);
    };
    if (reserved >= 0) line(this.ink.ink, [], (x) => held[x]);
    if (this.about.capacity && this.about.capacity <= top) line(this.ink.alarm, [5, 3], () => this.about.capacity);
    pen.lineWidth = 1;
    pen.fillStyle = this.ink.ink;
    pen.fillText(fitted(pen, series ? "memory by owner" : "memory allocated", left - 10), 6, this.areaTop + 8);
    pen.fillStyle = this.ink.soft;
    pen.fillText(fitted(pen, `to ${show(top, "B")}`, left - 10), 6, this.areaTop + 23);
    pen.fillText(fitted(pen, "line: reserved", left - 10), 6, this.areaTop + 38);
    (series ? series.names : []).slice(0, 5).forEach((name, i) => {
      pen.fillStyle = paints[i];
      pen.fillRect(6, this.areaTop + 49 + 13 * i, 8, 8);
      pen.fillStyle = this.ink.soft;
      pen.fillText(fitted(pen, name, left - 24), 18, this.areaTop + 53 + 13 * i);
    });
  }

  links(pen) {
    // Bytes per second on each link.
    const width = this.plotWidth(), [t0, t1] = this.view, per = (t1 - t0) / width, left = this.gutter(), base = this.rateTop + RATE;
    const lines = this.rates.names.map((_, i) => Array.from({ length: Math.ceil(width) }, (_, x) => this.rates.highest(i, t0 + x * per, t0 + (x + 1) * per)[0]));
    const top = Math.max(1, ...lines.map((line) => line.reduce((a, b) => Math.max(a, b), 0)));
    lines.forEach((line, i) => {
      pen.strokeStyle = colour(this.rates.paints[i]);
      pen.beginPath();
      line.forEach((value, x) => { const y = base - (value / top) * (RATE - 8); if (x) pen.lineTo(left + x, y); else pen.moveTo(left + x, y); });
      pen.stroke();
    });
    pen.fillStyle = this.ink.ink;
    pen.fillText(fitted(pen, `links, to ${rounded(top / 1e9)} GB/s`, left - 10), 6, this.rateTop + 8);
    this.rates.names.slice(0, 2).forEach((name, i) => {
      pen.fillStyle = colour(this.rates.paints[i]);
      pen.fillText(fitted(pen, name, left - 10), 6, this.rateTop + 22 + 13 * i);
    });
  }

  marks(pen, high) {
    // The pointer, what is selected, and the way from its cause.
    const { start, span } = this.data;
    const box = (row, paint) => {
      const track = this.tracks.find((one) => one.rows[firstAbove(one.start, start[row] - 0.5, 0, one.rows.length)] !== undefined && has(one, row));
      if (!track) return null;
      const x = this.xAt(start[row]), w = Math.max(3, this.xAt(start[row] + span[row]) - x);
      pen.strokeStyle = paint;
      pen.lineWidth = 2;
      pen.strokeRect(Math.max(this.gutter(), x), track.top + 1, Math.min(w, this.canvas.clientWidth * 2), track.height - 2);
      pen.lineWidth = 1;
      return { x, end: x + w, y: track.top + track.height / 2 };
    };
    const row = this.hovered && this.hovered.row >= 0 ? this.hovered.row : this.selected;
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter(), 0, this.plotWidth(), high);
    pen.clip();
    if (this.selected >= 0) box(this.selected, this.ink.ink);
    if (row >= 0) {
      const own = box(row, this.ink.ink), cause = this.causeOf(row), from = cause >= 0 ? box(cause, this.ink.alarm) : null;
      if (own && from) {
        pen.strokeStyle = this.ink.alarm;
        pen.beginPath();
        pen.moveTo(from.end, from.y);
        pen.bezierCurveTo(from.end + 26, from.y, own.x - 26, own.y, own.x, own.y);
        pen.stroke();
      }
    }
    if (this.hovered) {
      pen.strokeStyle = this.ink.soft;
      pen.globalAlpha = 0.5;
      pen.beginPath();
      pen.moveTo(Math.round(this.hovered.x) + 0.5, AXIS);
      pen.lineTo(Math.round(this.hovered.x) + 0.5, high);
      pen.stroke();
    }
    pen.restore();
  }

  // What the view comes to

  summarise() {
    const [t0, t1] = this.view, width = t1 - t0, found = new Map();
    for (const track of this.tracks) {
      if (track.group === "phase") continue;
      const { start, end, rows } = track, last = firstAbove(start, t1, 0, rows.length);
      for (let i = firstAbove(end, t0, 0, rows.length); i < last; i++) {
        const row = rows[i], key = this.data.kind[row] * 1e7 + this.data.name[row];
        let one = found.get(key);
        if (!one) found.set(key, (one = { row, many: 0, total: 0 }));
        one.many++;
        one.total += Math.max(0, Math.min(end[i], t1) - Math.max(start[i], t0));
      }
    }
    const rows = [...found.values()].sort((a, b) => b.total - a.total).slice(0, 12);
    this.summary.replaceChildren(make("details", { open: this.summaryOpen, ontoggle: (event) => { this.summaryOpen = event.target.open; } },
      make("summary", {}, `What takes the ${show(width, "ns", 4)} in view`),
      make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...["what", "times", "in all", "of the view"].map((w, i) => make("th", { class: i ? "number" : "" }, w)))),
        make("tbody", {}, ...rows.map(({ row, many, total }) => make("tr", {}, make("td", {}, this.titleOf(row)), make("td", { class: "number" }, grouped(many)),
          make("td", { class: "number", title: exact(total, "ns") }, show(total, "ns")), make("td", { class: "number" }, `${((100 * total) / width).toFixed(1)} %`))))))));
  }
}

function has(track, row) {
  // Whether a track has this row; its rows are in the order of their numbers.
  const i = firstAbove(track.rows, row - 1, 0, track.rows.length);
  return track.rows[i] === row;
}

function hexOf(text) {
  return /^#[0-9a-f]{6}$/i.test(text) ? text : "#ffffff";
}

function sample(values) {
  // The distinct values of a long column of small numbers.
  const found = new Set();
  for (let i = 0; i < values.length; i++) found.add(values[i]);
  return found;
}

function fitted(pen, words, room) {
  if (pen.measureText(words).width <= room) return words;
  let text = words;
  while (text.length > 1 && pen.measureText(`${text}…`).width > room) text = text.slice(0, -1);
  return `${text}…`;
}
