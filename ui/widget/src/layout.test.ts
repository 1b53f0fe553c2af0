import { describe, expect, test } from "vitest";
import { type Bar, type Mark, type Text, layout, shorten, wrap } from "./layout";
import { measure, sample } from "./sample";

const SIZE = 13;
const texts = (marks: Mark[]): Text[] => marks.filter((mark) => mark.is === "text");
const bars = (marks: Mark[]): Bar[] => marks.filter((mark) => mark.is === "bar");
const right = (mark: Mark): number =>
  mark.x + (mark.is === "text" ? measure(mark.text, mark.bold) : mark.is === "bar" ? mark.width : mark.width);

describe("layout", () => {
  test("shows everything, from top to bottom", () => {
    const { marks, height } = layout(sample(), 800, SIZE, measure);
    const shown = texts(marks).map((mark) => mark.text);
    for (const text of ["2 devices of TPU v6e (virtual, on CPU)", "8.00 GiB", "25.0 %", "mul.Tensor", "1.2 ms"]) {
      expect(shown).toContain(text);
    }
    const y = marks.map((mark) => mark.y);
    expect(Math.max(...y)).toBeLessThanOrEqual(height);
    expect(y.filter((value) => value < 0)).toEqual([]);
  });

  test("numbers of a column end at the same place, texts begin at the same", () => {
    const { marks } = layout(sample(), 800, SIZE, measure);
    const at = (text: string): Text => texts(marks).find((mark) => mark.text === text) as Text;
    expect(right(at("8.00 GiB"))).toBeCloseTo(right(at("0 B")));
    expect(at("tpu:0").x).toBe(at("tpu:1").x);
    expect(at("25.0 %").x).toBe(at("0.0 %").x);
  });

  test("a bar shows the part and the peak", () => {
    const found = bars(layout(sample(), 800, SIZE, measure).marks);
    expect(found.map(({ part, peak }) => [part, peak])).toEqual([
      [0.25, 0.5],
      [0, 0],
    ]);
  });

  test.each([1200, 800, 500, 300, 220, 150])("nothing leaves a width of %d", (width) => {
    const picture = layout(sample(), width, SIZE, measure);
    expect(picture.width).toBeLessThanOrEqual(width);
    for (const mark of picture.marks) expect(right(mark)).toBeLessThanOrEqual(picture.width + 1);
  });

  test("bars give way to text where it is narrow", () => {
    const wide = bars(layout(sample(), 800, SIZE, measure).marks);
    const less = bars(layout(sample(), 260, SIZE, measure).marks);
    expect(less[0]?.width).toBeLessThan(wide[0]?.width ?? 0);
    expect(bars(layout(sample(), 200, SIZE, measure).marks)).toEqual([]);
  });

  test("a failure is only its reason", () => {
    const { marks } = layout({ headline: "no device: none", lines: [], tables: [], failed: true }, 800, SIZE, measure);
    expect(texts(marks).map(({ text, ink }) => [text, ink])).toEqual([["no device: none", "bad"]]);
  });
});

test("wrap breaks at spaces and shortens what is too long alone", () => {
  const plain = (text: string): number => text.length;
  expect(wrap("one two three", 7, plain)).toEqual(["one two", "three"]);
  expect(wrap("incomprehensible a", 6, plain)).toEqual(["incom…", "a"]);
});

test("shorten keeps what fits", () => {
  const plain = (text: string): number => text.length;
  expect(shorten("mul.Tensor", 10, plain)).toBe("mul.Tensor");
  expect(shorten("mul.Tensor", 9, plain)).toBe("mul.Tens…");
  expect(shorten("mul.Tensor", 1, plain)).toBe("…");
});
