/** What the surrounding page looks like. */
export interface Theme {
  family: string;
  size: number;
  ink: { text: string; quiet: string; bad: string };
  line: string;
  trough: string;
  peak: string;
  fill: string;
}

/** Reads JupyterLab's colours from an element in the page; elsewhere its own text colour and ones that do on any ground. */
export function readTheme(element: HTMLElement): Theme {
  const style = getComputedStyle(element);
  const variable = (name: string, otherwise: string): string => style.getPropertyValue(name).trim() || otherwise;
  return {
    family: style.fontFamily,
    size: Number.parseFloat(style.fontSize),
    ink: {
      text: variable("--jp-ui-font-color1", style.color),
      quiet: variable("--jp-ui-font-color2", style.color),
      bad: variable("--jp-error-color1", "#d32f2f"),
    },
    line: variable("--jp-border-color1", "rgba(128,128,128,0.5)"),
    trough: "rgba(128,128,128,0.25)",
    peak: "rgba(128,128,128,0.35)",
    fill: variable("--jp-brand-color1", "#1976d2"),
  };
}

/** Calls back when the page's theme, the system's scheme or the screen's density may have changed. Returns the end of it. */
export function watchTheme(changed: () => void): () => void {
  const ending = new AbortController();
  const { signal } = ending;
  const observer = new MutationObserver(changed);
  // JupyterLab names its theme on the body.
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-name", "data-jp-theme-light"] });
  // A theme's sheet arrives after its name.
  document.addEventListener("load", (event) => event.target instanceof HTMLLinkElement && changed(), {
    capture: true,
    signal,
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed, { signal });
  const watchDensity = (): void => {
    const query = matchMedia(`(resolution: ${devicePixelRatio}dppx)`);
    const moved = (): void => {
      changed();
      watchDensity();
    };
    query.addEventListener("change", moved, { once: true, signal });
  };
  watchDensity();
  return () => {
    ending.abort();
    observer.disconnect();
  };
}
