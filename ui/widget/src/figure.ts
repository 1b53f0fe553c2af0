// The static figure that stands in the output before the widget's: hidden while the widget lives.

const OUTPUT = ".jp-OutputArea-child";
const FIGURE = '[role="group"][aria-label^="tpulab:"]';

function outputBefore(element: Element): HTMLElement | null {
  const before = element.closest(OUTPUT)?.previousElementSibling;
  return before instanceof HTMLElement && before.querySelector(FIGURE) ? before : null;
}

/** Hides the figure, waiting a few frames for the page to put it there. Returns what shows it again. */
export function hideFigure(element: Element, frames = 30): () => void {
  let hidden: HTMLElement | null = null;
  let ended = false;
  const look = (left: number): void => {
    if (ended) return;
    hidden = outputBefore(element);
    if (hidden) hidden.style.display = "none";
    else if (left > 0) requestAnimationFrame(() => look(left - 1));
  };
  look(frames);
  return () => {
    ended = true;
    hidden?.style.removeProperty("display");
  };
}
