// From what is shown to where it stands: no canvas and no document, so that tests can look at it.

import { type Cell, type State, type Table, textOf } from "./state";

export type Ink = "text" | "quiet" | "bad";

export interface Text {
  is: "text";
  x: number;
  /** The middle of the line. */
  y: number;
  text: string;
  bold: boolean;
  ink: Ink;
}

/** A hairline under a row. */
export interface Line {
  is: "line";
  x: number;
  y: number;
  width: number;
}

export interface Bar {
  is: "bar";
  x: number;
  y: number;
  width: number;
  height: number;
  /** 0 to 1. */
  part: number;
  peak: number;
}

export type Mark = Text | Line | Bar;

export interface Picture {
  marks: Mark[];
  width: number;
  height: number;
}

/** The width of a text. */
export type Measure = (text: string, bold: boolean) => number;

// In units of the font's size.
const LINE = 1.5;
const ROW = 1.9;
const GAP = 1;
const SPACE = 0.8;
const BAR = { least: 3, most: 18, height: 0.7, gap: 0.6 };
const LEAST_COLUMN = 2;
const MOST = 60;

/** Places everything within `width`; `size` is the font's. */
export function layout(state: State, width: number, size: number, measure: Measure): Picture {
  const page = new Page(Math.min(width, MOST * size), size, measure);
  page.paragraph(state.headline, true, state.failed ? "bad" : "text");
  for (const line of state.lines) page.paragraph(line, false, "quiet");
  for (const table of state.tables) page.table(table);
  return { marks: page.marks, width: page.width, height: Math.ceil(page.y) };
}

interface Column {
  x: number;
  width: number;
  /** Width of the bars; 0 where there are none or they do not fit. */
  bar: number;
  right: boolean;
}

class Page {
  readonly marks: Mark[] = [];
  y = 0;

  constructor(
    readonly width: number,
    private readonly size: number,
    private readonly measure: Measure,
  ) {}

  paragraph(text: string, bold: boolean, ink: Ink): void {
    for (const line of wrap(text, this.width, (piece) => this.measure(piece, bold))) {
      this.text(0, this.y + (LINE * this.size) / 2, line, bold, ink);
      this.y += LINE * this.size;
    }
  }

  table(table: Table): void {
    this.y += SPACE * this.size;
    this.paragraph(table.title, true, "text");
    if (table.rows.length > 0) {
      const columns = this.columns(table);
      this.row(table.columns, columns, true);
      for (const row of table.rows) this.row(row, columns, false);
      this.y += 0.3 * this.size;
    }
    if (table.note !== "") this.paragraph(table.note, false, "quiet");
  }

  private columns({ columns, rows, align }: Table): Column[] {
    const { size, measure } = this;
    const found = columns.map((name, i) => {
      const cells = rows.map((row) => row[i] ?? "");
      const text = Math.max(0, ...cells.map((cell) => measure(textOf(cell), false)));
      const bars = cells.some((cell) => typeof cell !== "string");
      return { x: 0, width: Math.max(measure(name, true), text), text, bars, bar: 0, right: align[i] === "r" };
    });
    let left = this.width - GAP * size * (found.length - 1);
    for (const column of found) left -= column.width;
    // Bars take what the texts leave.
    const barred = found.filter((column) => column.bars);
    for (const column of barred) {
      const gap = BAR.gap * size;
      const room = left / barred.length + (column.width - column.text) - gap;
      if (room < BAR.least * size) continue;
      column.bar = Math.min(room, BAR.most * size);
      const wider = Math.max(column.width, column.bar + gap + column.text);
      left -= wider - column.width;
      column.width = wider;
    }
    // What is still missing is taken from the widest, down to a width where something can be read.
    while (left < 0) {
      const widest = found.reduce((a, b) => (b.width > a.width ? b : a));
      const taken = Math.min(-left, size, widest.width - LEAST_COLUMN * size);
      if (taken <= 0) break;
      widest.width -= taken;
      left += taken;
    }
    let x = 0;
    for (const column of found) {
      column.x = x;
      x += column.width + GAP * size;
    }
    return found;
  }

  private row(cells: Cell[], columns: Column[], bold: boolean): void {
    const { size, measure } = this;
    const middle = this.y + (ROW * size) / 2;
    columns.forEach((column, i) => {
      const cell = cells[i] ?? "";
      let x = column.x;
      if (column.bar > 0 && typeof cell !== "string") {
        const height = BAR.height * size;
        const [part, peak] = [cell.percent / 100, cell.peak / 100];
        this.marks.push({ is: "bar", x, y: middle - height / 2, width: column.bar, height, part, peak });
        x += column.bar + BAR.gap * size;
      }
      const text = shorten(textOf(cell), column.x + column.width - x, (piece) => measure(piece, bold));
      if (text === "") return;
      if (column.right) x += column.width - measure(text, bold);
      this.text(x, middle, text, bold, "text");
    });
    this.y += ROW * size;
    const last = columns.at(-1);
    if (last) this.marks.push({ is: "line", x: 0, y: this.y, width: last.x + last.width });
  }

  private text(x: number, y: number, text: string, bold: boolean, ink: Ink): void {
    this.marks.push({ is: "text", x, y, text, bold, ink });
  }
}

/** Breaks a text at spaces; a word that is too long alone is shortened. */
export function wrap(text: string, width: number, measure: (text: string) => number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(/\s+/)) {
    const longer = line === "" ? word : `${line} ${word}`;
    if (line !== "" && measure(longer) > width) {
      lines.push(line);
      line = word;
    } else {
      line = longer;
    }
  }
  lines.push(line);
  return lines.map((piece) => shorten(piece, width, measure));
}

/** The text, or as much of it as fits before an ellipsis. */
export function shorten(text: string, width: number, measure: (text: string) => number): string {
  // Half a pixel is the rounding of adding widths up.
  if (measure(text) <= width + 0.5) return text;
  let [fits, tooLong] = [0, text.length];
  while (tooLong - fits > 1) {
    const half = (fits + tooLong) >> 1;
    if (measure(`${text.slice(0, half)}…`) <= width) fits = half;
    else tooLong = half;
  }
  return `${text.slice(0, fits)}…`;
}
