from pathlib import Path
from typing import Any

import pytest
import tpulab
from conftest import FakeEngine
from tpulab import _generations, _settings, _sizes


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"devices": 8}, {"devices": 8}),
        ({"chip": "v6e"}, {"chip": "v6e"}),
        ({"chip": "TPU v6 lite"}, {"chip": "v6e"}),
        ({"hbm": "2GiB"}, {"hbm": 2**31}),
        ({"hbm": 2**31}, {"hbm": 2**31}),
        ({"mode": "blocking"}, {"mode": "blocking"}),
        ({"devices": 4, "chip": "ironwood", "hbm": "64MiB"}, {"devices": 4, "chip": "v7x", "hbm": 2**26}),
    ],
)
def test_values_reach_the_engine_in_one_form(engine: FakeEngine, given: dict[str, Any], sent: dict[str, Any]) -> None:
    tpulab.configure(**given)
    assert {name: engine.settings[name] for name in sent} == sent


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"devices": 0}, ValueError, "devices=0 .* from 1 to"),
        ({"devices": 2.0}, ValueError, "devices=2.0 .* whole number"),
        ({"devices": True}, ValueError, "devices=True"),
        ({"chip": "v9"}, ValueError, "chip='v9' .* v2, v3, v4, v5e, v5p, v6e, v7x"),
        ({"chip": 6}, TypeError, "chip=6 .* v6e"),
        ({"hbm": "2 gibi"}, ValueError, "hbm='2 gibi'.*2GiB"),
        ({"hbm": "-1GiB"}, ValueError, "hbm='-1GiB'"),
        ({"hbm": 4096}, ValueError, "hbm=4096 .* 1 MiB"),
        ({"hbm": 1.5}, TypeError, "hbm=1.5"),
        ({"mode": "lazy"}, ValueError, 'mode=\'lazy\' .* "strict" or "blocking"'),
        ({"mode": "fused"}, NotImplementedError, "fused.*strict"),
        ({"plugin": "/no/such.so"}, ValueError, "plugin='/no/such.so'"),
    ],
)
def test_wrong_values_name_themselves_and_the_remedy(
    engine: FakeEngine, given: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        tpulab.configure(**given)
    assert engine.asked == [], "a wrong value must change nothing"


def test_one_wrong_value_keeps_the_others_from_being_set(engine: FakeEngine) -> None:
    with pytest.raises(ValueError, match="chip"):
        tpulab.configure(devices=4, chip="v9")
    assert engine.settings["devices"] == 2


def test_after_the_first_tensor_it_raises_and_names_reset(engine: FakeEngine) -> None:
    engine.started = True
    with pytest.raises(RuntimeError, match=r"configure\(devices=4\) comes after the first tensor.*tpulab\.reset\(\)"):
        tpulab.configure(devices=4, chip="v6e")
    assert engine.settings["devices"] == 2
    tpulab.reset()
    tpulab.configure(devices=4)
    assert engine.settings["devices"] == 4


def test_saying_the_same_again_is_fine(engine: FakeEngine) -> None:
    engine.started = True
    tpulab.configure(devices=2, chip="TPU v6 lite", hbm="32GiB")


def test_a_plugin_of_ones_own(engine: FakeEngine, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.so"
    plugin.write_bytes(b"any")
    tpulab.configure(plugin=plugin)
    assert engine.settings["plugin"] == str(plugin)


def test_the_environment_says_the_same(engine: FakeEngine, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.so"
    plugin.write_bytes(b"any")
    _settings.apply_environment(
        {
            "TPULAB_DEVICES": "4",
            "TPULAB_CHIP": "v5litepod",
            "TPULAB_HBM": "2GiB",
            "TPULAB_MODE": "blocking",
            "TPULAB_PLUGIN": str(plugin),
            "TPULAB_CPU_FALLBACK": "1",
        }
    )
    assert engine.settings == {"devices": 4, "chip": "v5e", "hbm": 2**31, "mode": "blocking", "plugin": str(plugin)}
    assert engine.fallback
    assert _settings.environment_error is None


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TPULAB_DEVICES", "many"),
        ("TPULAB_CHIP", "v9"),
        ("TPULAB_HBM", "big"),
        ("TPULAB_MODE", "fused"),
        ("TPULAB_PLUGIN", "/no/such.so"),
        ("TPULAB_CPU_FALLBACK", "yes"),
    ],
)
def test_a_wrong_environment_is_kept_for_later(engine: FakeEngine, variable: str, value: str) -> None:
    _settings.apply_environment({variable: value, "TPULAB_HBM": "3GiB"} | {variable: value})
    assert f"{variable}={value}" in str(_settings.environment_error)


def test_a_wrong_variable_does_not_undo_the_right_ones(engine: FakeEngine) -> None:
    _settings.apply_environment({"TPULAB_DEVICES": "many", "TPULAB_HBM": "3GiB"})
    assert engine.settings["hbm"] == 3 * 2**30


@pytest.mark.parametrize(
    ("alias", "canonical"),
    [(alias, name) for name, aliases in _generations.GENERATIONS.items() for alias in (name, name.upper(), *aliases)]
    + [("tpu7x", "v7x"), ("7x", "v7x"), ("tpu_v5_lite", "v5e"), ("Trillium", "v6e")],
)
def test_generations_by_any_name(alias: str, canonical: str) -> None:
    assert _generations.canonical(alias) == canonical


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GiB", 2**31),
        ("2 GiB", 2**31),
        ("1.5GiB", 3 * 2**29),
        ("512MiB", 2**29),
        ("64M", 2**26),
        ("2g", 2**31),
        ("16GB", 16 * 10**9),
        ("1024", 1024),
        (77, 77),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_sizes_are_read(text: str | int, size: int) -> None:
    assert _sizes.parse(text) == size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (2**31, "2.00 GiB"),
        (33546041344, "31.2 GiB"),
        (2**50, "1024 TiB"),
    ],
)
def test_sizes_are_written(size: int, text: str) -> None:
    assert _sizes.text(size) == text
