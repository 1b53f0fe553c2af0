import sys
from pathlib import Path

import pytest
from tpulab import _hashes, _plugins


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TPULAB_PLUGIN", raising=False)
    return tmp_path / "cache" / "tpulab" / "plugin-sha256.json"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only folder that packages are looked for in."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder)])
    return folder


def put(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def tpu_machine(root: Path, device: str = "0x006f") -> Path:
    """A machine with one TPU, and a network card of the same vendor."""
    put(root / "dev/accel0")
    for number, kind in enumerate(("0x0042", device)):
        put(root / f"sys/bus/pci/devices/{number}/vendor", "0x1ae0\n")
        put(root / f"sys/bus/pci/devices/{number}/device", f"{kind}\n")
    return root


def test_the_environment_comes_first(site: Path) -> None:
    put(site / "fastatomstruct_xla_cpu/libpjrt_cpu.so")
    found = _plugins.find({"TPULAB_PLUGIN": "/some/where.so"})
    assert found == _plugins.Plugin("/some/where.so", "TPULAB_PLUGIN", chosen=True)


def test_the_installed_package_is_found(site: Path, tmp_path: Path) -> None:
    other = put(site / "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so")
    assert _plugins.find({}, str(tmp_path)) == _plugins.Plugin(str(other), "xla-cpu-pjrt", chosen=False)
    path = put(site / "fastatomstruct_xla_cpu/libpjrt_cpu.so")
    assert _plugins.find({}, str(tmp_path)) == _plugins.Plugin(str(path), "fastatomstruct-xla-cpu", chosen=False)


def test_nothing_is_found_where_nothing_is(site: Path, tmp_path: Path) -> None:
    assert _plugins.find({}, str(tmp_path)) is None
    with pytest.raises(RuntimeError, match=r"pip install .*TPULAB_PLUGIN"):
        _plugins.prepare(None)


def test_libtpu_is_taken_only_where_a_tpu_is(site: Path, tmp_path: Path) -> None:
    library = put(site / "libtpu/libtpu.so")
    cpu = put(site / "fastatomstruct_xla_cpu/libpjrt_cpu.so")
    empty, machine = tmp_path / "empty", tpu_machine(tmp_path / "machine")
    assert _plugins.find({}, str(empty)).path == str(cpu)
    assert _plugins.find({}, str(machine)).path == str(library)
    assert _plugins.find({"TPU_VISIBLE_DEVICES": "0"}, str(machine)).path == str(library)
    assert _plugins.find({"TPU_VISIBLE_CHIPS": ""}, str(machine)).path == str(cpu)


def test_the_vendors_network_cards_are_no_tpus(tmp_path: Path) -> None:
    assert not _plugins.tpu_possible({}, str(tpu_machine(tmp_path, device="0x0042")))


def test_a_passed_through_device_of_another_vendor_is_no_tpu(tmp_path: Path) -> None:
    put(tmp_path / "dev/vfio/7")
    put(tmp_path / "sys/bus/pci/devices/0/vendor", "0x10de\n")
    assert not _plugins.tpu_possible({}, str(tmp_path))


def test_without_a_pci_listing_the_nodes_do(tmp_path: Path) -> None:
    put(tmp_path / "dev/vfio/0")
    put(tmp_path / "dev/vfio/vfio")
    assert _plugins.tpu_possible({}, str(tmp_path))
    assert _plugins.tpu_nodes(str(tmp_path)) == ["/dev/vfio/0"]


def test_an_unknown_file_is_refused_unless_it_was_chosen(tmp_path: Path) -> None:
    plugin = put(tmp_path / "plugin.so")
    with pytest.raises(RuntimeError, match=r"SHA-256.*TPULAB_PLUGIN"):
        _plugins.verify(str(plugin), chosen=False)
    _plugins.verify(str(plugin), chosen=True)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"gone\.so does not exist"):
        _plugins.verify(str(tmp_path / "gone.so"), chosen=True)


def test_a_known_file_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plugin = str(put(tmp_path / "plugin.so"))
    monkeypatch.setitem(_plugins.KNOWN, _hashes.sha256(plugin), ("some-plugin", "1.2", "x86_64"))
    _plugins.verify(plugin, chosen=False)
    assert _plugins.describe(plugin) == "some-plugin 1.2"


def test_a_file_is_hashed_once_until_it_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path) -> None:
    plugin = put(tmp_path / "plugin.so", "one")
    first = _hashes.sha256(str(plugin))
    assert cache.exists()
    with monkeypatch.context() as patch:
        patch.setattr(_hashes.hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
        assert _hashes.sha256(str(plugin)) == first
    plugin.write_text("another")
    assert _hashes.sha256(str(plugin)) != first


@pytest.mark.parametrize("broken", ["", "[]", "{", '"text"'])
def test_a_broken_cache_is_made_anew(tmp_path: Path, cache: Path, broken: str) -> None:
    plugin = put(tmp_path / "plugin.so")
    put(cache, broken)
    assert _hashes.sha256(str(plugin)) == _hashes.sha256(str(plugin))
    assert _hashes.remembered(str(plugin))


def test_a_cache_that_cannot_be_written_does_no_harm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plugin = put(tmp_path / "plugin.so")
    monkeypatch.setenv("XDG_CACHE_HOME", str(put(tmp_path / "a_file")))
    assert len(_hashes.sha256(str(plugin))) == 64


def test_the_installed_plugin_is_the_tested_one() -> None:
    plugin = _plugins.find({}, "/nonexistent")
    assert plugin is not None
    _plugins.verify(plugin.path, chosen=False)
