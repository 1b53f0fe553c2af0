// JupyterLab on the loopback address, with a folder, settings and a token of its own.

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

const SETTINGS = {
  // The news prompt covers a corner of the page.
  "@jupyterlab/apputils-extension/notification": { fetchNews: "false", checkForUpdates: false },
  "@jupyterlab/docmanager-extension/plugin": { autosave: false },
  // The worst case for the size of a notebook: off unless a user asks for it.
  "@jupyter-widgets/jupyterlab-manager/plugin": { saveState: true },
};

export interface Notebook {
  cells: { outputs?: { data?: Record<string, unknown> }[] }[];
  metadata: Record<string, unknown>;
}

export class Lab {
  private constructor(
    readonly url: string,
    readonly token: string,
    private readonly folder: string,
    private readonly env: NodeJS.ProcessEnv,
    private readonly server: ChildProcess,
  ) {}

  static async start(): Promise<Lab> {
    const folder = await mkdtemp(join(tmpdir(), "tpulab-browser-"));
    const token = randomBytes(16).toString("hex");
    for (const [name, settings] of Object.entries(SETTINGS)) {
      const path = join(folder, "settings", `${name}.jupyterlab-settings`);
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, JSON.stringify(settings));
    }
    await mkdir(join(folder, "notebooks"));
    const port = await freePort();
    const options = [
      "--no-browser",
      "--expose-app-in-browser",
      "--ServerApp.ip=127.0.0.1",
      `--ServerApp.port=${port}`,
      "--ServerApp.port_retries=0",
      `--ServerApp.root_dir=${join(folder, "notebooks")}`,
      `--IdentityProvider.token=${token}`,
    ];
    if (process.getuid?.() === 0) options.push("--allow-root");
    const env = {
      ...process.env,
      JUPYTER_CONFIG_DIR: join(folder, "config"),
      JUPYTER_DATA_DIR: join(folder, "data"),
      JUPYTER_RUNTIME_DIR: join(folder, "runtime"),
      JUPYTERLAB_SETTINGS_DIR: join(folder, "settings"),
      JUPYTERLAB_WORKSPACES_DIR: join(folder, "workspaces"),
      IPYTHONDIR: join(folder, "ipython"),
      TPULAB_DEVICES: "4",
      TPULAB_HBM: "64MiB",
      TF_CPP_MIN_LOG_LEVEL: "1",
    };
    const server = spawn("python", ["-m", "jupyterlab", ...options], { env, stdio: ["ignore", "pipe", "pipe"] });
    let log = "";
    for (const stream of [server.stdout, server.stderr]) stream?.on("data", (data) => (log = (log + data).slice(-4000)));
    const lab = new Lab(`http://127.0.0.1:${port}`, token, folder, env, server);
    while (!(await lab.answers())) {
      if (server.exitCode !== null) throw new Error(`JupyterLab ended:\n${log}`);
      await sleep(200);
    }
    return lab;
  }

  private async answers(): Promise<boolean> {
    return this.api("GET", "status").then(
      (answer) => answer.ok,
      () => false,
    );
  }

  private api(method: string, path: string): Promise<Response> {
    return fetch(`${this.url}/api/${path}`, { method, headers: { Authorization: `token ${this.token}` } });
  }

  /** Ends all kernels; else a notebook opened again keeps its old one. */
  async endSessions(): Promise<void> {
    const sessions = (await (await this.api("GET", "sessions")).json()) as { id: string }[];
    for (const { id } of sessions) await this.api("DELETE", `sessions/${id}`);
  }

  async write(name: string, cells: string[], kernel = "python3"): Promise<void> {
    const notebook = {
      nbformat: 4,
      nbformat_minor: 5,
      metadata: { kernelspec: { name: kernel, display_name: kernel, language: "python" } },
      cells: cells.map((source, i) => ({
        cell_type: "code",
        id: `cell-${i}`,
        source,
        metadata: {},
        outputs: [],
        execution_count: null,
      })),
    };
    await this.writeNotebook(name, notebook);
  }

  async writeNotebook(name: string, notebook: Notebook): Promise<void> {
    await writeFile(this.path(name), JSON.stringify(notebook));
  }

  /** As if the user had run it here: JupyterLab sanitizes what it does not trust, and shows no widgets there. */
  async trust(name: string): Promise<void> {
    await promisify(execFile)("python", ["-m", "nbformat.sign", this.path(name)], { env: this.env });
  }

  async text(name: string): Promise<string> {
    return readFile(this.path(name), "utf8");
  }

  private path(name: string): string {
    return join(this.folder, "notebooks", name);
  }

  async stop(): Promise<void> {
    await this.endSessions();
    const ended = new Promise((resolve) => this.server.once("exit", resolve));
    this.server.kill("SIGTERM");
    await Promise.race([ended, sleep(15_000)]);
    this.server.kill("SIGKILL");
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}
