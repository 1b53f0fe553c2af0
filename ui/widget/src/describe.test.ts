import { expect, test } from "vitest";
import { describe } from "./describe";
import { sample } from "./sample";

test("the label tells all that is painted", () => {
  expect(describe(sample())).toBe(
    "2 devices of TPU v6e (virtual, on CPU). Eager mode: strict. " +
      "Memory. device tpu:0, allocated 8.00 GiB, used 25.0 %. device tpu:1, allocated 0 B, used 0.0 %. " +
      "The mark on a bar is the peak. " +
      "Last ops, newest first. op mul.Tensor, host time 5.3 µs. op add.Tensor, host time 1.2 ms.",
  );
});
