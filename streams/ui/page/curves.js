// An hour of curves for each sub-topology, with events as marks on the same time.
import {bytes, compact, duration, el, rate, svg, time} from "./parts.js"

const HOUR = 3600000, LEAST = 300000, WIDTH = 600, HEIGHT = 70
const LINES = 6

/** All charts of a sub-topology. */
export function curves(sub, events, now) {
  const span = Math.min(HOUR, Math.max(LEAST, now - (sub.at[0] ?? now)))
  const own = events.filter(one => now - one.at < span && (one.sub_topology ?? sub.sub_topology) === sub.sub_topology)
  const made = (title, format, ...lines) => chart(title, format, sub.at, lines, own, now, span)
  const behind = sub.partitions.slice(0, LINES).map(one => [`${one.topic}-${one.partition}`, one.lag_records])
  return [
    el("h2", {}, sub.sub_topology, sub.at.length ? null : el("span", {class: "quiet"}, " · the first point comes after ten seconds")),
    el("div", {class: "charts"},
      made("Records read/s", rate, ["read", sub.records_per_s], ["arriving", sub.arriving_per_s]),
      made("Lag, records", compact, ["all partitions", sub.lag_records]),
      made(`Lag by partition${sub.partitions.length > LINES ? `, the ${LINES} furthest behind` : ""}`, compact, ...behind),
      made("Visible after", duration, ["p50", sub.visible_after_p50_ms], ["p99", sub.visible_after_p99_ms]),
      made("Dead letters", compact, ["dead letters", sub.dead_letters]),
      made("Failed attempts", compact, ["failed attempts", sub.failed_attempts]),
      made("State on disk", bytes, ["state", sub.state_bytes])),
  ]
}

function chart(title, format, at, lines, events, now, span) {
  const most = Math.max(1e-9, ...lines.flatMap(one => one[1]).filter(one => one !== null))
  const x = when => WIDTH * (1 - (now - when) / span), y = value => HEIGHT - 2 - (HEIGHT - 6) * value / most
  const drawing = svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}, the last hour`},
    events.map(one => svg("line", {class: one.level >= 40 ? "mark bad" : one.level >= 30 ? "mark busy" : "mark", x1: x(one.at), x2: x(one.at), y1: 0, y2: HEIGHT}, svg("title", {}, `${time(one.at)} ${one.message}`))),
    lines.map(([, values], number) => svg("path", {class: `line line${number}`, d: path(at, values, x, y)})))
  const shown = el("span", {class: "quiet"})
  const say = index => shown.replaceChildren(...lines.flatMap(([name, values], number) => [el("span", {class: `dot line${number}`}, "●"), ` ${name} ${format(values[index] ?? null) || "–"}  `]), index === at.length - 1 || !at.length ? "" : time(at[index]))
  say(at.length - 1)
  drawing.addEventListener("pointermove", event => {
    const moment = now - span * (1 - event.offsetX / drawing.clientWidth)
    say(at.reduce((best, one, index) => Math.abs(one - moment) < Math.abs(at[best] - moment) ? index : best, 0))
  })
  drawing.addEventListener("pointerleave", () => say(at.length - 1))
  const alike = one => events.filter(other => other.event === one.event && Math.abs(other.at - one.at) < 10000)
  const marks = events.filter(one => alike(one)[0] === one).slice(0, 30).map(one => el("span", {class: one.level >= 40 ? "bad" : one.level >= 30 ? "busy" : "quiet", title: one.message}, `${time(one.at)} ${one.event.replaceAll("_", " ")}${alike(one).length > 1 ? ` ×${alike(one).length}` : ""}`))
  return el("figure", {}, el("figcaption", {}, el("strong", {}, title), " ", shown), drawing,
    el("p", {class: "axis quiet"}, el("span", {}, time(now - span)), el("span", {}, `most: ${format(most === 1e-9 ? 0 : most) || "0"}`), el("span", {}, time(now))), title.startsWith("Records") && marks.length ? el("p", {class: "marks"}, marks) : null)
}

/** A path through the known values; what is unknown is a gap. */
function path(at, values, x, y) {
  let pen = "M"
  return values.map((value, index) => {
    if (value === null) { pen = "M"; return "" }
    const to = `${pen}${x(at[index]).toFixed(1)} ${y(value).toFixed(1)}`
    // A single point between two gaps is a dash.
    const alone = pen === "M" && (values[index + 1] ?? null) === null ? "h2" : ""
    pen = "L"
    return to + alone
  }).join("")
}
