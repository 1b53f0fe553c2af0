"""Saved models read back, on the device, on the CPU, and where the package is not installed."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight


def flat_model(tied: bool) -> nn.Module:
    """A model on the device whose parameters are views of one flat buffer."""
    torch.manual_seed(0)
    model = (Tied() if tied else nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))).to("tpu")
    parameters = list(model.parameters())
    flat = torch.cat([p.detach().reshape(-1) for p in parameters])
    offset = 0
    for p in parameters:
        p.data = flat[offset : offset + p.numel()].view_as(p)
        offset += p.numel()
    assert len({p.untyped_storage().data_ptr() for p in parameters}) == 1
    return model


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_torch_save_and_load(tied: bool, tmp_path: Path) -> None:
    model = flat_model(tied)
    expected = {name: value.cpu() for name, value in model.state_dict().items()}
    torch.save(model.state_dict(), tmp_path / "model.pt")
    for where in (None, "cpu", "tpu:3", {"tpu:0": "tpu:1"}):
        loaded = torch.load(tmp_path / "model.pt", map_location=where)
        for name, value in loaded.items():
            assert torch.equal(value.cpu(), expected[name])
    if tied:
        loaded = torch.load(tmp_path / "model.pt")
        assert loaded["embed.weight"].data_ptr() == loaded["head.weight"].data_ptr()


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_loads_on_the_cpu_without_the_package(tied: bool, tmp_path: Path) -> None:
    model = flat_model(tied)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    torch.save({k: v.cpu() for k, v in model.state_dict().items()}, tmp_path / "expected.pt")
    script = """
import sys, torch
assert "tpulab" not in sys.modules and not hasattr(torch, "tpu")
loaded, expected = (torch.load(f"{sys.argv[1]}/{name}.pt", map_location="cpu") for name in ("model", "expected"))
assert loaded and all(torch.equal(loaded[name], expected[name]) for name in expected)
"""
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        check=True,
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )


def test_safetensors_of_a_tied_model(tmp_path: Path) -> None:
    model = flat_model(tied=True)
    expected = {name: value.cpu() for name, value in model.state_dict().items()}
    save_model(model, str(tmp_path / "model.safetensors"))
    fresh = flat_model(tied=True)
    with torch.no_grad():
        for p in fresh.parameters():
            p.zero_()
    load_model(fresh, str(tmp_path / "model.safetensors"))
    for name, value in fresh.state_dict().items():
        assert torch.equal(value.cpu(), expected[name])
    assert fresh.embed.weight is fresh.head.weight


def test_safetensors_of_views_of_one_buffer(tmp_path: Path) -> None:
    """Views that do not overlap are tensors of their own, as safetensors sees them on the CPU."""
    model = flat_model(tied=False)
    save_file(model.state_dict(), str(tmp_path / "model.safetensors"))
    loaded = load_file(str(tmp_path / "model.safetensors"))
    fresh = flat_model(tied=False)
    with torch.no_grad():
        for p in fresh.parameters():
            p.zero_()
    fresh.load_state_dict(loaded)
    for name, value in model.state_dict().items():
        assert torch.equal(loaded[name], value.cpu())
        assert torch.equal(fresh.state_dict()[name].cpu(), value.cpu())


def test_safetensors_refuses_shared_memory_as_for_the_cpu(tmp_path: Path) -> None:
    model = Tied().to("tpu")
    with pytest.raises(RuntimeError, match="share memory"):
        save_file(model.state_dict(), str(tmp_path / "model.safetensors"))


def test_storage_resize() -> None:
    x = torch.arange(16.0).to("tpu")
    storage = x.untyped_storage()
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(4096)
    assert storage.nbytes() == 4096
    x.copy_(torch.arange(16.0))
    assert torch.equal(x.cpu(), torch.arange(16.0))


def test_data_pointers_tell_sharing_and_are_exact_in_a_double() -> None:
    x = torch.zeros(8, 8, device="tpu")
    row = x[2]
    assert row.data_ptr() == x.data_ptr() + 2 * 8 * 4
    assert row.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    others = [torch.zeros(8, 8, device="tpu") for _ in range(20)]
    ranges = sorted((t.data_ptr(), t.data_ptr() + 256) for t in [x, *others])
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))
    assert all(int(float(end)) == end and end < 2**53 for _, end in ranges)
