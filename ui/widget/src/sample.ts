import type { State } from "./state";

/** For the tests: two devices, one of them in use. */
export function sample(): State {
  return {
    headline: "2 devices of TPU v6e (virtual, on CPU)",
    lines: ["Eager mode: strict"],
    failed: false,
    tables: [
      {
        title: "Memory",
        columns: ["device", "allocated", "used"],
        align: "lrl",
        rows: [
          ["tpu:0", "8.00 GiB", { text: "25.0 %", percent: 25, peak: 50 }],
          ["tpu:1", "0 B", { text: "0.0 %", percent: 0, peak: 0 }],
        ],
        note: "The mark on a bar is the peak.",
      },
      {
        title: "Last ops, newest first",
        columns: ["op", "host time"],
        align: "lr",
        rows: [
          ["mul.Tensor", "5.3 µs"],
          ["add.Tensor", "1.2 ms"],
        ],
        note: "",
      },
    ],
  };
}

/** As if every letter were seven pixels wide, bold ones eight. */
export function measure(text: string, bold: boolean): number {
  return text.length * (bold ? 8 : 7);
}
