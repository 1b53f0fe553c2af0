"""Autograd's tools work on the device as on the CPU."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap
from torch.utils.checkpoint import checkpoint


def make() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)), torch.randn(5, 6)


def test_checkpointing_gives_the_same_gradients() -> None:
    model, x = make()
    model, x = model.to("tpu"), x.to("tpu")
    model(x).square().sum().backward()
    plain = [p.grad.cpu() for p in model.parameters()]
    model.zero_grad()
    checkpoint(model, x, use_reentrant=False).square().sum().backward()
    for expected, p in zip(plain, model.parameters(), strict=True):
        assert torch.equal(p.grad.cpu(), expected)


def test_checkpointing_replays_dropout() -> None:
    torch.manual_seed(0)
    drop = nn.Dropout(0.5)
    x = torch.ones(64, device="tpu", requires_grad=True)
    y = checkpoint(lambda t: drop(t) * 2, x, use_reentrant=False)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), y.detach().cpu())


def test_torch_func() -> None:
    model, x = make()
    parameters = dict(model.named_parameters())

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return functional_call(model, parameters, (x,)).square().sum()

    expected = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    jacobian = jacrev(model)(x[0])
    model = model.to("tpu")
    got = vmap(grad(loss), in_dims=(None, 0))(dict(model.named_parameters()), x.to("tpu"))
    for name, value in expected.items():
        assert torch.allclose(got[name].cpu(), value, rtol=1e-4, atol=1e-5)
    assert torch.allclose(jacrev(model)(x[0].to("tpu")).cpu(), jacobian, rtol=1e-4, atol=1e-5)


def test_hooks() -> None:
    model, x = make()
    model, x = model.to("tpu"), x.to("tpu")
    seen = []
    model[0].register_forward_hook(lambda module, args, out: seen.append(out.device.type))
    model[2].register_full_backward_hook(lambda module, grads, outs: seen.append(tuple(outs[0].shape)))
    model[0].weight.register_hook(lambda g: g * 0)
    model(x).sum().backward()
    assert seen == ["tpu", (5, 3)]
    assert model[0].weight.grad.abs().sum().item() == 0


def test_double_backward() -> None:
    x = torch.linspace(-1, 1, 7, device="tpu", requires_grad=True)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.allclose(second.cpu(), 6 * x.detach().cpu())


def test_in_place_on_a_saved_tensor_is_noticed() -> None:
    x = torch.ones(3, device="tpu", requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_an_op_without_a_formula_says_so_at_backward() -> None:
    library = torch.library.Library("tpulab_test", "FRAGMENT")
    library.define("forward_only(Tensor x) -> Tensor")
    library.impl("forward_only", lambda x: x * 2, "PrivateUse1")
    x = torch.ones(3, device="tpu", requires_grad=True)
    y = torch.ops.tpulab_test.forward_only(x)
    with pytest.warns(UserWarning, match="forward_only"):
        y.sum().backward()
