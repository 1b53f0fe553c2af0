"""A process forked after the device started: using the device raises, dropping tensors and leaving is safe."""

import multiprocessing
import os
import time

import torch
from torch.utils.data import DataLoader, TensorDataset


def leave(code: int) -> None:
    os._exit(code)


def run_forked(child) -> tuple[int, float]:
    """(exit code, seconds) of a forked child that runs `child`."""
    torch.ones(3, device="tpu")
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            leave(child())
        except BaseException:
            leave(99)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), time.monotonic() - started


def test_using_the_device_in_a_child_raises() -> None:
    x = torch.ones(3, device="tpu")

    def child() -> int:
        for use in (lambda: x + 1, lambda: x.cpu(), lambda: torch.ones(2, device="tpu") + 1):
            try:
                use()
            except RuntimeError as error:
                if "spawn" not in str(error):
                    return 2
            else:
                return 1
        return 0

    code, _ = run_forked(child)
    assert code == 0


def test_a_child_holding_tensors_exits_at_once() -> None:
    held = [torch.ones(64, 64, device="tpu") + i for i in range(20)]

    def child() -> int:
        del held[:]
        import gc

        gc.collect()
        return 0

    code, seconds = run_forked(child)
    assert code == 0
    assert seconds < 2


def test_a_child_of_multiprocessing_exits_at_once() -> None:
    held = torch.ones(64, 64, device="tpu")
    started = time.monotonic()
    child = multiprocessing.get_context("fork").Process(target=held.size)
    child.start()
    child.join(10)
    assert child.exitcode == 0
    assert time.monotonic() - started < 2


def test_data_loader_with_forked_workers_after_training_began() -> None:
    weight = torch.ones(4, device="tpu", requires_grad=True)
    (weight * 2).sum().backward()
    data = TensorDataset(torch.arange(32.0).reshape(8, 4))
    loader = DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="fork", pin_memory=True)
    total = torch.zeros(4, device="tpu")
    for (batch,) in loader:
        assert batch.is_pinned()
        total += batch.to("tpu", non_blocking=True).sum(0)
    assert total.tolist() == torch.arange(32.0).reshape(8, 4).sum(0).tolist()
