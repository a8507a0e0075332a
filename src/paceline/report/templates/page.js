"use strict";
const charts = JSON.parse(document.getElementById("charts").textContent);
const NARROW = 700; // pixels, below which panels stand one below the other
const LETTER = 6.5; // pixels of a legend

async function embed(place, spec, label) {
  const theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  await vegaEmbed(place, spec, { actions: false, renderer: "svg", tooltip: { theme } });
  const svg = place.querySelector("svg");
  for (const part of svg.querySelectorAll("[role],[aria-label],[aria-roledescription]")) {
    for (const name of ["role", "aria-label", "aria-roledescription"]) part.removeAttribute(name);
  }
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  svg.removeAttribute("aria-roledescription");
  return svg.getBoundingClientRect().width;
}

// draws again until the chart fills its room: a drawing shows how much of it axes and legends need
async function draw(chart) {
  const place = document.getElementById(`chart-${chart.name}`);
  const room = place.clientWidth;
  if (!room) return; // it is folded
  const spec = structuredClone(chart.spec);
  spec.datasets = { rows: chart.rows };
  const letters = Math.max(...chart.rows.map((row) => (row.scheme || "").length));
  spec.config.legend.columns = Math.max(1, Math.floor(room / (LETTER * letters + 60)));
  spec.config.axis.labelLimit = Math.min(620, (room < NARROW ? 0.4 : 0.55) * room);
  const panels = spec.concat || [spec.spec || spec];
  const number = spec.concat ? panels.length : new Set(chart.rows.map((row) => row.panel)).size;
  const columns = room < NARROW ? 1 : Math.min(spec.columns || 1, number);
  if (spec.columns) spec.columns = columns;
  for (const panel of panels) panel.width = room / columns - 100;
  for (let used = 0, tries = 0; Math.abs(room - used) > 3 && tries < 4; tries++) {
    for (const panel of panels) panel.width += used && (room - used) / columns;
    used = await embed(place, spec, chart.title);
  }
}

async function show() {
  for (const chart of charts) await draw(chart);
}

for (const each of document.querySelectorAll("details")) {
  each.addEventListener("toggle", () => {
    for (const chart of charts) {
      const place = document.getElementById(`chart-${chart.name}`);
      if (each.open && each.contains(place) && !place.firstChild) draw(chart);
    }
  });
}
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; show(); } });
show();
