import type { Bar, Measure, Picture } from "./layout";
import type { Theme } from "./theme";

/** The part of a 2D context that is used, so that tests can hand in a list. */
export type Context = Pick<
  CanvasRenderingContext2D,
  "clearRect" | "fillRect" | "fillStyle" | "fillText" | "font" | "measureText" | "setTransform" | "textBaseline"
>;

function font(theme: Theme, bold: boolean): string {
  return `${bold ? "600 " : ""}${theme.size}px ${theme.family}`;
}

export function measurer(context: Context, theme: Theme): Measure {
  return (text, bold) => {
    context.font = font(theme, bold);
    return context.measureText(text).width;
  };
}

/** Paints with `density` device pixels a CSS pixel; edges lie on device pixels, so that they are sharp. */
export function paint(context: Context, picture: Picture, theme: Theme, density: number): void {
  const snap = (length: number): number => Math.round(length * density) / density;
  const hair = Math.max(1, Math.round(density)) / density;
  const fill = (color: string, x: number, y: number, right: number, bottom: number): void => {
    context.fillStyle = color;
    context.fillRect(snap(x), snap(y), snap(right) - snap(x), snap(bottom) - snap(y));
  };

  context.setTransform(density, 0, 0, density, 0, 0);
  context.clearRect(0, 0, picture.width, picture.height);
  context.textBaseline = "middle";
  for (const mark of picture.marks) {
    if (mark.is === "text") {
      context.font = font(theme, mark.bold);
      context.fillStyle = theme.ink[mark.ink];
      context.fillText(mark.text, snap(mark.x), snap(mark.y));
    } else if (mark.is === "line") {
      fill(theme.line, mark.x, mark.y - hair, mark.x + mark.width, mark.y);
    } else {
      bar(mark, theme, fill);
    }
  }
}

function bar(mark: Bar, theme: Theme, fill: (color: string, x: number, y: number, r: number, b: number) => void): void {
  const bottom = mark.y + mark.height;
  const at = (share: number): number => mark.x + mark.width * share;
  fill(theme.trough, mark.x, mark.y, at(1), bottom);
  if (mark.peak <= 0) return;
  // The edge at the peak is two pixels wide, also where the peak is next to nothing.
  const edge = Math.max(at(mark.peak), mark.x + 2);
  fill(theme.peak, mark.x, mark.y, edge - 2, bottom);
  fill(theme.fill, mark.x, mark.y, at(mark.part), bottom);
  fill(theme.fill, edge - 2, mark.y, edge, bottom);
}
