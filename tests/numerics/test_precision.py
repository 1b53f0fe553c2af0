"""Matrix products and convolutions follow torch's precision switch and autocast."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")


def errors(run) -> dict[str, float]:
    """Largest error against float64 for each precision."""
    found = {}
    for precision in ("highest", "high", "medium"):
        torch.set_float32_matmul_precision(precision)
        got, exact = run()
        found[precision] = ((got.double().cpu() - exact).abs().max() / exact.abs().max()).item()
    return found


def check(found: dict[str, float]) -> None:
    assert found["highest"] < 2e-6
    assert found["high"] < 1e-4
    assert 3e-4 < found["medium"] < 2e-2


def test_matrix_products() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    check(errors(lambda: (a.to("tpu") @ b.to("tpu"), a.double() @ b.double())))


def test_convolutions() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(2, 8, 12, 12), torch.randn(4, 8, 3, 3)
    check(errors(lambda: (F.conv2d(x.to("tpu"), w.to("tpu")), F.conv2d(x.double(), w.double()))))


def test_default_is_highest() -> None:
    assert torch.get_float32_matmul_precision() == "highest"


def test_autocast_casts_what_it_should() -> None:
    a = torch.randn(8, 8, device="tpu")
    with torch.autocast("tpu"):
        assert (a @ a).dtype == torch.bfloat16
        assert F.linear(a, a).dtype == torch.bfloat16
        assert F.softmax(a @ a, dim=-1).dtype == torch.float32
        assert F.layer_norm(a.bfloat16(), (8,)).dtype == torch.float32
        assert (a + a).dtype == torch.float32
        with torch.autocast("tpu", enabled=False):
            assert (a @ a).dtype == torch.float32
    with torch.autocast("tpu", dtype=torch.float16):
        assert (a @ a).dtype == torch.float16


def test_attention() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 10, 16) for _ in range(3))
    mask = torch.rand(10, 10) > 0.3
    mask |= torch.eye(10, dtype=torch.bool)
    for options in ({}, {"is_causal": True}, {"attn_mask": mask}, {"attn_mask": mask.float()}):
        here = {n: o.to("tpu") if isinstance(o, torch.Tensor) else o for n, o in options.items()}
        got = F.scaled_dot_product_attention(q.to("tpu"), k.to("tpu"), v.to("tpu"), **here)
        expected = F.scaled_dot_product_attention(q, k, v, **options)
        assert torch.allclose(got.cpu(), expected, rtol=1e-5, atol=1e-5), options
    dropped = F.scaled_dot_product_attention(q.to("tpu"), k.to("tpu"), torch.ones_like(v).to("tpu"), dropout_p=0.5)
    assert dropped.cpu().std() > 0.1


def test_numbers_become_arguments_of_a_program() -> None:
    """A number that keeps changing compiles three programs at most, and every value is right."""
    from tpulab import _control

    x = torch.ones(5).to("tpu")
    before = _control.call("counters")["programs_compiled"]
    for i in range(20):
        value = 0.1 + i / 7
        assert torch.allclose((x * value).cpu(), torch.full((5,), value))
    assert _control.call("counters")["programs_compiled"] - before <= 3
    before = _control.call("counters")["programs_compiled"]
    for exponent in (2.0, 3.0, 0.5, -1.0, 1.5):
        assert torch.allclose((x * 2).pow(exponent).cpu(), torch.full((5,), 2.0**exponent))
