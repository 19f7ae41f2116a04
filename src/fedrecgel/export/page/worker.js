// Computes beside the page, so that typing never waits. It asks the network for nothing but this folder's model.js.
import { makeModel, rank } from "./model.js";

let model = null;

self.onmessage = ({ data }) => {
  try {
    if (data.kind === "load") {
      model = makeModel(data.manifest, data.buffers);
      self.postMessage({ kind: "loaded", reason: model.reason });
    } else {
      const started = performance.now(), picks = rank(model, data.history, data.k);
      self.postMessage({ kind: "ranked", turn: data.turn, picks, milliseconds: performance.now() - started });
    }
  } catch (error) {
    self.postMessage({ kind: "failed", message: error.message });
  }
};
