"""Host copies are copies, in both directions, and every layout survives the way there and back."""

import numpy as np
import pytest
import torch


def test_changing_the_source_after_to_changes_nothing() -> None:
    source = torch.arange(12.0).reshape(3, 4)
    device = source.to("tpu")
    source.fill_(-1)
    assert torch.equal(device.cpu(), torch.arange(12.0).reshape(3, 4))


def test_changing_the_result_after_cpu_changes_nothing() -> None:
    device = torch.arange(12.0).to("tpu")
    first = device.cpu()
    first.fill_(-1)
    assert torch.equal(device.cpu(), torch.arange(12.0))
    assert torch.equal((device + 0).cpu(), torch.arange(12.0))


def test_a_numpy_source_is_copied() -> None:
    array = np.arange(1 << 16, dtype=np.float32)
    device = torch.from_numpy(array).to("tpu", non_blocking=True)
    array[:] = -1
    assert torch.equal(device.cpu(), torch.arange(1 << 16, dtype=torch.float32))


def test_a_device_copy_is_its_own() -> None:
    a = torch.arange(6.0).to("tpu")
    b = a.clone()
    a += 1
    assert torch.equal(b.cpu(), torch.arange(6.0))
    assert torch.equal(a.cpu(), torch.arange(6.0) + 1)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    ],
)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (3, 4), (2, 3, 4, 5)])
def test_every_dtype_there_and_back(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    source = (torch.arange(torch.Size(shape).numel()).reshape(shape) % 7).to(dtype)
    back = source.to("tpu").cpu()
    assert back.dtype == dtype
    assert torch.equal(back, source)


def test_layouts_survive() -> None:
    x = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
    for source in (x.to(memory_format=torch.channels_last), x.transpose(1, 3), x[:, ::2], x.expand(2, 3, 4, 5)):
        device = source.to("tpu")
        assert device.stride() == source.to("cpu", copy=True).stride()
        assert torch.equal(device.cpu(), source)


def test_dtype_and_device_at_once() -> None:
    source = torch.linspace(-2, 2, 9)
    assert torch.equal(source.to("tpu", torch.bfloat16).cpu(), source.bfloat16())
    assert torch.equal(source.to("tpu").to("cpu", torch.int32), source.int())


def test_partial_writes_from_the_host() -> None:
    device = torch.zeros(4, 6).to("tpu")
    device[1:3, ::2] = torch.ones(2, 3)
    device[:, 5].copy_(torch.arange(4.0))
    expected = torch.zeros(4, 6)
    expected[1:3, ::2] = 1
    expected[:, 5] = torch.arange(4.0)
    assert torch.equal(device.cpu(), expected)


def test_writes_into_host_views() -> None:
    host = torch.zeros(3, 4)
    host[:, 1].copy_(torch.arange(3.0).to("tpu"))
    assert host[:, 1].tolist() == [0, 1, 2]
    assert host.sum() == 3


def test_devices_copy_among_each_other() -> None:
    x = torch.arange(6.0).reshape(2, 3).to("tpu:0")
    y = x.t().to("tpu:5")
    assert y.device == torch.device("tpu:5")
    x += 1
    assert torch.equal(y.cpu(), torch.arange(6.0).reshape(2, 3).t())
    z = torch.zeros(3, 2, device="tpu:1", dtype=torch.int32)
    z.copy_(y)
    assert torch.equal(z.cpu(), torch.arange(6).reshape(2, 3).t().int())


def test_a_device_that_is_not_there_raises() -> None:
    with pytest.raises(RuntimeError, match="tpu:9"):
        torch.zeros(1, device="tpu:9")
    torch.zeros(1, device="tpu")
    with pytest.raises(RuntimeError, match="tpu:9"):
        torch.tpu.synchronize(9)


def test_mixed_devices_raise() -> None:
    a, b = torch.ones(2, device="tpu:0"), torch.ones(2, device="tpu:1")
    with pytest.raises(RuntimeError, match=r"tpu:0.*tpu:1"):
        a + b
    with pytest.raises(RuntimeError, match="same device"):
        a + torch.ones(2)
