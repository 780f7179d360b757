// Everything in its place.

async function start() {
  startTheme();
  if (!window.DecompressionStream) {
    byId("main").append(make("p", { class: "alarm" }, "This browser cannot unpack the page: Chrome 97, Firefox 113 and Safari 16.4 can."));
    return;
  }
  const content = JSON.parse(new TextDecoder().decode(await blob("content")));
  const page = { content, folders: [], timelines: new Set(content.timelines), maps: new Set(content.maps) };
  page.memoryColumns = byId("blob-memory") ? unpack(await blob("memory")) : null;
  page.memory = (key, title) => memoryOf(page, key, title);
  for (const [at, folder] of content.folders.entries()) {
    const { about, ...numbers } = unpack(await blob(`numbers-${at}`));
    page.folders.push(new Runs(content.folders.length > 1 ? "AB"[at] : "", folder.told, folder.table, numbers));
  }
  answers(page);
  beside(page, "served", page.folders[0].words.served?.title || "Service");
  beside(page, "scheduled", "Schedulers");
  beside(page, "tuned", "Search");
  beside(page, "advised", "Advice");
  if (page.folders.some((runs) => runs.size)) {
    tables(page);
    figures(page);
  }
  page.shown = {};
  page.showTimeline = inTime(page, "timeline");
  page.showMap = inTime(page, "map");
  window.gpusimPage = page; // for tests, and for whoever looks into it
  differences(page);
  repeats(page);
  document.documentElement.dataset.ready = "true";
}

function answers(page) {
  byId("sections").append(make("a", { href: "#answer" }, "Answer"));
  const place = byId("answer");
  if (page.folders.length > 1) place.replaceChildren();
  for (const runs of page.folders) {
    const told = runs.words;
    if (page.folders.length > 1) place.append(make("h3", {}, `${runs.letter}: ${told.name}`), make("p", { class: "answer" }, told.answer || "There is nothing to compare."));
    if (told.missing) place.append(make("p", { class: "alarm" }, `${grouped(told.missing)} of ${grouped(told.missing + runs.size)} runs of ${told.name} have no result: they failed, were stopped, or still run. The same gpusim run does the rest.`));
    if (told.sure.length) place.append(make("ul", { class: "plain" }, ...told.sure.map((words) => make("li", {}, words))));
    if (told.picked.tables) place.append(make("p", {}, told.picked.said), wordTables(told.picked.tables));
    if (told.basis) place.append(make("p", { class: "soft" }, told.basis));
  }
}

function beside(page, what, title) {
  // What another command has found out, in its words.
  const parts = page.folders.flatMap((runs) => {
    const found = runs.words[what];
    if (!found || !found.tables) return [];
    return [
      page.folders.length > 1 ? make("h3", {}, `${runs.letter}: ${runs.words.name}`) : "", ...(found.said || []).map((words) => make("p", {}, words)), wordTables(found.tables),
      ...found.copied.flatMap((words) => [make("pre", {}, words), copyButton(words)]),
      found.notes.length ? make("ul", { class: "plain soft" }, ...found.notes.map((words) => make("li", {}, words))) : "",
    ];
  });
  if (parts.length) section(what, title, ...parts);
}

function tables(page) {
  const open = opener(page), views = page.folders.map((runs) => new Table(runs, open));
  page.compare = (runs, row, side) => { page.two.choose(runs, row, side); byId("differences").scrollIntoView(); };
  const titles = page.folders.map((runs, at) => make("button", { type: "button", "aria-pressed": String(at === 0), onclick: () => {
    views.forEach((view, other) => { view.element.hidden = other !== at; });
    titles.forEach((title, other) => title.setAttribute("aria-pressed", String(other === at)));
    views[at].draw();
  } }, `${runs.letter}: ${runs.words.name}, ${grouped(runs.size)} runs`));
  views.slice(1).forEach((view) => { view.element.hidden = true; });
  section("runs", "Runs", page.folders.length > 1 ? make("div", { class: "bar" }, ...titles) : "", ...views.map((view) => view.element),
    ...page.folders.map((runs) => make("p", { class: "note" }, runs.words.shared.join(". ").replaceAll("..", "."))));
}

function figures(page) {
  const made = [];
  for (const [name, chart] of Object.entries(page.content.charts)) {
    made.push(new Figure(chart).element);
    if (name === page.content.before_memory && page.memoryColumns) made.push(memoryFigure(page));
  }
  if (page.memoryColumns && !page.content.before_memory) made.push(memoryFigure(page));
  if (!page.content.has_plotly) section("figures", "Figures", make("p", {}, page.content.without_plotly));
  else section("figures", "Figures", ...(made.length ? made : [make("p", {}, "There is nothing to draw: no run finished.")]));
}

function memoryFigure(page) {
  const columns = page.memoryColumns, { runs, shown, answer, note } = columns.about;
  const picked = runs.filter((run) => shown.includes(run.key));
  picked.sort((a, b) => shown.indexOf(a.key) - shown.indexOf(b.key));
  return new Figure({ title: "Does it fit, and what fills the memory?", answer, note: `${note} Each run has its own axis of time; any other run's memory stands with it, when its row in the table is opened.`,
    legend: memoryLegend(picked, columns), views: [{ label: "", panels: picked.map((run) => memoryPanel(columns, run, picked.length > 1 ? run.name : "")) }] }).element;
}

function memoryOf(page, key, title = "Memory over time") {
  const run = page.memoryColumns && page.memoryColumns.about.runs.find((one) => one.key === key);
  if (!run || !page.content.has_plotly) return null;
  return new Figure({ title: "", answer: "", note: "", legend: memoryLegend([run], page.memoryColumns),
    views: [{ label: "", panels: [memoryPanel(page.memoryColumns, run, title)] }] }).element;
}

const WHERE = { timeline: ["timelines", "Timeline", Timeline], map: ["maps", "Address map", AddressMap] };

function inTime(page, which) {
  // A section that shows one run at a time, unpacked when it is asked for; the timeline has room for a second one beside it.
  const [id, title, Made] = WHERE[which], { content } = page, keys = content[id], left = content[`${id}_left`] || "";
  if (!keys.length) {
    if (left) section(id, title, make("p", {}, left));
    return;
  }
  const made = new Map(), names = new Map(page.folders.flatMap((runs) => runs.runs.key.map((key, row) => [key, runs.name(row)])));
  const get = async (key) => {
    if (!made.has(key)) made.set(key, new Made(await blob(`${which}-${key}`), { capacity: content.capacities[key], metrics: which === "timeline" && await blob(`metrics-${key}`) }));
    return made.get(key);
  };
  const place = make("div"), beside = make("div");
  const option = (key) => make("option", { value: key }, names.get(key) || key);
  const select = make("select", { "aria-label": `${title} of which run`, onchange: () => draw() }, ...keys.map(option));
  const second = make("select", { "aria-label": "A second run below it", onchange: () => draw() }, make("option", { value: "" }, "no other run beside it"), ...keys.map(option));
  async function draw() {
    const first = await get(select.value), other = second.value && second.value !== select.value ? await get(second.value) : null;
    place.replaceChildren(first.element);
    beside.replaceChildren(...(other ? [make("h4", {}, names.get(second.value)), other.element] : []));
    if (which === "timeline") {
      for (const one of made.values()) one.listeners.clear();
      if (other) {
        first.listeners.add((view) => other.show(...view, true));
        other.listeners.add((view) => first.show(...view, true));
        other.show(...first.view, true);
      }
    }
    first.paint();
    page.shown[which] = first;
  }
  const shown = section(id, title, make("div", { class: "bar" }, ...(keys.length > 1 ? [select, ...(which === "timeline" ? [second] : [])] : [make("span", { class: "soft" }, names.get(keys[0]) || "")])),
    place, beside, left ? make("p", { class: "note" }, left) : "");
  whenSeen(shown, draw);
  return async (key, other) => { select.value = key; second.value = other || ""; shown.scrollIntoView(); await draw(); };
}

function differences(page) {
  const against = page.content.against;
  if (page.folders.reduce((sum, runs) => sum + runs.size, 0) < 2) return;
  page.two = new Differences(page);
  section("differences", "Differences",
    ...(against ? [make("h3", {}, `From A (${page.folders[0].words.name}) to B (${page.folders[1].words.name})`), folderDifferences(against)] : []),
    make("h3", {}, "Two runs"), page.two.element);
}

function repeats(page) {
  const parts = page.folders.filter((runs) => runs.size).flatMap((runs) => {
    const { name, experiment, manifest, machine, doubts } = runs.words;
    const versions = Object.entries(manifest.versions || {}).map(([what, version]) => `${what} ${version || "from source"}`).join(", ");
    const command = `gpusim run ${name}/experiment.yaml -o again\ngpusim compare ${name} again --exact`;
    return [
      page.folders.length > 1 ? make("h3", {}, `${runs.letter}: ${name}`) : "",
      make("h4", {}, "What was not checked"),
      doubts.length ? make("ul", { class: "plain" }, ...doubts.map((words) => make("li", {}, words.replaceAll("**", "").replaceAll("`", "")))) : make("p", {}, "Nothing is left out that this page knows of."),
      ...(experiment ? [
        make("h4", {}, "The command that repeats it"), make("pre", {}, command), make("div", { class: "bar" }, copyButton(command),
          make("button", { type: "button", onclick: () => saveAs("experiment.yaml", experiment) }, "experiment.yaml")),
        make("details", {}, make("summary", {}, "The experiment, with every default in place"), make("pre", {}, experiment)),
      ] : []),
      ...(versions ? [make("p", { class: "soft" }, `Versions: ${versions}. ${machine.platform ? `It ran on ${machine.platform}.` : ""}`)] : []),
      Object.keys(manifest).length ? make("details", {}, make("summary", {}, "The manifest: inputs by hash, runs, seals of results"), make("pre", {}, JSON.stringify(manifest, null, 1))) : "",
    ];
  });
  if (parts.length) section("repeat", "How to repeat it", ...parts);
}

start().catch((error) => {
  byId("main").append(make("p", { class: "alarm" }, `This page is damaged: ${error.message}.`));
  console.error(error);
});
