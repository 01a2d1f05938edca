// Browsers start no workers from files. If the book is read from a disk, its search runs in a
// hidden frame instead. The theme looks for this file's name before it fetches one of its own.
if (location.protocol === "file:") {
  // As between threads: the other side gets a copy, and never in the middle of what this side does.
  const later = (data, deliver) => setTimeout(deliver, 0, structuredClone(data));

  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      // The worker's messages go to the page. It calls this without a target, as in a worker.
      inside.postMessage = (data) => later(data, (copy) => this.onmessage?.(new MessageEvent("message", { data: copy })));
      this.ready = new Promise((loaded, failed) => {
        const script = this.frame.contentDocument.createElement("script");
        Object.assign(script, { src: new URL(url, document.baseURI), onload: loaded, onerror: failed });
        this.frame.contentDocument.body.append(script);
      });
    }

    postMessage(data) {
      const inside = this.frame.contentWindow;
      later(data, async (copy) => {
        await this.ready;
        inside.dispatchEvent(new inside.MessageEvent("message", { data: copy }));
      });
    }

    terminate() {
      this.frame.remove();
    }
  };
}
