// The page: asks for the figures of the view that is open, and shows them. All of them are documented in docs/ui.md.
import {$, ago, bytes, cards, clock, compact, duration, el, number, percent, rate, show, table, when} from "./parts.js"
import {curves} from "./curves.js"
import {graph, noTopology} from "./graph.js"
import {drawStores} from "./stores.js"

const API = "api/v1/"
const OFTEN = 2000, SELDOM = 3 * OFTEN, PATIENCE = 2000
const state = {view: "graph", overview: null, operators: {operators: []}, tasks: null, drawn: null, topology: null, advisedAt: 0, browse: [], heardAt: Date.now()}

const VIEWS = {
  graph: {label: "Graph", every: OFTEN, draw: drawGraph},
  tasks: {label: "Tasks", every: OFTEN, draw: drawTasks},
  steps: {label: "Steps", every: SELDOM, draw: drawSteps},
  commits: {label: "Commits", every: SELDOM, draw: drawCommits},
  state: {label: "State", every: OFTEN, draw: drawState},
  stores: {label: "Stores", every: 5 * SELDOM, draw: () => drawStores(ask, state.browse.shift())},
  follow: {label: "Follow", every: OFTEN, draw: drawFollowed},
  letters: {label: "Dead letters", every: SELDOM, draw: drawLetters},
  events: {label: "Events", every: OFTEN, draw: drawEvents},
  doctor: {label: "Doctor", every: 5 * SELDOM, draw: drawDoctor},
  curves: {label: "Curves", every: 5 * OFTEN, draw: drawCurves},
}

// --- Asking

const token = () => sessionStorage.getItem("token") ?? ""

/** The value of a JSON text; integers that a number of JavaScript would round are texts. */
function exactly(json) {
  const long = part => /^-?\d{16,}$/.test(part) && !Number.isSafeInteger(Number(part))
  return JSON.parse(json.replace(/"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g, part => long(part) ? `"${part}"` : part))
}

async function ask(name, options = {}) {
  const headers = {...(token() ? {Authorization: `Bearer ${token()}`} : {}), ...(options.type ? {"Content-Type": options.type} : {})}
  const answer = await fetch(API + name, {...options, headers, cache: "no-store"})
  if (answer.status === 401) {
    $("login").hidden = false
    $("views").hidden = true
    throw Object.assign(new Error("a token is needed"), {answer: {}})
  }
  const text = await answer.text(), found = text.startsWith("{") ? exactly(text) : text
  if (!answer.ok) throw Object.assign(new Error(found.message ?? found.error), {answer: found})
  return found
}

// --- The headline

function drawHeadline() {
  const {overview} = state
  $("application").textContent = overview.application_id
  headline(overview.state, overview.level, overview.sentence, overview.old)
  document.title = `${overview.state} · ${overview.application_id}`
  if (overview.level !== "bad") $("advice").hidden = true
  else if (Date.now() - state.advisedAt > 6 * SELDOM) advise()
}

function headline(word, level, sentence, old) {
  $("state").textContent = word
  $("sentence").textContent = sentence
  document.body.dataset.level = level
  // Old figures never look like new ones.
  document.body.classList.toggle("old", old)
}

/** The headline has a loop of its own: no view that waits for an answer holds it up. */
async function pulse() {
  if (document.hidden) return
  try {
    state.overview = await ask("overview", {signal: AbortSignal.timeout(PATIENCE)})
    state.heardAt = Date.now()
    $("login").hidden = true
    $("views").hidden = false
    drawHeadline()
  } catch (error) {
    if (error.answer && !$("login").hidden) return
    const silent = duration(Math.max(1000, Date.now() - state.heardAt))
    headline("NO ANSWER", "bad", `from the process that serves this page for ${silent}: what is shown is from before`, true)
    document.title = "NO ANSWER"
  }
}

/** What the doctor says, where somebody has to look. */
async function advise() {
  state.advisedAt = Date.now()
  const {findings} = await ask("doctor").catch(() => ({findings: []}))
  const bad = findings.filter(one => one.severity === "error" || one.severity === "warning").slice(0, 3)
  $("advice").replaceChildren(...bad.map(one => el("li", {class: one.severity}, one.says, one.command ? el("pre", {}, one.command) : null)))
  $("advice").hidden = !bad.length || document.body.dataset.level !== "bad"
}

// --- The graph

async function drawGraph() {
  if (!state.topology) {
    state.topology = await ask("topology")
    state.drawn = state.topology.boxes.length ? graph(state.topology, details) : {drawing: noTopology(), update: () => {}}
    $("graph").replaceChildren(state.drawn.drawing)
  }
  state.operators = await ask("operators")
  state.drawn.update(state.overview, state.operators)
  const now = state.overview.at, may = state.overview.may_change
  show("subs", table(["Sub-topology", ">Records read/s", ">Lag", "*>Lag in time", "*>Visible after", "*>CPU", "*>Micro-batch", "*>Last commit", ...(may ? [""] : [])],
    state.overview.sub_topologies.map(one => [one.sub_topology + (one.paused_since ? ` (paused for ${duration(now - one.paused_since)})` : ""),
      compact(one.records_per_s), number(one.lag_records), duration(one.lag_ms),
      one.visible_after_p50_ms === null ? "–" : `${one.live ? "≤ " : ""}${duration(one.visible_after_p50_ms)} / ${duration(one.visible_after_p99_ms)}`,
      percent(one.cpu_share), one.live ? "live" : number(one.micro_batch), ago(one.committed, now),
      ...(may ? [el("button", {"data-sub": one.sub_topology, "data-does": one.paused_since ? "resume" : "pause"}, one.paused_since ? "Resume" : "Pause")] : [])])))
  for (const button of document.querySelectorAll("#subs button")) button.onclick = hold
  show("operators", el("h2", {}, "Operators"), table(["Operator", ">Received/s", ">Forwarded/s", "*>Received", "*>Forwarded", "*>CPU, of a core", "*>Dropped", ">Dead letters"],
    state.operators.operators.map(one => [one.operator, rate(one.in_per_s) || "–", rate(one.out_per_s) || "–", compact(one.records_in), compact(one.records_out), percent(one.cpu_cores),
      compact(Object.values(one.dropped).reduce((sum, count) => sum + count, 0)), one.dead_letters ? el("strong", {class: "bad"}, compact(one.dead_letters)) : "0"])))
}

/** Pauses or resumes a sub-topology. */
async function hold(event) {
  const {sub, does} = event.target.dataset
  if (!confirm(does === "pause" ? `Pause ${sub}? It begins no further step until somebody resumes it.` : `Resume ${sub}?`)) return
  await ask(does, {method: "POST", body: JSON.stringify({sub_topology: sub})}).catch(error => alert(error.message))
}

async function drawCurves() {
  const [found, {events}] = await Promise.all([ask("curves"), ask("events")])
  show("curves", found.sub_topologies.map(sub => curves(sub, events, found.at)))
}

const pairs = (name, counts) => Object.keys(counts ?? {}).length ? [el("dt", {}, name), el("dd", {}, Object.entries(counts).map(([what, count]) => `${what}: ${number(count)}`).join(", "))] : []
const fact = (name, value) => value === null || value === undefined || value === "" ? [] : [el("dt", {}, name), el("dd", {}, value)]

async function details(box) {
  const found = state.operators.operators.find(one => one.operator === box.id)
  const tasks = box.stores.length ? await ask("tasks") : null
  $("details-name").textContent = box.name
  $("details-body").replaceChildren(
    el("dl", {}, fact("kind", box.operator ?? box.kind), fact("sub-topology", box.sub_topology), fact("runs in", box.runs_in), fact("declared at", box.line)),
    box.code ? el("pre", {}, box.code) : "",
    el("dl", {}, found ? [fact("received", `${number(found.records_in)}, ${rate(found.in_per_s) || "–"}`), fact("forwarded", `${number(found.records_out)}, ${rate(found.out_per_s) || "–"}`),
      fact("CPU time", cpuTime(box)), fact("dead letters", found.dead_letters ? number(found.dead_letters) : null), pairs("dropped", found.dropped), pairs("one by one", found.one_by_one), pairs("events", found.events)] : [],
      fact("key serde", box.key_serde), fact("value serde", box.value_serde),
      Object.entries(box.parameters ?? {}).map(([name, value]) => fact(name, value)),
      box.kind === "topic" ? fact("internal", box.internal ? "yes" : "no") : []),
    box.kind === "topic" ? el("button", {onclick: event => lastRecords(box.name, event.target)}, "Show its last records") : "",
    ...box.stores.map(store => storeDetails(store, tasks)))
  $("details").showModal()
}

/** The last records of a topic, in place of the button that asked for them. */
async function lastRecords(topic, button) {
  const shown = await ask(`topics/${encodeURIComponent(topic)}/last`).then(({records}) => records.length ? cards(["At (UTC)", "Position", "Key", "Value"],
    records.map(one => [when(one.timestamp), one.position, el("code", {}, one.key ?? "null"), el("code", {}, one.value ?? "null")])) : el("p", {class: "quiet"}, "The topic has no records."), error => el("p", {class: "bad"}, error.message))
  button.replaceWith(shown)
}

/** The CPU time that a box has a part in, and which boxes share it. */
function cpuTime(box) {
  const spent = state.operators.operators.filter(one => box.timed_as.includes(one.operator) && one.cpu_s !== null)
  if (!spent.length) return null
  const others = state.topology.boxes.filter(one => one.id !== box.id && one.timed_as?.some(name => box.timed_as.includes(name))).map(one => one.name)
  return `${duration(1000 * spent.reduce((sum, one) => sum + one.cpu_s, 0))}${others.length ? `, together with ${others.join(", ")}` : ""}`
}

function storeDetails(store, tasks) {
  const sizes = tasks.sub_topologies.flatMap(sub => sub.tasks).map(task => task.stores[store.name]).filter(Boolean)
  const total = field => sizes.length ? sizes.reduce((sum, one) => sum + one[field], 0) : null
  return el("section", {}, el("h3", {}, `Store ${store.name}`), el("dl", {}, fact("kind", store.store_kind), fact("declared at", store.line),
    fact("changelog", store.logged ? "yes" : "no"), fact("on disk", store.persistent ? "yes" : "no"), fact("rows, about", number(total("rows"))), fact("bytes, about", bytes(total("bytes")))),
    store.logged ? el("p", {}, el("button", {onclick: () => browse(store.name)}, "Browse its rows")) : null)
}

function browse(name) {
  state.browse = [name]
  $("details").close()
  location.hash = "/stores"
}

// --- Tasks over time

async function drawTasks() {
  state.tasks = await ask("tasks")
  const measure = $("measure").value
  show("tasks", state.tasks.sub_topologies.map(sub => {
    const values = sub.tasks.map(task => task.history[measure])
    const most = Math.max(1e-9, ...values.flat().filter(one => one !== null))
    return [el("h2", {}, sub.sub_topology, el("span", {class: "quiet"}, sub.skew === null ? "" : ` · the busiest task has ${sub.skew.toFixed(1)} times the mean`)),
      table([">Task", sub.live ? "Last seconds" : "Last micro-batches", ">Busy", "*>CPU", ">To the task/s", "*>Written/s", "*>To the task", "*>Step", "*Host", "*>State", "*>Memory", ">Failed"],
        sub.tasks.map((task, at) => [task.task, strip(sub, task, values[at], most, measure), percent(task.busy), percent(task.cpu), rate(task.in_per_s), rate(task.out_per_s), compact(task.records_in), number(task.step), task.host ?? "–",
          bytes(task.state_bytes), bytes(task.rss_bytes), task.failed_attempts ? el("strong", {class: "bad"}, number(task.failed_attempts)) : "0"]))]
  }))
  for (const canvas of document.querySelectorAll("#tasks canvas")) canvas.parentElement.classList.add("strip")
}

/** A row of the heat map: a cell for each micro-batch, darker for more; a step whose attempts failed has a red foot. */
function strip(sub, task, values, most, measure) {
  const count = Math.max(20, values.length), cell = 12
  const canvas = el("canvas", {width: count * cell, height: 18, role: "img", "aria-label": `task ${task.task}: ${measure} of the last ${sub.live ? "seconds" : "micro-batches"}`})
  const pen = canvas.getContext("2d"), heat = getComputedStyle(document.documentElement), failed = task.history.failed_attempts
  values.forEach((value, at) => {
    const x = (count - values.length + at) * cell
    pen.fillStyle = value === null ? heat.getPropertyValue("--panel") : `rgba(${heat.getPropertyValue("--heat")}, ${0.08 + 0.92 * value / most})`
    pen.fillRect(x, 0, cell - 1, 18)
    if (failed[at]) { pen.fillStyle = heat.getPropertyValue("--bad"); pen.fillRect(x, 13, cell - 1, 5) }
  })
  canvas.addEventListener("mousemove", event => {
    const at = Math.floor(event.offsetX / canvas.clientWidth * count) - (count - values.length), batch = sub.micro_batches[at]
    canvas.title = batch ? `${batch.micro_batch === null ? "live" : `micro-batch ${batch.micro_batch}`}, ${clock(batch.at)}: ${values[at] === null ? "no step" : number(values[at])}` : ""
  })
  return canvas
}

// --- The parts of a step

const PARTS = {fence: "fence older attempts", decide: "read the last commit", restore: "restore stores", process: "process records", commit: "commit to Kafka", apply: "write the stores", around: "Spark around it"}

async function drawSteps() {
  const {sub_topologies} = await ask("steps")
  show("steps", sub_topologies.map(sub => {
    if (!sub.steps) return [el("h2", {}, sub.sub_topology), el("p", {class: "quiet"}, "No step has been measured yet. Only the driver (streams run --ui) knows how long the parts take.")]
    const around = sub.live ? [] : [{part: "around", ...sub.around}], parts = [...around, ...sub.parts], whole = Math.max(1, (sub.around.p50_ms ?? 0) + sub.parts.reduce((sum, one) => sum + one.p50_ms, 0), ...parts.map(one => one.p99_ms))
    let at = 0
    const rows = parts.map(one => {
      const left = 100 * at / whole
      at += one.p50_ms ?? 0
      return [el("span", {}, PARTS[one.part]), track(left, one.p50_ms, one.p99_ms, whole), el("span", {class: "quiet"}, `${duration(one.p50_ms)} / ${duration(one.p99_ms)}`)]
    })
    return [el("h2", {}, sub.sub_topology, el("span", {class: "quiet"}, ` · ${number(sub.steps)} ${sub.live ? "live steps" : `steps of ${number(sub.micro_batches)} micro-batches`}; a step takes ${duration(sub.total.p50_ms)} (p50), ${duration(sub.total.p99_ms)} (p99)${sub.live ? ", as means of each second" : `; a micro-batch ${duration(sub.micro_batch.p50_ms)}, ${duration(sub.micro_batch.p99_ms)}`}`)),
      el("div", {class: "waterfall"}, rows)]
  }))
  // The policy of the page forbids styles in HTML, so they are set here.
  for (const bar of document.querySelectorAll("#steps [data-left]")) { bar.style.left = `${bar.dataset.left}%`; bar.style.width = `${bar.dataset.width}%` }
}

const bar = (kind, left, ms, whole) => el("div", {class: `bar ${kind}`, "data-left": left.toFixed(2), "data-width": Math.min(100 - left, 100 * (ms ?? 0) / whole).toFixed(2)})
const track = (left, p50, p99, whole) => el("div", {class: "track"}, bar("p99", left, p99, whole), bar("p50", left, p50, whole))

// --- Commits, copies, restores

async function drawCommits() {
  const found = await ask("commits"), open = found.open_transactions
  show("commits", el("h2", {}, "Last commits"), table(["Sub-topology", ">Task", ">Step", ">Committed", "*>Event time", "*>Records out"], found.tasks.map(one => [one.sub_topology, one.task, number(one.step), ago(one.at, found.at), clock(one.stream_time), number(one.records_out)])),
    el("h2", {}, "Open transactions"),
    open.length ? table(["Topic", ">Partition", ">Last stable offset", ">End", ">Seen open for"], open.map(one => [one.topic, one.partition, number(one.last_stable_offset), number(one.end_offset), duration(one.seen_for_ms)])) : el("p", {class: "quiet"}, "None: readers with read_committed see everything."),
    el("p", {class: "hint"}, "A running step has a transaction for some milliseconds. One that stays open holds readers up: ", el("code", {}, "streams transactions"), " says whose it is."))
  show("copies", el("h2", {}, "Replicas"), found.replicas.length ? table(["Sub-topology", ">Task", ">Offsets of commits behind"], found.replicas.map(one => [one.sub_topology, one.task, number(one.behind)])) : el("p", {class: "quiet"}, "No replica has followed this application (", el("code", {}, "streams replica"), ")."),
    el("h2", {}, "Snapshots"), found.snapshots.length ? table(["Sub-topology", ">Task", ">Step", ">Taken", ">Size", ">Kept"], found.snapshots.map(one => [one.sub_topology, one.task, number(one.step), ago(one.taken, found.at), bytes(one.bytes), one.snapshots])) : el("p", {class: "quiet"}, "There are none (the setting ", el("code", {}, "snapshot_dir"), ")."))
}

async function drawState() {
  const [found, {sub_topologies}] = await Promise.all([ask("restores"), ask("tasks")])
  const sizes = sub_topologies.flatMap(sub => [...new Set(sub.tasks.flatMap(task => Object.keys(task.stores)))].sort().map(name => {
    const each = sub.tasks.map(task => task.stores[name]).filter(Boolean), total = field => each.reduce((sum, one) => sum + one[field], 0)
    return [sub.sub_topology, name, each.length, number(total("rows")), bytes(total("bytes"))]
  }))
  const done = one => one.offsets ? 1 - one.remaining / one.offsets : 1
  show("restores", el("h2", {}, "Restores"), found.stores.length ? table(["Sub-topology", ">Task", "Store", "Read", ">Offsets left", ">Rate", ">Ready in"],
    found.stores.map(one => [one.sub_topology, one.task, one.store, [el("meter", {value: done(one), "aria-label": "read"}), ` ${percent(done(one))}`], number(one.remaining), rate(one.offsets_per_s), one.remaining ? duration(one.remaining_s === null ? null : one.remaining_s * 1000) : "done"])) : el("p", {class: "quiet"}, "No store was restored since the start."),
    sizes.length ? [el("h2", {}, "Stores"), table(["Sub-topology", "Store", ">Tasks", ">Rows, about", ">Bytes, about"], sizes)] : null,
    found.tasks.length ? [el("h2", {}, "Restored since the start"), table(["Sub-topology", ">Task", ">Records", ">Rows", ">Bytes", ">From copies", ">Took"], found.tasks.map(one => [one.sub_topology, one.task, number(one.records), number(one.rows), bytes(one.bytes), one.copies, duration(one.seconds * 1000)]))] : null)
  if (!$("copies").childElementCount) await drawCommits()
}

// --- The followed key

async function drawFollowed() {
  const {key, received, dropped} = await ask("followed")
  $("follow-hint").textContent = key === null ? "" : `What operators have received and dropped of the key ${key}, in committed steps; newest first.`
  if (key === null) {
    show("follow", el("p", {class: "quiet"}, "No key is followed. To follow one: ", el("code", {}, "streams run TARGET --ui 8080 --set ui_follow=KEY"), ". Fields that nobody should see: ", el("code", {}, "--set ui_follow_masked=FIELD,FIELD"), "."))
    return
  }
  show("follow", dropped.length ? [el("h2", {}, "Dropped"), samples(dropped, ["Why", one => el("strong", {class: "bad"}, one.dropped)])] : null,
    el("h2", {}, "Received"), received.length ? samples(received) : el("p", {class: "quiet"}, "No record of this key was processed since the start."))
}

/** Samples of records, and one more column. */
function samples(records, ...more) {
  const source = one => one.source ? `${one.source[0]}-${one.source[1]}@${one.source[2]}` : "end of the step"
  return cards(["*Committed (UTC)", "Operator", ...more.map(one => one[0]), "*Key", "Value", "*Event time (UTC)", "From"], records.map(one => [when(one.at), one.operator, ...more.map(cell => cell[1](one)), one.key,
    one.value === null ? el("span", {class: "quiet"}, "not read") : el("code", {}, one.value), when(one.timestamp), source(one)]))
}

// --- Dead letters

async function drawLetters() {
  const {topics} = await ask("dead-letters"), may = state.overview.may_change
  show("letters", topics.length ? topics.map(topic => [
    el("h2", {}, topic.topic, el("span", {class: "quiet"}, ` · ${topic.all_read ? "" : "the newest "}${number(topic.groups.reduce((sum, one) => sum + one.count, 0))} dead letters${topic.all_read ? "" : ` of about ${compact(topic.offsets)}`}`)),
    table([">Letters", "Error", "*First (UTC)", "Last (UTC)", ""], topic.groups.map(one => [number(one.count), [el("strong", {class: "bad"}, `${one.error} in ${one.node || one.stage}`), ` ${one.message}`], when(one.first), when(one.last),
      may && topic.groups.length > 1 ? el("button", {"data-topic": topic.topic, "data-error": one.error, "data-does": "all"}, `Replay ${one.error}`) : ""])),
    el("p", {}, may ? el("button", {"data-topic": topic.topic, "data-does": "all"}, "Replay all") : el("span", {class: "quiet"}, "A replay needs the setting ", el("code", {}, "ui_token"), ". On the command line: ", el("code", {}, "streams dlq replay"), ".")),
    cards([">Written", "Error", "*Origin", "*Key", ""], topic.letters.map(one => [when(one.written), el("strong", {class: "bad"}, `${one.error}: ${one.message}`), one.origin, one.key ?? "null", letterButtons(topic.topic, one, may)]))]) : el("p", {class: "quiet"}, "No dead letter was found. The page looks in the topics that it knows from its settings and its program: streams ui TARGET --set dead_letter_topic=TOPIC."))
  for (const button of document.querySelectorAll("#letters button")) button.addEventListener("click", pressed)
}

const letters = new Map()

function letterButtons(topic, one, may) {
  letters.set(one.position, {topic, one})
  const replay = one.replayed ? " replayed" : may && !one.left_out ? el("button", {"data-position": one.position, "data-does": "replay"}, "Replay") : ""
  return [el("button", {"data-position": one.position, "data-does": "show"}, "Show"), " ", replay]
}

async function replay(question, wanted) {
  if (!confirm(question)) return
  await ask("dead-letters/replay", {method: "POST", body: JSON.stringify(wanted)}).catch(error => alert(error.message))
  await drawLetters()
}

async function pressed(event) {
  const {topic: of, error, does} = event.target.dataset
  if (does === "all") return replay(`Send all records of ${of} once more that were not sent before${error ? `, of ${error}` : ""}?`, {topic: of, ...(error ? {error} : {})})
  const {topic, one} = letters.get(event.target.dataset.position)
  if (event.target.dataset.does === "show") {
    $("details-name").textContent = one.position
    $("details-body").replaceChildren(el("dl", {}, fact("error", `${one.error}: ${one.message}`), fact("stage", one.stage), fact("attempts", one.attempts), fact("origin", one.origin), fact("event time", clock(one.event_time)), fact("key", one.key), fact("value", one.value), fact("missing", one.missing), fact("replay goes to", one.replay_goes_to), fact("cannot be replayed", one.left_out), one.headers.map(([name, value]) => fact(`header ${name}`, value))), one.stacktrace ? el("pre", {}, one.stacktrace) : "")
    $("details").showModal()
    return
  }
  const [, partition, offset] = one.position.match(/-(\d+)@(\d+)$/)
  await replay(`Send this record to ${one.replay_goes_to} once more?`, {topic, positions: [[Number(partition), Number(offset)]]})
}

// --- Events and the doctor

const LEVELS = {30: "busy", 40: "bad"}
const ERRORS = {WARNING: "busy", ERROR: "bad", CRITICAL: "bad"}

async function drawEvents() {
  const [{events}, {lines}] = await Promise.all([ask("events"), ask("logs")])
  show("events", events.length ? table(["At (UTC)", "Event", "What", "*Sub-topology", "*>Task"], events.map(one => [when(one.at), el("span", {class: LEVELS[one.level]}, one.event.replaceAll("_", " ")), one.message, one.sub_topology ?? "", one.task ?? ""])) : el("p", {class: "quiet"}, "Nothing has happened since the page is served."),
    el("h2", {}, "Log lines"), lines.length ? cards(["At (UTC)", "Level", "*Logger", "Message"], lines.slice(0, 200).map(one => [one.time.slice(11, 19), el("span", {class: ERRORS[one.level]}, one.level), one.logger, [one.message, one.error?.message ? el("pre", {}, one.error.message) : null]])) : el("p", {class: "quiet"}, "This process has logged nothing at its level (", el("code", {}, "--log-level info"), " logs more)."))
}

async function drawDoctor() {
  $("doctor").textContent = "examining…"
  const found = await ask("doctor")
  show("doctor", found.why ? el("p", {}, found.why) : el("p", {}, "The doctor's verdict: ", el("strong", {class: found.verdict === "ok" ? "ok" : found.verdict}, found.verdict), `, ${ago(found.at, Date.now())}`),
    found.findings.length ? table(["", "Check", "Finding"], found.findings.map(one => [el("span", {class: one.severity}, one.severity), one.check, [one.says, one.command ? el("pre", {}, one.command) : null]])) : null)
}

// --- Choosing views

function choose(view) {
  $("details").close()
  state.view = VIEWS[view] ? view : "graph"
  for (const name of Object.keys(VIEWS)) {
    $(`view-${name}`).hidden = name !== state.view
    $(`tab-${name}`).setAttribute("aria-selected", name === state.view)
    $(`tab-${name}`).tabIndex = name === state.view ? 0 : -1
  }
  $(`tab-${state.view}`).scrollIntoView({block: "nearest", inline: "center"})
  pulse().then(() => turn(true))
}

function keys(event) {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey || $("details").open) return
  const names = Object.keys(VIEWS), at = TABS.indexOf(state.view)
  const chosen = event.key === "c" ? "curves" : /^\d$/.test(event.key) && names[(Number(event.key) + 9) % 10]
  if (chosen) location.hash = `/${chosen}`
  if (event.target.role === "tab" && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
    location.hash = "/" + TABS[(at + (event.key === "ArrowRight" ? 1 : TABS.length - 1)) % TABS.length]
    setTimeout(() => $(`tab-${state.view}`).focus())
  }
}

let drawnAt = 0, busy = false

/** Asks for the figures of the open view when it is due. Nothing is asked while nobody looks. */
async function turn(now = false) {
  if (document.hidden || !state.overview || (busy && !now)) return
  // A turn may come somewhat earlier than the one before came late.
  const began = Date.now()
  if (!now && began - drawnAt < VIEWS[state.view].every - OFTEN / 2) return
  busy = true
  drawnAt = began
  try {
    await VIEWS[state.view].draw()
    $("age").textContent = ""
  } catch (error) {
    $("age").textContent = `This view is from before: ${error.message}.`
  } finally {
    busy = false
  }
}

/** The views in the order of their tabs: the curves next to the graph. */
const TABS = ["graph", "curves", ...Object.keys(VIEWS).filter(name => name !== "graph" && name !== "curves")]
for (const name of TABS) {
  $("tabs").append(el("button", {id: `tab-${name}`, role: "tab", "aria-controls": `view-${name}`, onclick: () => { location.hash = `/${name}` }}, VIEWS[name].label))
}
$("login").addEventListener("submit", event => { event.preventDefault(); sessionStorage.setItem("token", $("token").value); pulse().then(() => turn(true)) })
$("measure").addEventListener("change", () => turn(true))
$("examine").addEventListener("click", () => turn(true))
addEventListener("keydown", keys)
addEventListener("hashchange", () => choose(location.hash.slice(2)))
document.addEventListener("visibilitychange", () => { pulse().then(() => turn(true)) })
setInterval(pulse, OFTEN)
setInterval(turn, OFTEN)
choose(location.hash.slice(2))
