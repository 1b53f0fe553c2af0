import { expect, test } from "vitest";
import { layout } from "./layout";
import { type Context, measurer, paint } from "./paint";
import { measure, sample } from "./sample";
import type { Theme } from "./theme";

const THEME: Theme = {
  family: "sans-serif",
  size: 13,
  ink: { text: "black", quiet: "grey", bad: "red" },
  line: "silver",
  trough: "trough",
  peak: "peak",
  fill: "blue",
};

interface Rectangle {
  color: string;
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Writes down what is painted. */
class Paper {
  font = "";
  fillStyle = "";
  textBaseline: CanvasTextBaseline = "alphabetic";
  readonly rectangles: Rectangle[] = [];
  readonly texts: { text: string; color: string; font: string }[] = [];

  clearRect(): void {}
  setTransform(): void {}
  measureText(text: string): TextMetrics {
    return { width: measure(text, this.font.startsWith("600")) } as TextMetrics;
  }
  fillRect(x: number, y: number, width: number, height: number): void {
    this.rectangles.push({ color: this.fillStyle, x, y, width, height });
  }
  fillText(text: string): void {
    this.texts.push({ text, color: this.fillStyle, font: this.font });
  }
}

function painted(density: number, width = 800): Paper {
  const paper = new Paper();
  const context = paper as unknown as Context;
  paint(context, layout(sample(), width, THEME.size, measurer(context, THEME)), THEME, density);
  return paper;
}

test.each([1, 1.25, 1.5, 2, 3])("edges lie on device pixels at density %d", (density) => {
  for (const { x, y, width, height } of painted(density).rectangles) {
    for (const length of [x, y, x + width, y + height]) {
      expect(length * density).toBeCloseTo(Math.round(length * density), 6);
    }
    expect(height).toBeGreaterThan(0);
  }
});

test("a bar is a trough, the peak's pale part, the allocated part and the peak's edge", () => {
  const shown = painted(1).rectangles.filter(({ color }) => color !== "silver");
  expect(shown.map(({ color }) => color)).toEqual(["trough", "peak", "blue", "blue", "trough"]);
  const [trough, peak, part, edge] = shown as [Rectangle, Rectangle, Rectangle, Rectangle];
  expect(part.width / trough.width).toBeCloseTo(0.25, 1);
  expect((peak.width + edge.width) / trough.width).toBeCloseTo(0.5, 1);
});

test("headings are bold, and ink is the theme's", () => {
  const { texts } = painted(1);
  const of = (text: string): string => texts.filter((found) => found.text === text).map(({ color, font }) => `${font} ${color}`).join();
  expect(of("Memory")).toBe("600 13px sans-serif black");
  expect(of("Eager mode: strict")).toBe("13px sans-serif grey");
});
