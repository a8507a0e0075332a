"use strict";
const charts = JSON.parse(document.getElementById("charts").textContent);
const situation = document.getElementById("situation");
const highlight = document.getElementById("highlight");
const views = [];

const chosenRows = (chart) =>
  chart.by_situation && situation ? chart.rows.filter((row) => row.situation === situation.value) : chart.rows;

async function draw(chart) {
  const place = document.getElementById(`chart-${chart.name}`);
  const rows = chosenRows(chart);
  const spec = { ...chart.spec, datasets: { ...(chart.spec.datasets || {}), rows } };
  const theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const options = { actions: false, renderer: "svg", tooltip: { theme } };
  const { view } = await vegaEmbed(place, spec, options);
  const svg = place.querySelector("svg");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", chart.title);
  svg.removeAttribute("aria-roledescription");
  for (const part of svg.querySelectorAll("[role],[aria-label],[aria-roledescription]")) {
    for (const name of ["role", "aria-label", "aria-roledescription"]) part.removeAttribute(name);
  }
  views.push({ chart, view });
  empty(chart, rows);
  if (highlight && highlight.value) await emphasize({ view });
}

function empty(chart, rows) {
  document.getElementById(`chart-${chart.name}`).hidden = rows.length === 0;
  document.getElementById(`none-${chart.name}`).hidden = rows.length > 0;
}

async function emphasize({ view }) {
  const known = Object.keys(view.getState({ signals: (name) => name === "highlight" }).signals);
  if (known.length) await view.signal("highlight", highlight.value).runAsync();
}

async function show() {
  for (const chart of charts) await draw(chart);
}

async function change() {
  // a fresh drawing for other rows: scales, panels and sizes are then those of what is shown
  const drawn = views.splice(0);
  for (const { chart, view } of drawn) {
    if (chart.by_situation) { view.finalize(); await draw(chart); } else views.push({ chart, view });
  }
}

const number = (text) => {
  const found = text.replace(/[,%]/g, "").match(/[-+−]?\d+(\.\d+)?(e[-+]?\d+)?/i);
  return found ? Number(found[0].replace("−", "-")) : NaN;
};

function order(table, column, head) {
  const body = table.tBodies[0];
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const keyed = [...body.rows].map((row) => ({ row, text: row.cells[column].textContent.trim() }));
  const numeric = keyed.filter(({ text }) => Number.isFinite(number(text)) && /^[-+−\d]/.test(text)).length > keyed.length / 2;
  const compare = numeric
    ? (a, b) => (Number.isNaN(number(a.text)) - Number.isNaN(number(b.text))) || number(a.text) - number(b.text)
    : (a, b) => a.text.localeCompare(b.text);
  keyed.sort(compare);
  if (!up) keyed.reverse();
  body.append(...keyed.map(({ row }) => row));
}

function sortable(table) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => order(table, column, head));
    head.append(button);
  });
}

document.querySelectorAll("table.sort").forEach(sortable);
situation?.addEventListener("change", change);
highlight?.addEventListener("change", () => views.forEach(emphasize));
show();
