// What the kernel sends: decided in Python (`kernel/python/tpulab/_dashboard.py`), only painted here.

/** A part of a whole; both numbers from 0 to 100. */
export interface Share {
  text: string;
  percent: number;
  peak: number;
}

export type Cell = string | Share;

export interface Table {
  title: string;
  columns: string[];
  /** One letter a column: "l" or "r". */
  align: string;
  rows: Cell[][];
  note: string;
}

export interface State {
  headline: string;
  lines: string[];
  tables: Table[];
  /** True when there is nothing to show but the reason in `headline`. */
  failed: boolean;
}

export function textOf(cell: Cell): string {
  return typeof cell === "string" ? cell : cell.text;
}
