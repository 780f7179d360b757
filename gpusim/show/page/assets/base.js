// Elements, numbers as people read them, and the columns that pack.py has packed.

const byId = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const inflated = new Map();
function blob(name) {
  // The content of one blob; its text leaves the page when it is first read.
  if (!inflated.has(name)) {
    const element = byId(`blob-${name}`);
    if (!element) return null;
    const text = element.textContent;
    element.remove();
    inflated.set(name, inflate(bytesOf(text)));
  }
  return inflated.get(name);
}

function unpack(bytes) {
  // { ...header, NAME: typed array } of what pack.packed wrote.
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const found = { about: header };
  let at = 4 + length;
  for (const [name, code, planes, rows] of header.columns) {
    found[name] = column(bytes.subarray(at, at + planes * rows), code, planes, rows);
    at += planes * rows;
  }
  return found;
}

function column(bytes, code, planes, rows) {
  if (code === "f") {
    const whole = new Uint8Array(8 * rows);
    for (let plane = 0; plane < 8; plane++)
      for (let i = 0, from = plane * rows; i < rows; i++) whole[8 * i + plane] = bytes[from + i];
    return new Float64Array(whole.buffer);
  }
  // Small columns stay small: what fits into 32 bits is no float, unless differences add up to more.
  const values = code === "i" && planes <= 4 ? new Int32Array(rows) : new Float64Array(rows);
  for (let plane = 0, unit = 1; plane < planes; plane++, unit *= 256) {
    const from = plane * rows;
    if (plane === planes - 1) for (let i = 0; i < rows; i++) values[i] += ((bytes[from + i] << 24) >> 24) * unit;
    else for (let i = 0; i < rows; i++) values[i] += bytes[from + i] * unit;
  }
  if (code === "d") for (let i = 1; i < rows; i++) values[i] += values[i - 1];
  return values;
}

// Numbers

function grouped(value, decimals = 0) {
  return value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

const STEPS = {
  ns: [[1, "ns"], [1e3, "us"], [1e6, "ms"], [1e9, "s"]],
  B: [[1, "B"], [2 ** 10, "KiB"], [2 ** 20, "MiB"], [2 ** 30, "GiB"], [2 ** 40, "TiB"], [2 ** 50, "PiB"]],
};

function stepOf(unit, largest) {
  return STEPS[unit].findLast(([size]) => Math.abs(largest) >= size) || STEPS[unit][0];
}

function rounded(value, digits = 3) {
  if (!value) return "0";
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en-US", { maximumFractionDigits: Math.min(decimals, 20) });
}

function show(value, unit, digits = 3) {
  // As gpusim.show.view.human: three digits in the unit that reads best.
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  if (unit === "ns" || unit === "B") {
    let [size, word] = stepOf(unit, value);
    const larger = STEPS[unit].find(([other]) => other > size);
    if (larger && Number(rounded(value / size, digits).replaceAll(",", "")) * size >= larger[0]) [size, word] = larger;
    return `${rounded(value / size, digits)} ${word}`;
  }
  if (unit === "ratio") return value >= 10 ? `${Number(value.toPrecision(3))}×` : `${value.toFixed(2)}×`;
  if (unit === "1") return `${rounded(100 * value, digits)} %`;
  if (unit === "1/s") return `${rounded(value, digits)} /s`;
  return grouped(value);
}

function exact(value, unit) {
  // To the last digit.
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  const digits = Number.isInteger(value) ? grouped(value) : String(value);
  return unit === "ns" || unit === "B" ? `${digits} ${unit}` : unit === "1/s" ? `${digits} /s` : unit === "ratio" ? `${digits}×` : digits;
}

// Colours: those of the figures, and on dark paper lighter ones that stay apart.

const DARK = {
  "#000000": "#f2f4f8", "#1f2430": "#e7eaf0", "#5b6270": "#a2abbb", "#d5d9e0": "#59627a", "#0072b2": "#3ba3e6", "#332288": "#9a8cf2",
  "#882255": "#e0699f", "#7f7a1c": "#c2bb4d", "#b3261e": "#ff8a80", "#009e73": "#2fc79b", "#d55e00": "#ff8a3d", "#e6e8ec": "#333a48",
};
const isDark = () => document.documentElement.dataset.theme === "dark";
const colour = (hex) => (isDark() && typeof hex === "string" && DARK[hex.toLowerCase()]) || hex;
const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const repainted = new Set(); // called when the colours change
const wish = { value: "auto" };
const system = window.matchMedia("(prefers-color-scheme: dark)");

function setTheme(value) {
  wish.value = value;
  const theme = value === "auto" ? (system.matches ? "dark" : "light") : value;
  const button = byId("theme");
  button.textContent = { auto: "◐", light: "☀", dark: "☾" }[value];
  button.setAttribute("aria-label", `Colours: ${{ auto: "as the system", light: "light", dark: "dark" }[value]}`);
  if (document.documentElement.dataset.theme === theme) return;
  document.documentElement.dataset.theme = theme;
  repainted.forEach((repaint) => repaint());
}

function startTheme() {
  let kept = null;
  try { kept = localStorage.getItem("gpusim-theme"); } catch { /* a file may have no storage */ }
  setTheme(["light", "dark"].includes(kept) ? kept : "auto");
  system.addEventListener("change", () => setTheme(wish.value));
  byId("theme").addEventListener("click", () => {
    const order = ["auto", "light", "dark"];
    setTheme(order[(order.indexOf(wish.value) + 1) % 3]);
    try { localStorage.setItem("gpusim-theme", wish.value); } catch { /* it is asked for again next time */ }
  });
}

// Sections

function section(id, title, ...children) {
  const made = make("section", { id }, make("h2", {}, title), ...children);
  byId("main").append(made);
  byId("sections").append(make("a", { href: `#${id}` }, title));
  return made;
}

function wordTable({ title, rows: [head, ...rows] }) {
  // Cells that are words; a column is of numbers where each of its cells begins with one.
  const numeric = head.map((_, at) => rows.every((row) => /^-?[\d.,]+/.test(row[at]) || row[at] === "-" || row[at] === "") && rows.some((row) => /\d/.test(row[at])));
  const line = (tag, cells) => make("tr", {}, ...cells.map((cell, at) => make(tag, { class: numeric[at] ? "number" : "", scope: tag === "th" && "col" }, cell)));
  return make("div", { class: "words" }, make("h4", {}, title), make("div", { class: "scroll", tabindex: 0 },
    make("table", {}, make("thead", {}, line("th", head)), make("tbody", {}, ...rows.map((row) => line("td", row))))));
}

const wordTables = (tables) => make("div", { class: "tables" }, ...tables.map(wordTable));

function whenSeen(element, then) {
  // Once, shortly before it scrolls into view.
  const watch = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) { watch.disconnect(); then(); }
  }, { rootMargin: "400px" });
  watch.observe(element);
}

function copyButton(text) {
  const button = make("button", { type: "button", class: "copy", onclick: async () => {
    try { await navigator.clipboard.writeText(text); button.textContent = "copied"; }
    catch { button.textContent = "select it and copy"; }
  } }, "copy");
  return button;
}

function saveAs(name, text, type = "text/plain") {
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}
