import type { Browser } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { Lab, type Notebook } from "./lab";
import { LONG, NotebookPage, launch } from "./notebook";

const NAME = "dashboard.ipynb";
const CELLS = [
  "import torch\n%load_ext tpulab\na = torch.ones(2**20, device='tpu')",
  "%tpu",
  "b = (a + a) * 2\nw = torch.ones(1024, 1024, device='tpu:1')\nx = w @ w - w",
  "from tpulab import _widget\nprint(len(_widget._figures), 'figures')",
];
const PICTURES = process.env["TPULAB_PICTURES"];

let lab: Lab;
let browser: Browser;
let page: NotebookPage | undefined;

beforeAll(async () => {
  [lab, browser] = await Promise.all([Lab.start(), launch()]);
  await lab.write(NAME, CELLS);
});

afterEach(async ({ task }) => {
  if (PICTURES && task.result?.state === "fail") await page?.page.screenshot({ path: `${PICTURES}/failed.png` });
  await page?.close();
  page = undefined;
});

afterAll(async () => {
  await browser?.close();
  await lab?.stop();
});

async function openLive(density = 1): Promise<NotebookPage> {
  page = await NotebookPage.open(browser, lab, NAME, density);
  await page.kernelIdle();
  return page;
}

/** Colours in the canvas, the most frequent first, the transparent ground left out. */
async function colors(shown: NotebookPage): Promise<string[]> {
  return shown.canvas(1).evaluate((element) => {
    const canvas = element as HTMLCanvasElement;
    const data = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height).data ?? [];
    const counts = new Map<string, number>();
    for (let i = 0; i < data.length; i += 4) {
      if (data[i + 3] !== 255) continue;
      const color = `${data[i]},${data[i + 1]},${data[i + 2]}`;
      counts.set(color, (counts.get(color) ?? 0) + 1);
    }
    return [...counts].sort((a, b) => b[1] - a[1]).map(([color]) => color);
  });
}

async function picture(shown: NotebookPage, name: string): Promise<void> {
  if (PICTURES) await shown.canvas(1).screenshot({ path: `${PICTURES}/${name}.png` });
}

test("the widget stands in for the figure and follows the cells", async () => {
  const shown = await openLive(2);
  await shown.run(0);
  await shown.run(1);
  await shown.canvas(1).waitFor({ timeout: LONG });
  await expect.poll(() => shown.canvas(1).getAttribute("aria-label")).toContain("device tpu:0");
  const label = (): Promise<string | null> => shown.canvas(1).getAttribute("aria-label");
  expect(await label()).toContain("4 devices of TPU v6e (virtual, on CPU)");
  expect(await label()).toContain("allocated 4.00 MiB");
  await shown.figure(1).waitFor({ state: "hidden" });
  await picture(shown, "dashboard-one-op");

  await shown.run(2);
  await expect.poll(label).toContain("allocated 8.00 MiB");
  expect(await label()).toContain("op mul");

  const size = await shown.canvas(1).evaluate((element) => {
    const canvas = element as HTMLCanvasElement;
    return canvas.width / canvas.clientWidth;
  });
  expect(size).toBeCloseTo(2, 1);

  const light = await colors(shown);
  await picture(shown, "dashboard-light");
  await shown.theme("JupyterLab Dark");
  await expect.poll(() => colors(shown)).not.toEqual(light);
  await picture(shown, "dashboard-dark");
  expect(shown.complaints).toEqual([]);
});

test("fifty runs leave one figure and a small file", async () => {
  const shown = await openLive();
  await shown.run(1);
  await shown.canvas(1).waitFor();
  await shown.save();
  const before = (await lab.text(NAME)).length;
  for (let i = 0; i < 50; i += 1) await shown.run(1);
  await shown.canvas(1).waitFor();
  await shown.run(3);
  await expect.poll(() => shown.outputs(3).innerText()).toContain("1 figures");
  await shown.save();
  const after = (await lab.text(NAME)).length;
  console.log(`the notebook: ${before} bytes, after 50 more runs ${after}`);
  expect(after - before).toBeLessThan(64 * 1024);
  const saved: Notebook = JSON.parse(await lab.text(NAME));
  const states = JSON.stringify(saved.metadata["widgets"] ?? {}).length;
  console.log(`of it widget state: ${states} bytes`);
  expect(states).toBeLessThan(4096);
  expect(shown.complaints).toEqual([]);
});

test.each([
  { trusted: true, state: true },
  { trusted: true, state: false },
  { trusted: false, state: true },
])("opened without a kernel, the static figure shows: %o", async ({ trusted, state }) => {
  await lab.endSessions();
  const saved: Notebook = JSON.parse(await lab.text(NAME));
  // No kernel speaks this language, so JupyterLab asks.
  saved.metadata["kernelspec"] = { name: "none", display_name: "none", language: "none" };
  delete saved.metadata["language_info"];
  if (!state) delete saved.metadata["widgets"];
  await lab.writeNotebook("still.ipynb", saved);
  if (trusted) await lab.trust("still.ipynb");
  page = await NotebookPage.open(browser, lab, "still.ipynb");
  const dialog = page.page.locator(".jp-Dialog");
  await dialog.locator("select").selectOption({ label: "No Kernel" });
  await dialog.locator("button.jp-mod-accept").click();
  // What is not trusted is sanitized: labels are gone, the text is there.
  const still = page.outputs(1).first();
  await still.waitFor();
  // Long enough for a widget to come, if one came.
  await page.page.waitForTimeout(1500);
  expect(await still.innerText()).toMatch(/4 devices of TPU v6e \(virtual, on CPU\)[^]*8\.00 MiB[^]*mul\.Tensor/);
  expect(await page.canvas(1).count()).toBe(0);
  if (PICTURES) await page.page.screenshot({ path: `${PICTURES}/still-${trusted}-${state}.png` });
});
