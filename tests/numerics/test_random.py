"""Random numbers come from the device's generators: repeatable, independent, well distributed."""

import torch
from torch import nn


def test_the_same_seed_gives_the_same_numbers() -> None:
    torch.manual_seed(3)
    first = torch.randn(100, device="tpu")
    second = torch.randn(100, device="tpu")
    torch.manual_seed(3)
    again = torch.randn(100, device="tpu")
    assert torch.equal(first.cpu(), again.cpu())
    assert not torch.equal(first.cpu(), second.cpu())


def test_generators_and_states() -> None:
    generator = torch.Generator("tpu").manual_seed(5)
    torch.rand(3, device="tpu", generator=generator)
    state = generator.get_state()
    first = torch.rand(50, device="tpu", generator=generator)
    generator.set_state(state)
    assert torch.equal(torch.rand(50, device="tpu", generator=generator).cpu(), first.cpu())


def test_dropout_with_the_same_state_is_the_same() -> None:
    drop, x = nn.Dropout(0.5), torch.ones(200, device="tpu")
    state = torch.tpu.get_rng_state()
    first, second = drop(x).cpu(), drop(x).cpu()
    torch.tpu.set_rng_state(state)
    assert torch.equal(drop(x).cpu(), first)
    assert not torch.equal(first, second)
    with torch.random.fork_rng(devices=[0], device_type="tpu"):
        forked = drop(x).cpu()
    assert torch.equal(drop(x).cpu(), forked)


def test_devices_draw_from_generators_of_their_own() -> None:
    torch.manual_seed(0)
    a = torch.rand(20, device="tpu:0")
    b = torch.rand(20, device="tpu:1")
    torch.manual_seed(0)
    assert torch.equal(torch.rand(20, device="tpu:1").cpu(), b.cpu())
    assert torch.equal(torch.rand(20, device="tpu:0").cpu(), a.cpu())


def test_distributions() -> None:
    torch.manual_seed(0)
    n = 20_000
    uniform = torch.rand(n, device="tpu").cpu()
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.01
    assert abs(uniform.var() - 1 / 12) < 0.005
    normal = torch.randn(n, device="tpu").cpu()
    assert abs(normal.mean()) < 0.03
    assert abs(normal.std() - 1) < 0.03
    assert normal.abs().max() > 3
    integers = torch.randint(10, (n,), device="tpu").cpu()
    assert (integers.min(), integers.max()) == (0, 9)
    assert (torch.bincount(integers, minlength=10) - n / 10).abs().max() < 250
    kept = nn.functional.dropout(torch.ones(n, device="tpu"), 0.3).cpu()
    assert abs((kept == 0).float().mean() - 0.3) < 0.02
    order = torch.randperm(1000, device="tpu").cpu()
    assert torch.equal(order.sort().values, torch.arange(1000))
    chosen = torch.multinomial(torch.tensor([1.0, 3.0], device="tpu"), n, replacement=True).cpu()
    assert abs(chosen.float().mean() - 0.75) < 0.02
