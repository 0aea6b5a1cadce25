// Lets the search work in pages that are opened from a folder, where browsers start no workers: the worker's script runs in a hidden
// frame of the page instead. scripts/site.py puts this file in the place of the one that Zensical's pages load from another host.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data => setTimeout(() => this.onmessage?.({ data }))
      const script = inside.document.createElement("script")
      this.loaded = new Promise((resolve, reject) => Object.assign(script, { src: url, onload: resolve, onerror: reject }))
      this.loaded.catch(error => this.onerror?.(error))
      inside.document.body.append(script)
    }
    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.onmessage({ data }))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
