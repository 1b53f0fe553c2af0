// The anywidget module, stored with every widget and so kept small: it says that a view is open and fetches the painter
// from the kernel, once a page. Without a kernel nothing comes and nothing is shown.

import type { State } from "./state";
import type { Mounted } from "./widget";

interface Painter {
  mount(parent: HTMLElement): Mounted;
}

export interface Message {
  state: State;
  /** Which painter it takes, and its source if the page had not said that it has it. */
  painter: string;
  source?: string;
}

export interface Model {
  on(event: "msg:custom", callback: (message: Message) => void): void;
  off(event: "msg:custom", callback: (message: Message) => void): void;
  send(content: unknown): void;
}

/** One a page: each widget loads this module anew. */
const painters: Map<string, Promise<Painter>> = ((globalThis as Record<symbol, unknown>)[Symbol.for("tpulab")] ??=
  new Map()) as Map<string, Promise<Painter>>;

async function load(source: string): Promise<Painter> {
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  try {
    return await import(/* @vite-ignore */ url);
  } finally {
    URL.revokeObjectURL(url);
  }
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  // Only told apart from other views; `crypto.randomUUID` is missing where the page came over plain HTTP.
  const view = Math.random().toString(36).slice(2);
  let mounted: Promise<Mounted> | undefined;
  let ended = false;

  const receive = async ({ state, painter, source }: Message): Promise<void> => {
    if (source && !painters.has(painter)) painters.set(painter, load(source));
    mounted ??= painters.get(painter)?.then((found) => found.mount(el));
    const figure = await mounted;
    if (!ended) figure?.update(state);
  };
  const say = (content: object): void => {
    try {
      model.send(content);
    } catch {
      // The kernel is gone; the static figure stays.
    }
  };

  model.on("msg:custom", receive);
  say({ opened: view, painters: [...painters.keys()] });
  return () => {
    ended = true;
    model.off("msg:custom", receive);
    void mounted?.then((figure) => figure.unmount());
    say({ closed: view });
  };
}

export default { render };
