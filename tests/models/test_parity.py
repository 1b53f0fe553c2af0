"""Losses, gradients and optimizer steps equal the CPU's, and so does where fifty steps of training end."""

import copy

import pytest
import torch

from . import nets

NAMES = list(nets.MODELS)


def gradient_error(mine: torch.Tensor, theirs: torch.Tensor) -> float:
    """Largest error as a part of the largest gradient."""
    return ((mine.cpu() - theirs).abs().max() / theirs.abs().max().clamp_min(1e-12)).item()


@pytest.mark.parametrize("name", NAMES)
def test_loss_and_gradients(name: str) -> None:
    model, batch, loss_of = nets.make(name)
    device_model = copy.deepcopy(model).to("tpu")
    loss = loss_of(model, batch)
    loss.backward()
    device_loss = loss_of(device_model, nets.moved(batch, "tpu"))
    device_loss.backward()
    assert device_loss.item() == pytest.approx(loss.item(), rel=1e-5)
    bound = 2e-3 if name == "cnn" else 1e-4
    largest = max(p.grad.abs().max().item() for p in model.parameters() if p.grad is not None)
    pairs = list(zip(model.named_parameters(), device_model.parameters(), strict=True))
    assert pairs
    for (label, theirs), mine in pairs:
        assert theirs.grad is not None, label
        assert mine.grad is not None, label
        # What is zero but for rounding (the bias before a batch norm, a key's bias) has no error of its own.
        if theirs.grad.abs().max() < 1e-5 * largest:
            assert mine.grad.abs().max().item() < 1e-4 * largest, label
            continue
        assert gradient_error(mine.grad, theirs.grad) <= bound, label


@pytest.mark.parametrize("options", [{"foreach": False}, {"foreach": True}, {"fused": True}], ids=str)
def test_adamw_fed_the_same_gradients(options: dict[str, bool]) -> None:
    model, batch, loss_of = nets.make("decoder")
    device_model = copy.deepcopy(model).to("tpu")
    ours = torch.optim.AdamW(device_model.parameters(), lr=1e-3, weight_decay=0.1, **options)
    theirs = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, foreach=False)
    for step in range(3):
        theirs.zero_grad()
        loss_of(model, batch).backward()
        for mine, other in zip(device_model.parameters(), model.parameters(), strict=True):
            assert other.grad is not None
            mine.grad = other.grad.to("tpu")
        for optimizer in (ours, theirs):
            optimizer.param_groups[0]["lr"] = 1e-3 / (step + 1)
            optimizer.step()
    for mine, other in zip(device_model.parameters(), model.parameters(), strict=True):
        assert torch.allclose(mine.cpu(), other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["sgd", "sgd_momentum", "adam", "adamw_fused"])
def test_optimizers_train_alike(kind: str) -> None:
    model, batch, loss_of = nets.make("mlp")
    device_model = copy.deepcopy(model).to("tpu")
    device_batch = nets.moved(batch, "tpu")

    def make(parameters: list[torch.nn.Parameter], device: str) -> torch.optim.Optimizer:
        if kind == "sgd":
            return torch.optim.SGD(parameters, lr=0.1)
        if kind == "sgd_momentum":
            return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)
        if kind == "adam":
            return torch.optim.Adam(parameters, lr=1e-3, amsgrad=True)
        return torch.optim.AdamW(parameters, lr=1e-3, fused=device == "tpu" or None)

    ours, theirs = make(list(device_model.parameters()), "tpu"), make(list(model.parameters()), "cpu")
    for _ in range(10):
        for m, b, optimizer in ((model, batch, theirs), (device_model, device_batch, ours)):
            optimizer.zero_grad()
            loss_of(m, b).backward()
            optimizer.step()
    for mine, other in zip(device_model.parameters(), model.parameters(), strict=True):
        assert torch.allclose(mine.cpu(), other, rtol=1e-4, atol=1e-5)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", NAMES)
def test_fifty_steps_of_training_end_alike(name: str) -> None:
    model, batch, loss_of = nets.make(name)
    device_model = copy.deepcopy(model).to("tpu")
    ends = []
    for device, m in (("cpu", model), ("tpu", device_model)):
        here = nets.moved(batch, device)
        optimizer = torch.optim.AdamW(m.parameters(), lr=1e-3)
        for _ in range(50):
            optimizer.zero_grad()
            loss = loss_of(m, here)
            loss.backward()
            optimizer.step()
        ends.append(loss.item())
    first = loss_of(nets.make(name)[0], batch).item()
    assert ends[0] < 0.9 * first
    assert ends[1] == pytest.approx(ends[0], rel=0.01)


def test_tied_weights_stay_tied() -> None:
    model, batch, loss_of = nets.make("gpt2")
    model = model.to("tpu")
    assert model.lm_head.weight is model.transformer.wte.weight
    assert model.lm_head.weight.data_ptr() == model.transformer.wte.weight.data_ptr()
    before = model.lm_head.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_of(model, nets.moved(batch, "tpu")).backward()
    optimizer.step()
    assert torch.equal(model.lm_head.weight.cpu(), model.transformer.wte.weight.cpu())
    assert not torch.equal(before.cpu(), model.lm_head.weight.cpu())


def test_gpt2_generates_what_the_cpu_generates() -> None:
    model, batch, _ = nets.make("gpt2")
    model.eval()
    prompt = batch["input_ids"][:1, :5]
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    device_model = model.to("tpu")
    prompt = prompt.to("tpu")
    got = device_model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    assert got.tolist() == expected.tolist()
