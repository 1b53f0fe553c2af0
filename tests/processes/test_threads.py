"""Many Python threads use the device at once."""

import threading

import torch


def test_eight_threads_at_once() -> None:
    errors: list[BaseException] = []
    results: dict[int, torch.Tensor] = {}

    def work(index: int) -> None:
        try:
            x = torch.full((16, 16), float(index), device="tpu")
            for _ in range(50):
                x = x @ torch.eye(16).to("tpu") + 1
                x[0] -= 1
            results[index] = x.cpu()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for index in range(8):
        expected = torch.full((16, 16), float(index + 50))
        expected[0] = index
        assert torch.equal(results[index], expected)


def test_threads_on_devices_of_their_own() -> None:
    results: dict[int, float] = {}

    def work(index: int) -> None:
        torch.tpu.set_device(index)
        x = torch.ones(8, device="tpu")
        for _ in range(100):
            x = x + index
        assert x.device.index == index
        results[index] = x.sum().item()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {index: 8.0 * (1 + 100 * index) for index in range(8)}


def test_one_program_serves_all_devices() -> None:
    from tpulab import _control

    def run(device: int) -> torch.Tensor:
        x = torch.arange(7.0).to(f"tpu:{device}")
        return (x * 3.25 - x).cpu()

    expected = run(0)
    before = _control.call("counters")["programs_compiled"]
    for device in range(1, 8):
        assert torch.equal(run(device), expected)
    assert _control.call("counters")["programs_compiled"] == before
