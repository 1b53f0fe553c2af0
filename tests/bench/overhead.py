"""Own time an op: a strict add minus a raw PJRT loop of the same executable in the same process.

The raw loop lives in the engine (a prepared argument struct, no events, old results destroyed). Batches of 200 adds,
each of the last one's result, alternate; the figure is the difference of the medians. It is void when the raw loop
itself is above 8 µs at 4x4: then the machine is too busy to tell. With the peer's Python in TPULAB_PEER_PYTHON (an
environment with `torch_tpu`, and TPU_LIBRARY_PATH naming a plugin it can open), the peer's add is timed between ours.

    python tests/bench/overhead.py [--side 4] [--rounds 51] [--json FILE]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

BATCH = 200
VOID_ABOVE = 8.0

PEER = """
import sys, time, json, warnings
warnings.filterwarnings("ignore")
import torch
from torch_tpu import _loader
_loader._init_device("tpu")
from torch_tpu._internal import execution_mode
execution_mode.eager_mode = execution_mode.EagerMode.DEFER_NEVER
side, batch = int(sys.argv[1]), int(sys.argv[2])
a, x = torch.ones(side, side).to("tpu"), torch.zeros(side, side).to("tpu")
for line in sys.stdin:
    started = time.perf_counter()
    c = x
    for _ in range(batch):
        c = a + c
    took = time.perf_counter() - started
    torch.accelerator.synchronize()
    print(took / batch * 1e6, flush=True)
"""


class Peer:
    """The peer in a process of its own, timed one batch at a time."""

    def __init__(self, python: str, side: int) -> None:
        self.process = subprocess.Popen(
            [python, "-c", PEER, str(side), str(BATCH)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def batch(self) -> float:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(30)


def measure(side: int, rounds: int) -> dict[str, object]:
    """Medians in µs an op."""
    import torch
    from tpulab import _control

    a, zero = torch.ones(side, side).to("tpu"), torch.zeros(side, side).to("tpu")
    cpu_a, cpu_zero = torch.ones(side, side), torch.zeros(side, side)

    def chain(a: torch.Tensor, c: torch.Tensor) -> None:
        for _ in range(BATCH):
            c = a + c

    def timed(run: Callable[[], None]) -> float:
        started = time.perf_counter()
        run()
        return (time.perf_counter() - started) / BATCH * 1e6

    ways: dict[str, Callable[[], float]] = {
        "raw PJRT loop": lambda: _control.call("raw_chain", n=BATCH, side=side) / BATCH * 1e6,
        "strict add": lambda: timed(lambda: chain(a, zero)),
        "torch CPU add": lambda: timed(lambda: chain(cpu_a, cpu_zero)),
    }
    peer = Peer(os.environ["TPULAB_PEER_PYTHON"], side) if "TPULAB_PEER_PYTHON" in os.environ else None
    if peer:
        ways["peer's strict add"] = peer.batch
    times: dict[str, list[float]] = {name: [] for name in ways}
    torch.set_num_threads(1)
    for way in ways.values():
        way()
    for _ in range(rounds):
        for name, way in ways.items():
            times[name].append(way())
            torch.tpu.synchronize()
    if peer:
        peer.close()
    medians = {name: statistics.median(values) for name, values in times.items()}
    own = medians["strict add"] - medians["raw PJRT loop"]
    return {
        "side": side,
        "rounds": rounds,
        "plugin": Path(_control.call("status")["plugin"]).parent.name,
        "median_us": medians,
        "minimum_us": {name: min(values) for name, values in times.items()},
        "own_us": own,
        "void": side == 4 and medians["raw PJRT loop"] > VOID_ABOVE,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, nargs="*", default=[4, 64])
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = [measure(side, options.rounds) for side in options.side]
    for result in results:
        print(f"\n{result['side']}x{result['side']} float32 add on {result['plugin']}, µs an op")
        medians, minima = result["median_us"], result["minimum_us"]
        for name in medians:
            print(f"  {name:<20} median {medians[name]:7.2f}   minimum {minima[name]:7.2f}")
        note = "   (void: the raw loop is above 8 µs, the machine is busy)" if result["void"] else ""
        print(f"  {'own time':<20} {result['own_us']:14.2f}{note}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
