import pytest
import torch
import tpulab
from conftest import FakeEngine


def test_eager_mode_is_set_by_calling(engine: FakeEngine) -> None:
    assert repr(tpulab.eager_mode("blocking")) == "eager mode: blocking (was strict)"
    assert engine.settings["mode"] == "blocking"


def test_eager_mode_is_set_back_after_a_block(engine: FakeEngine) -> None:
    def fail() -> None:
        with tpulab.eager_mode("blocking"):
            assert engine.settings["mode"] == "blocking"
            with tpulab.eager_mode("strict"):
                assert engine.settings["mode"] == "strict"
            assert engine.settings["mode"] == "blocking"
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert engine.settings["mode"] == "strict"


def test_fused_says_what_there_is(engine: FakeEngine) -> None:
    with pytest.raises(NotImplementedError, match='"strict" or "blocking"'):
        tpulab.eager_mode("fused")
    assert engine.settings["mode"] == "strict"


def test_unknown_modes_are_refused(engine: FakeEngine) -> None:
    with pytest.raises(ValueError, match="'slow'"):
        tpulab.eager_mode("slow")


def test_cpu_fallback(engine: FakeEngine) -> None:
    assert repr(tpulab.cpu_fallback(True)) == "CPU fallback: on (was off)"
    assert engine.fallback
    with tpulab.cpu_fallback(False):
        assert not engine.fallback
    assert engine.fallback
    with pytest.raises(TypeError, match="True or False"):
        tpulab.cpu_fallback("yes")


def test_deterministic_is_torchs_own_switch() -> None:
    assert not torch.are_deterministic_algorithms_enabled()
    with tpulab.deterministic(True):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(TypeError, match="True or False"):
        tpulab.deterministic(1)
