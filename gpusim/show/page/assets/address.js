// The address map: every block of the heap over time, painted pixel by pixel, so that a million are as fast as a hundred.

class AddressMap {
  constructor(bytes, about) {
    this.data = unpack(bytes);
    this.words = this.data.about;
    this.about = about;
    const { addr, bytes: size } = this.data;
    let top = 1;
    for (let i = 0; i < addr.length; i++) top = Math.max(top, addr[i] + size[i]);
    for (let i = 0; i < this.data["seg.addr"].length; i++) top = Math.max(top, this.data["seg.addr"][i] + this.data["seg.bytes"][i]);
    this.whole = [0, this.words.end, 0, top * 1.01];
    this.view = [...this.whole];
    this.hidden = new Set();
    this.build();
  }

  build() {
    this.canvas = make("canvas", { tabindex: 0, role: "img", "aria-label": "Address map: w and s zoom, arrows move, 0 shows all" });
    this.canvas.style.height = "420px";
    this.context = this.canvas.getContext("2d");
    this.tip = make("div", { class: "tip", role: "status" });
    this.hint = make("div", { class: "hint" }, "click, then the wheel zooms; with Shift only in time");
    this.legend = make("div", { class: "legend", role: "group" });
    this.words.worstText = this.worst();
    this.element = make("div", { class: "map" }, make("p", {}, this.words.worstText), this.legend, make("div", { class: "canvas" }, this.canvas, this.tip, this.hint));
    this.keys();
    this.listen();
    new ResizeObserver(() => this.paint()).observe(this.canvas.parentElement);
    repainted.add(() => { this.keys(); this.paint(); });
  }

  when(time) { return this.words.requests ? `request ${grouped(Math.round(time))}` : show(time, "ns", 4); }

  worst() {
    const at = this.words.worst, free = this.data["hole.free"][at], largest = this.data["hole.largest"][at];
    if (at < 0 || free === largest) return "The free memory always is in one piece.";
    return `At ${this.when(this.data["hole.time"][at])}, ${show(free, "B")} are free, but the largest hole (framed) has ${show(largest, "B")}.`;
  }

  keys() {
    const present = new Set(this.data.group);
    const entries = this.words.names.map((name, i) => [name, i]).filter(([, i]) => present.has(i));
    this.legend.replaceChildren(...entries.map(([name, i]) => make("button", { type: "button", "aria-pressed": String(!this.hidden.has(i)), onclick: () => {
      if (!this.hidden.delete(i)) this.hidden.add(i);
      this.keys();
      this.paint();
    } }, swatch({ colour: this.words.colours[i], mark: "box" }), name)), make("span", { class: "count" }, "grey: held and free"));
  }

  listen() {
    const canvas = this.canvas, points = new Map();
    const where = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    canvas.addEventListener("wheel", (event) => {
      if (document.activeElement !== canvas && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY || event.deltaX)) * 0.005), where(event), event.shiftKey);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => { points.set(event.pointerId, where(event)); canvas.setPointerCapture(event.pointerId); if (event.pointerType === "mouse") canvas.focus({ preventScroll: true }); });
    canvas.addEventListener("pointermove", (event) => {
      const now = where(event), before = points.get(event.pointerId);
      if (!before) { this.point(...now); return; }
      if (points.size === 2) {
        const other = [...points].find(([id]) => id !== event.pointerId)[1];
        const far = ([x, y]) => Math.hypot(x - other[0], y - other[1]);
        if (far(before) > 4 && far(now) > 4) this.zoom(far(before) / far(now), [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2]);
      } else this.move(before[0] - now[0], event.pointerType === "mouse" ? now[1] - before[1] : 0);
      points.set(event.pointerId, now);
    });
    const up = (event) => points.delete(event.pointerId);
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", () => { this.tip.style.display = "none"; });
    canvas.addEventListener("focus", () => { this.hint.style.display = "none"; });
    canvas.addEventListener("blur", () => { this.hint.style.display = ""; });
    canvas.addEventListener("dblclick", () => this.show(this.whole));
    const middle = () => [this.left() + this.across() / 2, this.high() / 2];
    const keys = { w: () => this.zoom(0.6, middle()), s: () => this.zoom(1 / 0.6, middle()), "+": () => this.zoom(0.6, middle()), "-": () => this.zoom(1 / 0.6, middle()), 0: () => this.show(this.whole), Home: () => this.show(this.whole),
      ArrowLeft: () => this.move(-80, 0), ArrowRight: () => this.move(80, 0), ArrowUp: () => this.move(0, 60), ArrowDown: () => this.move(0, -60), a: () => this.move(-80, 0), d: () => this.move(80, 0) };
    canvas.addEventListener("keydown", (event) => { if (!event.ctrlKey && !event.metaKey && !event.altKey && keys[event.key]) { event.preventDefault(); keys[event.key](); } });
  }

  left() { return this.canvas.clientWidth < 560 ? 58 : 80; }
  across() { return Math.max(40, this.canvas.clientWidth - this.left() - 4); }
  high() { return this.canvas.clientHeight - 26; }
  timeAt(x) { return this.view[0] + ((x - this.left()) / this.across()) * (this.view[1] - this.view[0]); }
  addressAt(y) { return this.view[3] - (y / this.high()) * (this.view[3] - this.view[2]); }

  show(view) {
    const [a, b, c, d] = view, [A, B, C, D] = this.whole;
    const within = (low, high, least, LOW, HIGH) => {
      const width = Math.min(Math.max(high - low, least), HIGH - LOW), start = Math.max(LOW, Math.min((low + high - width) / 2, HIGH - width));
      return [start, start + width];
    };
    this.view = [...within(a, b, 16, A, B), ...within(c, d, 512, C, D)];
    this.paint();
  }

  zoom(factor, [x, y], timeOnly = false) {
    const t = this.timeAt(x), at = this.addressAt(y), [a, b, c, d] = this.view, other = timeOnly ? 1 : factor;
    this.show([t - (t - a) * factor, t + (b - t) * factor, at - (at - c) * other, at + (d - at) * other]);
  }

  move(dx, dy) {
    const [a, b, c, d] = this.view, t = (dx / this.across()) * (b - a), at = (dy / this.high()) * (d - c);
    this.show([a + t, b + t, c + at, d + at]);
  }

  point(x, y) {
    const time = this.timeAt(x), at = this.addressAt(y), { start, span, addr, bytes, unit, group } = this.data;
    let found = -1;
    const last = firstAbove(start, time, 0, start.length);
    for (let i = 0; i < last && found < 0; i++) if (time < start[i] + span[i] && at >= addr[i] && at < addr[i] + bytes[i] && !this.hidden.has(group[i])) found = i;
    const held = this.data["seg.start"].findIndex((s, i) => s <= time && time < s + this.data["seg.span"][i] && at >= this.data["seg.addr"][i] && at < this.data["seg.addr"][i] + this.data["seg.bytes"][i]);
    const words = found >= 0 ? `<b>tensor ${grouped(unit[found])}</b>, ${this.words.names[group[found]]}<br>${show(bytes[found], "B")} (${exact(bytes[found], "B")})<br>address ${grouped(addr[found])}<br>`
      + `from ${this.when(start[found])} to ${this.when(start[found] + span[found])}${this.words.requests ? "" : ` (${exact(span[found], "ns")})`}`
      : held >= 0 ? `<b>free</b>, in a segment of ${show(this.data["seg.bytes"][held], "B")}` : "";
    this.tip.style.display = words && x > this.left() ? "block" : "none";
    this.tip.innerHTML = words;
    this.tip.style.left = `${Math.max(4, Math.min(x + 14, this.canvas.clientWidth - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${y + 18 + this.tip.offsetHeight > this.canvas.clientHeight ? y - this.tip.offsetHeight - 10 : y + 18}px`;
  }

  paint() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => { this.asked = 0; this.paintNow(); });
  }

  paintNow() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2), wide = this.canvas.clientWidth, tall = this.canvas.clientHeight;
    if (!wide) return;
    const began = performance.now(), pen = this.context;
    if (this.canvas.width !== Math.round(wide * ratio)) { this.canvas.width = Math.round(wide * ratio); this.canvas.height = Math.round(tall * ratio); }
    const across = Math.round(this.across() * ratio), high = Math.round(this.high() * ratio);
    const image = new ImageData(across, high), pixels = new Uint32Array(image.data.buffer);
    const packedColour = (hex) => { const [r, g, b] = rgbOf(hex); return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0; };
    this.boxes(pixels, across, high, "seg.", () => packedColour(isDark() ? "#3b4252" : "#dde0e6"));
    const paints = this.words.colours.map((hex) => packedColour(colour(hex))), { group } = this.data;
    this.boxes(pixels, across, high, "", (i) => (this.hidden.has(group[i]) ? 0 : paints[group[i]]));
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.fillStyle = styleOf("card");
    pen.fillRect(0, 0, this.canvas.width, this.canvas.height);
    pen.putImageData(image, Math.round(this.left() * ratio), 0);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.frame(pen);
    this.axes(pen);
    this.painted = performance.now() - began;
  }

  boxes(pixels, across, high, prefix, paintOf) {
    const start = this.data[`${prefix}start`], span = this.data[`${prefix}span`], addr = this.data[`${prefix}addr`], size = this.data[`${prefix}bytes`];
    const [t0, t1, a0, a1] = this.view, perX = across / (t1 - t0), perY = high / (a1 - a0);
    for (let i = 0; i < start.length; i++) {
      if (start[i] >= t1 || start[i] + span[i] <= t0 || addr[i] >= a1 || addr[i] + size[i] <= a0) continue;
      const paint = paintOf(i);
      if (!paint) continue;
      const x0 = Math.max(0, Math.floor((start[i] - t0) * perX)), x1 = Math.min(across, Math.max(x0 + 1, Math.floor((start[i] + span[i] - t0) * perX)));
      const top = Math.max(0, high - Math.floor((addr[i] + size[i] - a0) * perY)), low = Math.min(high, Math.max(top + 1, high - Math.floor((addr[i] - a0) * perY)));
      // A line of the ground between tall blocks sets them apart.
      const y0 = low - top > 6 ? top + 1 : top;
      for (let y = y0; y < low; y++) pixels.fill(paint, y * across + x0, y * across + x1);
    }
  }

  frame(pen) {
    const at = this.words.worst;
    if (at < 0 || this.data["hole.free"][at] === this.data["hole.largest"][at]) return;
    const [t0, t1, a0, a1] = this.view, time = this.data["hole.time"][at], low = this.data["hole.addr"][at], size = this.data["hole.largest"][at];
    const x = this.left() + ((time - t0) / (t1 - t0)) * this.across(), y = (address) => this.high() * (1 - (address - a0) / (a1 - a0));
    if (x < this.left() || x > this.left() + this.across()) return;
    pen.strokeStyle = styleOf("soft");
    pen.setLineDash([2, 3]);
    pen.beginPath();
    pen.moveTo(x, 0);
    pen.lineTo(x, this.high());
    pen.stroke();
    pen.setLineDash([]);
    pen.strokeStyle = styleOf("alarm");
    pen.lineWidth = 2;
    pen.strokeRect(x - 6, y(low + size), 12, Math.max(2, y(low) - y(low + size)));
    pen.lineWidth = 1;
  }

  axes(pen) {
    const [t0, t1, a0, a1] = this.view;
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = styleOf("soft");
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const [unit, word] = stepOf("B", a1), rows = 6;
    for (let i = 0; i <= rows; i++) {
      const at = a0 + ((a1 - a0) * i) / rows;
      pen.fillText(`${(at / unit).toPrecision(4).replace(/\.?0+$/, "") || "0"} ${word}`, this.left() - 5, Math.max(7, Math.min(this.high() - 5, this.high() * (1 - i / rows))));
    }
    pen.textAlign = "center";
    const columns = Math.max(2, Math.floor(this.across() / 130));
    for (let i = 0; i <= columns; i++) {
      const x = this.left() + (this.across() * i) / columns;
      pen.fillText(this.when(t0 + ((t1 - t0) * i) / columns), Math.max(this.left() + 26, Math.min(x, this.canvas.clientWidth - 34)), this.high() + 14);
    }
    pen.textAlign = "left";
  }
}
