// A notebook in a browser, driven through JupyterLab's own commands: a kernel that starts swallows keys.

import { type Browser, type Locator, type Page, chromium } from "playwright-core";
import type { Lab } from "./lab";

export const LONG = 150_000;

interface App {
  commands: { execute(name: string, options?: object): Promise<unknown> };
  shell: {
    currentWidget: {
      content: { activeCellIndex: number; deselectAll(): void };
      context: { model: { dirty: boolean } };
      sessionContext: { session: { kernel: { status: string } | null } | null };
    } | null;
  };
}

declare global {
  interface Window {
    jupyterapp: App;
  }
}

export async function launch(): Promise<Browser> {
  const executablePath = process.env["TPULAB_CHROMIUM"] ?? "/usr/bin/chromium";
  // Chromium's sandbox refuses to run as root; the pages are our own.
  const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  return chromium.launch({ executablePath, args, timeout: 60_000 });
}

export class NotebookPage {
  /** What the page complained about. */
  readonly complaints: string[] = [];

  private constructor(readonly page: Page) {
    page.setDefaultTimeout(60_000);
    page.on("pageerror", (error) => this.complaints.push(String(error)));
    page.on("console", (message) => message.type() === "error" && this.complaints.push(message.text()));
  }

  static async open(browser: Browser, lab: Lab, name: string, density = 1): Promise<NotebookPage> {
    const page = await browser.newPage({ viewport: { width: 1100, height: 1000 }, deviceScaleFactor: density });
    const notebook = new NotebookPage(page);
    await page.goto(`${lab.url}/lab/tree/${name}?token=${lab.token}&reset`);
    await page.locator(".jp-Notebook .jp-Cell").first().waitFor();
    return notebook;
  }

  async kernelIdle(): Promise<void> {
    await this.page.waitForFunction(
      () => window.jupyterapp.shell.currentWidget?.sessionContext.session?.kernel?.status === "idle",
      undefined,
      { timeout: LONG },
    );
  }

  /** Runs a cell to its end. */
  async run(cell: number): Promise<void> {
    await this.page.evaluate(async (index) => {
      const { commands, shell } = window.jupyterapp;
      const notebook = shell.currentWidget;
      if (!notebook) throw new Error("no notebook is open");
      notebook.content.deselectAll();
      notebook.content.activeCellIndex = index;
      await commands.execute("notebook:run-cell");
    }, cell);
    await this.kernelIdle();
  }

  async save(): Promise<void> {
    await this.page.evaluate(() => window.jupyterapp.commands.execute("docmanager:save"));
    await this.page.waitForFunction(() => window.jupyterapp.shell.currentWidget?.context.model.dirty === false);
  }

  async theme(theme: string): Promise<void> {
    await this.page.evaluate((name) => window.jupyterapp.commands.execute("apputils:change-theme", { theme: name }), theme);
    await this.page.locator(`body[data-jp-theme-name="${theme}"]`).waitFor({ state: "attached" });
  }

  outputs(cell: number): Locator {
    return this.page.locator(".jp-Notebook .jp-Cell").nth(cell).locator(".jp-OutputArea-child");
  }

  /** The static figure of a cell. */
  figure(cell: number): Locator {
    return this.outputs(cell).locator('[role="group"][aria-label^="tpulab:"]');
  }

  /** The live one. */
  canvas(cell: number): Locator {
    return this.outputs(cell).locator(".tpulab-figure canvas");
  }

  async close(): Promise<void> {
    await this.page.close();
  }
}
