// Small things that all views use: elements, numbers as people read them, tables.

export const $ = id => document.getElementById(id)

/** An element with its attributes and children; text is always text, never HTML. */
export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children)
}

/** The same for a drawing. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children)
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value)
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value)
  }
  element.append(...children.flat(Infinity).filter(one => one !== null && one !== undefined).map(one => one instanceof Node ? one : String(one)))
  return element
}

const whole = new Intl.NumberFormat("en", {maximumFractionDigits: 0})
const short = new Intl.NumberFormat("en", {notation: "compact", maximumFractionDigits: 1})

export const number = value => value === null || value === undefined ? "–" : whole.format(value)
export const compact = value => value === null || value === undefined ? "–" : value < 10000 ? whole.format(value) : short.format(value)
export const rate = value => value === null || value === undefined ? "" : `${value > 0 && value < 10 ? value.toFixed(1) : compact(value)}/s`
export const percent = value => value === null || value === undefined ? "–" : `${Math.round(value * 100)} %`

export function bytes(value) {
  if (value === null || value === undefined) return "–"
  const unit = value < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(value) / 10))
  return `${(value / 1024 ** unit).toFixed(unit ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`
}

/** A duration as people read it. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–"
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`
  if (ms < 120000) return `${(ms / 1000).toFixed(1)} s`
  for (const [unit, size] of [["d", 86400000], ["h", 3600000], ["min", 60000]]) if (ms >= 2 * size) return `${Math.floor(ms / size)} ${unit}`
}

export const clock = at => at === null || at === undefined ? "–" : new Date(at).toISOString().replace("T", " ").slice(0, 19)
/** The time of day of a moment, with the date where it is another day's. */
export const time = at => at === null || at === undefined ? "–" : new Date().toISOString().slice(0, 10) === clock(at).slice(0, 10) ? clock(at).slice(11) : clock(at).slice(0, 16)
/** The same as an element that names the whole moment. */
export const when = at => el("time", {title: `${clock(at)} UTC`}, time(at))
export const ago = (at, now) => at === null || at === undefined ? "never" : `${duration(Math.max(0, now - at))} ago`

/** A table whose rows are cards on a phone: one cell below the other. */
export function cards(headings, rows) {
  const made = table(headings, rows)
  made.classList.add("cards")
  return made
}

/** A table; a heading that begins with > is of numbers, one with * is left out on a phone. A cell may be an element. */
export function table(headings, rows) {
  const kinds = headings.map(one => [/[>]/.test(one.slice(0, 2)) ? "number" : "", /[*]/.test(one.slice(0, 2)) ? "wide" : ""].join(" ").trim() || null)
  const cells = (name, row) => el("tr", {}, row.map((cell, at) => el(name, {class: kinds[at], scope: name === "th" ? "col" : null}, cell)))
  return el("table", {}, el("thead", {}, cells("th", headings.map(one => one.replace(/^[>*]+/, "")))), el("tbody", {}, rows.map(row => cells("td", row))))
}

/** Shows children in an element. Nothing is drawn again while it looks the same, so that selections and the focus stay. */
export function show(id, ...children) {
  const made = el("div", {}, ...children)
  if ($(id).innerHTML !== made.innerHTML || made.querySelector("canvas")) $(id).replaceChildren(...made.childNodes)
}
