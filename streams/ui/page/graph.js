// The topology: a frame for each sub-topology with topics, operators by their distance from the sources, and topics again.
import {compact, el, percent, rate, svg} from "./parts.js"

const LINE = 16, CHARACTER = 7.3, PADDING = 10, COLUMN_GAP = 74, ROW_GAP = 16, TITLE = 30, LONGEST = 30

/** Long names in several lines, if possible after dashes. */
function wrapped(text) {
  const lines = [""]
  for (const part of text.match(/[^-]*-?/g)) {
    if (lines.at(-1) && lines.at(-1).length + part.length > LONGEST) lines.push("")
    lines[lines.length - 1] += part
  }
  return lines
}

/** Draws a topology; returns the drawing, and what shows new figures in it. */
export function graph(topology, details) {
  const canvas = svg("svg", {role: "group", "aria-label": "Topology"}), folded = new Set(), small = matchMedia("(max-width: 640px)")
  const view = {}
  let bands = [], size = {}, last = null
  const show = () => canvas.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`)
  const fit = () => {
    Object.assign(view, {x: 0, y: 0, ...size, zoomed: false})
    canvas.classList.remove("zoomed")
    show()
  }
  const zoom = (times, x = view.x + view.width / 2, y = view.y + view.height / 2) => {
    const by = Math.max(size.width / 20, Math.min(size.width * 2, view.width / times)) / view.width
    Object.assign(view, {x: x - (x - view.x) * by, y: y - (y - view.y) * by, width: view.width * by, height: view.height * by})
    canvas.classList.add("zoomed")
    show()
  }
  /** Places and draws everything anew: upright on a phone. */
  const draw = () => {
    bands = topology.sub_topologies.map(sub => band(topology, sub, small.matches, folded.has(sub.sub_topology)))
    const width = Math.max(300, ...bands.map(one => one.width)) + 2 * PADDING
    canvas.replaceChildren()
    let top = 2
    for (const one of bands) {
      const fold = () => { folded.delete(one.sub.sub_topology) || folded.add(one.sub.sub_topology); draw() }
      canvas.append(drawn(one, top, width, details, fold))
      top += one.height + 14
    }
    size = {width, height: top}
    // What is smaller than the window is not made larger.
    canvas.style.maxWidth = `${width}px`
    fit()
    if (last) bands.forEach(one => update(one, ...last))
  }
  moved(canvas, view, show, zoom)
  small.addEventListener("change", draw)
  draw()
  const tool = (label, name, onclick) => el("button", {"aria-label": name, title: name, onclick}, label)
  const drawing = el("div", {}, el("div", {class: "tools"}, tool("−", "Smaller", () => zoom(1 / 1.4)), tool("+", "Larger", () => zoom(1.4)), tool("Fit", "Fit the window", fit)), canvas)
  return {drawing, update: (...figures) => { last = figures; bands.forEach(one => update(one, ...figures)) }}
}

/** Lets a drawing be dragged, and zoomed by Ctrl and the wheel, or with two fingers. */
function moved(canvas, view, show, zoom) {
  const fingers = new Map()
  let travelled = 0
  const at = event => {
    const scale = view.width / canvas.clientWidth, place = canvas.getBoundingClientRect()
    return [view.x + (event.clientX - place.left) * scale, view.y + (event.clientY - place.top) * scale]
  }
  const apart = () => { const [one, other] = [...fingers.values()]; return Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY) }
  canvas.addEventListener("pointerdown", event => { fingers.set(event.pointerId, event); travelled = 0 })
  canvas.addEventListener("pointermove", event => {
    const before = fingers.get(event.pointerId)
    if (!before) return
    const was = fingers.size === 2 ? apart() : 0
    fingers.set(event.pointerId, event)
    if (was) return zoom(apart() / was, ...at(event))
    travelled += Math.hypot(event.clientX - before.clientX, event.clientY - before.clientY)
    // A finger scrolls the page, unless the drawing is larger than its frame.
    if (travelled < 5 || (event.pointerType === "touch" && !canvas.classList.contains("zoomed"))) return
    const scale = view.width / canvas.clientWidth
    view.x -= (event.clientX - before.clientX) * scale
    view.y -= (event.clientY - before.clientY) * scale
    show()
  })
  for (const kind of ["pointerup", "pointercancel", "pointerleave"]) canvas.addEventListener(kind, event => fingers.delete(event.pointerId))
  // A drag that ends on a box does not open it.
  canvas.addEventListener("click", event => { if (travelled >= 5) event.stopPropagation() }, true)
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey) return
    event.preventDefault()
    zoom(Math.exp(-event.deltaY / 300), ...at(event))
  }, {passive: false})
}

/** A sub-topology with each box in its place. */
function band(topology, sub, upright, folded) {
  const stores = topology.boxes.filter(one => one.kind === "store")
  const nodes = topology.boxes.filter(one => one.sub_topology === sub.sub_topology && one.kind !== "store")
  const boxes = new Map(nodes.map(node => {
    const own = topology.arrows.filter(one => one.store && one.from === node.id).map(one => stores.find(store => store.id === one.to))
    return [node.id, {...node, look: node.runs_in, stores: own, lines: wrapped(node.name), small: 1 + own.length}]
  }))
  const arrows = []
  for (const {from, to, store} of topology.arrows) {
    if (store) continue
    if (boxes.has(from) && boxes.has(to)) arrows.push([from, to])
    else if (boxes.has(to) && from.startsWith("topic:")) arrows.push([topic(topology, boxes, from, "in"), to])
    else if (boxes.has(from) && to.startsWith("topic:")) arrows.push([from, topic(topology, boxes, to, "out")])
  }
  if (folded) return {sub, boxes: new Map(), arrows: [], nodes: nodes.length, width: 300, height: TITLE}
  placed(boxes, arrows, upright)
  const last = [...boxes.values()]
  return {
    sub, boxes, arrows, upright,
    width: Math.max(...last.map(one => one.x + one.width)) + PADDING,
    height: Math.max(...last.map(one => one.y + one.height)) + PADDING,
  }
}

/** The box of a topic in a frame; what is read and what is written are different boxes, even of one topic. */
function topic(topology, boxes, id, side) {
  const key = `${side} ${id}`, found = topology.boxes.find(one => one.id === id)
  if (!boxes.has(key)) boxes.set(key, {...found, look: "topic", stores: [], lines: wrapped(found.name), small: side === "in" ? 1 : 0})
  return key
}

/** Places the boxes in columns, each at the mean height of what leads to it; or, upright, one below the other. */
function placed(boxes, arrows, upright) {
  const parents = id => arrows.filter(one => one[1] === id).map(one => one[0])
  const distance = new Map()
  const far = id => {
    if (!distance.has(id)) {
      distance.set(id, 0)
      distance.set(id, Math.max(-1, ...parents(id).map(far)) + 1)
    }
    return distance.get(id)
  }
  const columns = []
  for (const [id, box] of boxes) {
    (columns[far(id)] ??= []).push(box)
    box.width = Math.max(...box.lines.map(one => one.length), ...box.stores.map(one => one.name.length + 2), 25) * CHARACTER + 2 * PADDING
    box.height = (box.lines.length + box.small) * LINE + PADDING
  }
  if (upright) return stacked(columns)
  let x = PADDING
  for (const column of columns) {
    const middle = box => {
      const known = parents([...boxes].find(one => one[1] === box)[0]).map(id => boxes.get(id))
      return known.length ? known.reduce((sum, one) => sum + one.y + one.height / 2, 0) / known.length : 0
    }
    column.sort((one, other) => middle(one) - middle(other))
    let y = TITLE
    for (const box of column) {
      box.x = x
      box.y = Math.max(y, middle(box) - box.height / 2)
      y = box.y + box.height + ROW_GAP
    }
    x += Math.max(...column.map(one => one.width)) + COLUMN_GAP
  }
}

/** Boxes one below the other, those of one distance somewhat aside of each other. */
function stacked(columns) {
  let y = TITLE
  for (const column of columns) {
    column.forEach((box, at) => {
      box.x = PADDING + 18 * Math.min(at, 3)
      box.y = y
      y += box.height + 26
    })
  }
}

function drawn(one, top, width, details, fold) {
  const {boxes, arrows} = one
  one.title = svg("text", {class: "title", x: PADDING, y: 19, tabindex: 0, role: "button", "aria-expanded": !one.nodes, onclick: fold, onkeydown: event => { if (event.key === "Enter") fold() }}, heading(one))
  one.share = svg("rect", {class: "share", x: 0, y: 0, width: width - PADDING, height: one.height, rx: 6, "fill-opacity": 0})
  one.lines = arrows.map(([from, to]) => arrow(boxes.get(from), boxes.get(to), from, to, one.upright))
  for (const box of boxes.values()) box.drawn = drawnBox(box, details)
  return svg("g", {transform: `translate(${PADDING / 2} ${top})`},
    one.share, svg("rect", {class: "frame", x: 0, y: 0, width: width - PADDING, height: one.height, rx: 6}), one.title,
    one.lines.map(line => line.drawn), [...boxes.values()].map(box => box.drawn))
}

const heading = one => `${one.nodes ? "▸" : "▾"} ${one.sub.index}: ${one.sub.sub_topology}${one.nodes ? ` · ${one.nodes} operators` : ""}`

function drawnBox(box, details) {
  const open = () => details(box), corner = box.look === "topic" ? box.height / 2 : 4
  const lines = box.lines.map((text, at) => svg("text", {x: PADDING, y: LINE * (at + 1)}, text))
  box.figure = svg("text", {class: "small", x: PADDING, y: LINE * (box.lines.length + 1)})
  const stores = box.stores.map((store, at) => svg("text", {class: "small", x: PADDING, y: LINE * (box.lines.length + 2 + at)}, `▤ ${store.name}`))
  box.cpu = svg("text", {class: "small cpu", x: box.width - PADDING, y: LINE * (box.lines.length + 1)})
  box.heat = svg("rect", {class: "heat", x: 1, y: box.height - 5, width: 0, height: 4})
  box.badge = svg("g", {class: "badge", transform: `translate(${box.width + 4} -11)`})
  return svg("g", {class: `box ${box.look}`, transform: `translate(${box.x} ${box.y})`, tabindex: 0, role: "button", "aria-label": `${box.kind} ${box.name}`,
    onclick: open, onkeydown: event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open() } }},
    svg("title", {}, box.name), svg("rect", {width: box.width, height: box.height, rx: corner}), box.heat, lines, box.figure, box.cpu, stores, box.badge)
}

function arrow(from, to, fromId, toId, upright) {
  if (upright) return arrowDown(from, to, fromId, toId)
  const x = from.x + from.width, y = from.y + from.height / 2, toX = to.x, toY = to.y + to.height / 2, bend = Math.max((toX - x) / 2, COLUMN_GAP / 2)
  const path = svg("path", {class: "arrow", d: `M${x} ${y}C${x + bend} ${y} ${toX - bend} ${toY} ${toX - 6} ${toY}`})
  const head = svg("path", {class: "head", d: `M${toX} ${toY}l-8 -4v8z`})
  const label = svg("text", {class: "rate", x: x + 6, y: y - 6})
  return {fromId, toId, path, label, drawn: svg("g", {}, path, head, label)}
}

/** From the foot of a box to the head of one below it; past others, along their right. */
function arrowDown(from, to, fromId, toId) {
  const x = from.x + 30, y = from.y + from.height, toX = to.x + 30, next = to.y - y < 40
  const side = Math.max(from.x + from.width, to.x + to.width), far = side + 12 + Math.min(40, (to.y - y) / 20), heads = to.y + 12
  const path = svg("path", {class: "arrow", d: next ? `M${x} ${y}L${toX} ${to.y - 6}` : `M${from.x + from.width} ${y - 12}C${far} ${y - 12} ${far} ${heads} ${to.x + to.width + 6} ${heads}`})
  const head = svg("path", {class: "head", d: next ? `M${toX} ${to.y}l-4 -8h8z` : `M${to.x + to.width} ${heads}l8 -4v8z`})
  const label = svg("text", {class: "rate", x: next ? x + 8 : from.x + from.width - 50, y: y + 13})
  return {fromId, toId, path, label, drawn: svg("g", {}, path, head, label)}
}

function update(one, overview, operators) {
  const sub = overview.sub_topologies.find(found => found.sub_topology === one.sub.sub_topology)
  const of = new Map(operators.operators.map(found => [found.operator, found]))
  const share = sub?.cpu_share ?? 0, shares = cpuShares(operators)
  one.share.setAttribute("fill-opacity", overview.sub_topologies.length > 1 ? share * 0.3 : 0)
  one.title.textContent = `${heading(one)}${sub && sub.cpu_share !== null && !one.upright ? ` · ${percent(share)} of the CPU time, ${sub.cpu_cores.toFixed(2)} cores` : ""}`
  for (const line of one.lines) {
    const speed = of.get(line.fromId)?.out_per_s || of.get(line.toId)?.in_per_s || (of.get(line.fromId)?.in_per_s ?? null)
    line.label.textContent = rate(speed)
    line.path.setAttribute("stroke-width", 1 + Math.min(5, Math.log10(1 + (speed ?? 0))))
  }
  for (const box of one.boxes.values()) {
    const found = of.get(box.id), letters = found?.dead_letters ?? 0
    if (box.kind === "topic") box.figure.textContent = box.small && sub ? lag(sub, box.name) : ""
    else box.figure.textContent = found ? counts(box, found) : ""
    const cpu = box.timed_as && shares.total ? sum(box.timed_as.map(name => shares.of.get(name) ?? 0)) / shares.total : null
    box.heat.setAttribute("width", cpu === null ? 0 : ((box.width - 2) * cpu).toFixed(1))
    // What is timed together has bars of one length, and the share stands in the first box.
    box.cpu.textContent = cpu === null || !box.timed_as.includes(box.id) ? "" : `${percent(cpu)} CPU`
    const drops = found ? sum(Object.values(found.dropped)) : 0
    badge(box.badge, [drops && `${compact(drops)} dropped`, letters && `${compact(letters)} dead ${letters === 1 ? "letter" : "letters"}`].filter(Boolean).join(", "))
  }
}

const sum = values => values.reduce((total, one) => total + one, 0)

/** The CPU time of the last seconds by the names under which it is counted, and that of all operators and readers. */
function cpuShares({operators}) {
  const of = new Map(operators.filter(one => one.cpu_cores !== null).map(one => [one.operator, one.cpu_cores]))
  return {of, total: sum([...of.values()])}
}

function counts(box, found) {
  if (box.kind === "operator") return `${compact(found.records_in)} in, ${compact(found.records_out)} out`
  return `${compact(found.records_in)} ${box.kind === "source" ? "read" : "written"}`
}

function lag(sub, topicName) {
  const known = sub.partitions.filter(one => one.topic === topicName && one.lag !== null)
  return known.length ? `lag ${compact(sum(known.map(one => one.lag)))}` : ""
}

function badge(group, text) {
  const width = text.length * 6.7 + 10
  group.replaceChildren(...(text ? [svg("rect", {x: -width, width, height: 16, rx: 8}), svg("text", {x: 5 - width, y: 12}, text)] : []))
}

/** Said where the program is not at hand. */
export const noTopology = () => el("p", {class: "quiet"}, "The graph needs the program: streams ui TARGET -a APP.")
