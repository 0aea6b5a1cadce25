// The rows of stores by key, prefix and window, each answer with the commits that it shows. Rows are read when somebody asks.
import {$, clock, compact, duration, el, number, show, table} from "./parts.js"

const ROWS = 100
const text = value => typeof value === "string" ? value : JSON.stringify(value)
const hasWindows = store => /window|session/.test(store.kind)
const KEPT = 200
let ask, stores = [], found = null, tail = null

/** Shows which stores there are; `wanted` is one to choose. */
export async function drawStores(asks, wanted) {
  ask = asks
  try {
    ({stores} = await ask("stores"))
  } catch (error) {
    $("store-form").hidden = true
    $("sql-form").hidden = true
    show("store-rows", el("p", {class: "quiet"}, error.message))
    return
  }
  $("store-form").hidden = false
  $("sql-form").hidden = false
  const chosen = wanted ?? $("store").value, names = stores.map(one => one.name)
  if ($("store").options.length !== names.length) $("store").replaceChildren(...names.map(name => el("option", {}, name)))
  if (names.includes(chosen)) $("store").value = chosen
  if (wanted !== undefined) found = null
  fields()
  if (!found) show("store-rows", el("p", {class: "quiet"}, "Read shows the rows of the last commits. Without a key, the first rows."))
}

/** The fields that the chosen store can be asked by. */
function fields() {
  const store = stores.find(one => one.name === $("store").value)
  if (!store) return
  $("store-about").textContent = `${store.kind} store of ${store.sub_topology || "a global table"}, ${store.tasks} ${store.tasks === 1 ? "task" : "tasks"}`
  const windows = hasWindows(store), versions = store.kind === "versioned"
  for (const [id, on] of Object.entries({"by-prefix": !windows && !versions, "by-from": windows, "by-to": windows, "by-time": versions})) $(id).hidden = !on
}

function question(store, cursor) {
  const given = id => $(id).closest("[hidden]") ? "" : $(id).value.trim(), key = given("store-key")
  if (key && !hasWindows(store)) {
    const asOf = given("store-time"), isText = store.key_schema?.type === "string"
    // A text has quotes in JSON, so that no key is taken for a part of the path, as ".." is.
    const parameters = new URLSearchParams({...(isText ? {keys: "json"} : {}), ...(asOf ? {as_of: asOf} : {})})
    return `/keys/${encodeURIComponent(isText ? JSON.stringify(key) : key)}?${parameters}`
  }
  const asked = {limit: ROWS, key, prefix: given("store-prefix"), window_from: given("store-from"), window_to: given("store-to"), cursor}
  const parameters = new URLSearchParams(Object.entries(asked).filter(([, value]) => value))
  return `/${hasWindows(store) ? "windows" : "range"}?${parameters}`
}

async function read(cursor) {
  follow(false)
  const store = stores.find(one => one.name === $("store").value)
  try {
    const answer = await ask(`stores/${encodeURIComponent(store.name)}${question(store, cursor)}`)
    found = {rows: answer.rows ?? [answer], tasks: answer.tasks, cursor: answer.cursor}
  } catch (error) {
    found = {rows: [], tasks: error.answer?.tasks ?? [], why: error.message}
  }
  drawRows(store)
}

function drawRows(store) {
  const {rows, tasks, cursor, why} = found, windows = hasWindows(store), times = rows.some(row => row.timestamp !== undefined)
  const headings = ["Key", ...(windows ? ["Window from (UTC)", "*To (UTC)"] : []), "Value", ...(times ? ["*Timestamp (UTC)"] : [])]
  const cells = row => [text(row.key), ...(windows ? [clock(row.window.start), clock(row.window.end)] : []), el("code", {}, text(row.value)), ...(times ? [clock(row.timestamp)] : [])]
  const next = el("button", {type: "button", id: "store-next"}, "Next rows")
  const oldest = Math.max(0, ...tasks.map(one => one.age_ms))
  show("store-rows",
    why ? el("p", {class: "busy"}, why) : rows.length ? table(headings, rows.map(cells)) : el("p", {class: "quiet"}, "There are no such rows."),
    cursor ? el("p", {}, next) : null,
    tasks.length ? [el("p", {class: "hint"}, `${compact(rows.length)} ${rows.length === 1 ? "row" : "rows"} of whole commits, at most ${duration(oldest)} old when they were read. Records below these positions are in them:`),
      table(["Sub-topology", ">Task", ">Commit", ">Age", "Position"], tasks.map(one => [one.sub_topology || "global table", one.task, number(one.commit), duration(one.age_ms), el("code", {}, one.position)]))] : null)
  $("store-next")?.addEventListener("click", () => read(cursor))
}

// --- The changes of a store, as they are committed

/** Follows the changes of the chosen store from now on, or ends that. */
function follow(begin) {
  clearInterval(tail?.timer)
  tail = begin ? {store: $("store").value, rows: [], after: null, timer: setInterval(changes, 2000)} : null
  $("store-follow").textContent = begin ? "Stop" : "Follow changes"
  if (begin) changes()
}

async function changes() {
  const own = tail
  if (own.asking || document.hidden) return
  own.asking = true
  const asked = {key: $("store-key").value.trim(), prefix: $("store-prefix").value.trim(), after: own.after}
  try {
    const text = await ask(`stores/${encodeURIComponent(own.store)}/changes?${new URLSearchParams(Object.entries(asked).filter(([, value]) => value))}`)
    for (const {kind, id, data} of events(text)) {
      own.after = id ?? own.after
      if (kind === "commit") own.rows.unshift(...data.rows.map(row => ({...row, commit: data.commit, task: data.task})))
      if (kind === "error") throw new Error(data.message)
    }
  } catch (error) {
    own.why = error.message
  }
  own.asking = false
  own.rows.length = Math.min(own.rows.length, KEPT)
  if (tail === own) show("store-rows", own.why ? el("p", {class: "bad"}, own.why) : null, own.rows.length ? table([">Task", ">Commit", "Key", "Value"],
    own.rows.map(row => [row.task, number(row.commit), text(row.key), row.value === null ? el("em", {}, "deleted") : el("code", {}, text(row.value))])) : el("p", {class: "quiet"}, `Changes of ${own.store} appear here as they are committed, newest first.`))
}

/** Server-sent events, with their data. */
function events(stream) {
  return String(stream).split(/\r?\n\r?\n/).map(block => {
    const field = name => block.split(/\r?\n/).filter(line => line.startsWith(`${name}:`)).map(line => line.slice(name.length + 1).trimStart()).join("\n") || null
    return {kind: field("event"), id: field("id"), data: JSON.parse(field("data") || "{}")}
  })
}

// --- SQL

async function query() {
  try {
    const {columns, rows} = await ask("sql", {method: "POST", body: JSON.stringify({sql: $("sql").value}), type: "application/json"})
    show("sql-rows", el("p", {class: "hint"}, `${number(rows.length)} ${rows.length === 1 ? "row" : "rows"}`), table(columns, rows.map(row => row.map(value => el("code", {}, text(value))))))
  } catch (error) {
    show("sql-rows", el("p", {class: "busy"}, error.message))
  }
}

$("store-follow").addEventListener("click", () => follow(!tail))
$("sql-form").addEventListener("submit", event => { event.preventDefault(); query() })
$("store").addEventListener("change", () => { found = null; fields(); read() })
$("store-form").addEventListener("submit", event => { event.preventDefault(); read() })
