import { defineConfig } from "vitest/config";

// Generous limits: a machine under load takes half a minute to import torch.
export default defineConfig({
  test: { include: ["*.test.ts"], testTimeout: 180_000, hookTimeout: 180_000, fileParallelism: false },
});
