import pytest
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


@pytest.mark.parametrize("name", ["cpu_fallback", "deterministic"])
def test_on_off_switches(engine: FakeEngine, name: str) -> None:
    switch = getattr(tpulab, name)
    switch(True)
    assert engine.flags[name]
    with switch(False):
        assert not engine.flags[name]
    assert engine.flags[name]
    with pytest.raises(TypeError, match="True or False"):
        switch("yes")
