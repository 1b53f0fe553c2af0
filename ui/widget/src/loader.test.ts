import { afterEach, beforeEach, expect, test, vi } from "vitest";
import loader, { type Message, type Model } from "./loader";
import { sample } from "./sample";

/** A painter that writes down what it is given. */
const SOURCE = `
  globalThis.painted = [];
  export function mount() {
    return { update: (state) => painted.push(state.headline), unmount: () => painted.push("unmounted") };
  }
`;

class Kernel implements Model {
  readonly heard: Record<string, unknown>[] = [];
  private callback: ((message: Message) => void) | undefined;
  on(_: string, callback: (message: Message) => void): void {
    this.callback = callback;
  }
  off(): void {
    this.callback = undefined;
  }
  send(content: Record<string, unknown>): void {
    this.heard.push(content);
  }
  say(message: Message): void {
    this.callback?.(message);
  }
}

const painted = (): unknown => (globalThis as Record<string, unknown>)["painted"];

beforeEach(() => {
  // Node imports no blob addresses, but it does import data ones.
  vi.spyOn(URL, "createObjectURL").mockReturnValue(`data:text/javascript,${encodeURIComponent(SOURCE)}`);
});

afterEach(() => {
  vi.restoreAllMocks();
});

test("a view asks, paints what comes, and says when it closes", async () => {
  const kernel = new Kernel();
  const close = loader.render({ model: kernel, el: {} as HTMLElement });
  expect(kernel.heard).toEqual([{ opened: expect.any(String), painters: [] }]);

  kernel.say({ state: sample(), painter: "p" });
  expect(painted()).toBeUndefined();
  kernel.say({ state: sample(), painter: "p", source: SOURCE });
  await expect.poll(painted).toEqual(["2 devices of TPU v6e (virtual, on CPU)"]);
  kernel.say({ state: { ...sample(), headline: "next" }, painter: "p" });
  await expect.poll(painted).toEqual(["2 devices of TPU v6e (virtual, on CPU)", "next"]);

  const other = new Kernel();
  loader.render({ model: other, el: {} as HTMLElement });
  expect(other.heard).toEqual([{ opened: expect.any(String), painters: ["p"] }]);

  close();
  expect(kernel.heard.at(-1)).toEqual({ closed: kernel.heard[0]?.["opened"] });
  await expect.poll(() => (painted() as string[]).at(-1)).toBe("unmounted");
});

test("a kernel that is gone is no error", () => {
  const gone = new Kernel();
  gone.send = () => {
    throw new Error("disconnected");
  };
  expect(() => loader.render({ model: gone, el: {} as HTMLElement })()).not.toThrow();
});
