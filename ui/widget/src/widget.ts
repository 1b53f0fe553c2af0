// The painter: what the loader mounts into an output once the kernel has sent something to paint.

import { describe } from "./describe";
import { hideFigure } from "./figure";
import { layout } from "./layout";
import { measurer, paint } from "./paint";
import type { State } from "./state";
import { readTheme, watchTheme } from "./theme";

export interface Mounted {
  update(state: State): void;
  unmount(): void;
}

export function mount(parent: HTMLElement): Mounted {
  const box = document.createElement("div");
  box.className = "tpulab-figure";
  box.style.cssText =
    "font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:var(--jp-ui-font-size1,13px);overflow:hidden";
  const canvas = document.createElement("canvas");
  canvas.style.display = "block";
  canvas.setAttribute("role", "img");
  box.append(canvas);
  parent.append(box);

  let state: State | undefined;
  let showFigure: (() => void) | undefined;
  let frame = 0;

  const draw = (): void => {
    frame = 0;
    const context = canvas.getContext("2d");
    const width = box.clientWidth;
    // Not laid out yet, or in a hidden tab: the observer below calls again.
    if (!state || !context || width === 0) return;
    const theme = readTheme(box);
    const density = devicePixelRatio;
    const picture = layout(state, width, theme.size, measurer(context, theme));
    canvas.width = Math.round(picture.width * density);
    canvas.height = Math.round(picture.height * density);
    canvas.style.width = `${picture.width}px`;
    canvas.style.height = `${picture.height}px`;
    paint(context, picture, theme, density);
    canvas.setAttribute("aria-label", describe(state));
    // Whatever could have failed has not: only now the static figure may go.
    showFigure ??= hideFigure(box);
  };
  // A frame only when something changed.
  const ask = (): void => {
    if (frame === 0) frame = requestAnimationFrame(draw);
  };
  const resized = new ResizeObserver(ask);
  resized.observe(box);
  const unwatch = watchTheme(ask);

  return {
    update(shown) {
      state = shown;
      ask();
    },
    unmount() {
      cancelAnimationFrame(frame);
      resized.disconnect();
      unwatch();
      showFigure?.();
      box.remove();
    },
  };
}
