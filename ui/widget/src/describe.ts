import { type State, type Table, textOf } from "./state";

/** The whole picture in words, for those who hear it. */
export function describe(state: State): string {
  return [state.headline, ...state.lines, ...state.tables.map(table)].map(sentence).join(" ");
}

function table({ title, columns, rows, note }: Table): string {
  const told = rows.map((row) => row.map((cell, i) => words(columns[i] ?? "", textOf(cell))).filter(Boolean).join(", "));
  return [title, ...told, note].filter(Boolean).map(sentence).join(" ");
}

function words(column: string, text: string): string {
  return text === "" ? "" : `${column} ${text}`.trim();
}

function sentence(text: string): string {
  return /[.:!?]$/.test(text) ? text : `${text}.`;
}
