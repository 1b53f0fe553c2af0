"""`torch.tpu` on the real engine, each test in a process of its own where it must be the first to use the device."""

import pytest
import torch
from conftest import Run

pytestmark = pytest.mark.usefixtures("bridge")

#: What scripts written for CUDA ask for.
NAMES = [
    "Event",
    "OutOfMemoryError",
    "Stream",
    "amp",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "random",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]


def test_the_names_are_there() -> None:
    assert [name for name in NAMES if not hasattr(torch.tpu, name)] == []
    assert set(NAMES) <= set(torch.tpu.__all__) | {"get_device_properties"}


def test_devices() -> None:
    assert torch.tpu.is_available()
    assert torch.tpu.device_count() == torch.accelerator.device_count()
    assert torch.accelerator.current_accelerator() == torch.device("tpu")
    assert torch.accelerator.is_available()


def test_the_current_device() -> None:
    assert torch.tpu.current_device() == 0
    with torch.tpu.device(1):
        assert torch.tpu.current_device() == 1
        assert torch.ones(2, device="tpu").device == torch.device("tpu:1")
        with torch.tpu.device("tpu:2"), torch.tpu.device(None):
            assert torch.accelerator.current_device_index() == 2
        assert torch.tpu.current_device() == 1
    with torch.tpu.device_of(torch.ones(1, device="tpu:3")):
        assert torch.tpu.current_device() == 3
    with torch.tpu.device_of(torch.ones(1)):
        assert torch.tpu.current_device() == 0
    torch.tpu.set_device(1)
    assert torch.tpu.current_device() == 1
    torch.tpu.set_device("tpu:0")


@pytest.mark.parametrize("use", [lambda: torch.ones(2, device="tpu:9"), lambda: torch.ones(2).to("tpu:9")])
def test_a_device_that_is_not_there(use) -> None:
    with pytest.raises(RuntimeError, match="9"):
        use()


def test_another_device_type_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a tpu device, but got cpu"):
        torch.tpu.memory_allocated("cpu")


def test_properties() -> None:
    found = torch.tpu.get_device_properties(0)
    assert found.virtual
    assert torch.tpu.get_device_name() == f"TPU {found.chip} (virtual, on CPU)"
    assert torch.tpu.get_device_capability("tpu:1") == (found.major, 0)
    assert torch.tpu.mem_get_info()[1] == found.total_memory
    with pytest.raises(RuntimeError, match="tpu:99 does not exist"):
        torch.tpu.get_device_properties(99)


def test_memory_is_counted() -> None:
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated(1)
    x = torch.ones(1 << 20, device="tpu:1")
    torch.tpu.synchronize(1)
    assert torch.tpu.memory_allocated(1) - before >= x.nbytes
    assert torch.tpu.memory_reserved(1) >= torch.tpu.memory_allocated(1)
    assert torch.tpu.max_memory_allocated(1) >= torch.tpu.memory_allocated(1)
    free, total = torch.tpu.mem_get_info(1)
    assert free <= total - x.nbytes
    assert torch.tpu.memory_stats(1)["allocated_bytes.all.current"] == torch.tpu.memory_allocated(1)
    assert "allocated" in torch.tpu.memory_summary(1)
    del x
    torch.tpu.synchronize(1)
    assert torch.tpu.memory_allocated(1) == before
    torch.tpu.reset_peak_memory_stats(1)
    assert torch.tpu.max_memory_allocated(1) == before
    torch.tpu.empty_cache()


def test_seeds_and_states() -> None:
    torch.manual_seed(7)
    first = torch.rand(5, device="tpu")
    state = torch.tpu.get_rng_state()
    second = torch.rand(5, device="tpu")
    torch.tpu.set_rng_state(state)
    assert torch.equal(torch.rand(5, device="tpu").cpu(), second.cpu())
    torch.tpu.manual_seed_all(7)
    assert torch.equal(torch.rand(5, device="tpu").cpu(), first.cpu())
    assert torch.tpu.initial_seed() == 7
    torch.tpu.seed()
    assert torch.tpu.initial_seed() != 7
    assert len(torch.tpu.default_generators) == len(torch.tpu.get_rng_state_all()) == torch.tpu.device_count()
    torch.tpu.seed_all()
    torch.tpu.set_rng_state_all(torch.tpu.get_rng_state_all())
    with torch.random.fork_rng(device_type="tpu"):
        torch.manual_seed(1)


def test_seeds_wait_for_the_first_use_and_reach_devices_that_come_later(python: Run) -> None:
    code = """
import torch, tpulab
tpulab.configure(devices=1)
torch.manual_seed(3)
assert not torch.tpu.is_initialized()
assert torch.tpu.initial_seed() == 3
tpulab.configure(devices=2)
print([generator.initial_seed() for generator in torch.tpu.default_generators])
early = torch.rand(4, device="tpu:1")
torch.manual_seed(3)
print(torch.equal(early.cpu(), torch.rand(4, device="tpu:1").cpu()))
"""
    done = python("-Werror", "-c", code)
    assert done.stdout == "[3, 3]\nTrue\n", done.stderr


def test_streams_and_events() -> None:
    stream = torch.tpu.current_stream()
    assert stream.device == torch.device("tpu:0")
    with torch.tpu.stream(torch.tpu.Stream()), torch.tpu.stream(None):
        x = torch.ones(4, device="tpu") + 1
    start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    start.record()
    x = x @ x
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0
    assert torch.tpu.default_stream().query() in (True, False)
    stream.synchronize()
    torch.tpu.set_stream(stream)
    torch.tpu.synchronize("tpu:0")


def test_mixed_precision() -> None:
    assert torch.tpu.is_bf16_supported()
    assert torch.bfloat16 in torch.tpu.get_amp_supported_dtype()
    model = torch.nn.Linear(4, 4).to("tpu")
    x = torch.ones(2, 4, device="tpu")
    for context in (torch.autocast("tpu"), torch.tpu.amp.autocast()):
        with context:
            assert model(x).dtype == torch.bfloat16
    with torch.autocast("tpu", dtype=torch.float16):
        assert model(x).dtype == torch.float16


@pytest.mark.parametrize(
    "make", [lambda: torch.amp.GradScaler("tpu"), lambda: torch.tpu.amp.GradScaler(init_scale=4.0)]
)
def test_gradient_scaling(make) -> None:
    model = torch.nn.Linear(4, 1).to("tpu")
    before = model.weight.detach().cpu().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = make()
    loss = model(torch.ones(2, 4, device="tpu")).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.allclose(model.weight.detach().cpu(), before - 0.2)


def test_tensors_and_modules_move_by_method() -> None:
    x = torch.ones(2).tpu()
    assert x.is_tpu
    assert not x.cpu().is_tpu
    assert torch.ones(2).tpu(1).device == torch.device("tpu:1")
    assert torch.nn.Linear(2, 2).tpu().weight.device == torch.device("tpu:0")


def test_settings_end_with_the_first_tensor_and_begin_again_with_reset(python: Run) -> None:
    code = """
import torch, tpulab
tpulab.configure(devices=3, chip="v5e", hbm="64MiB")
x = torch.ones(2, device="tpu")
print(torch.tpu.device_count(), torch.tpu.get_device_name(), torch.tpu.mem_get_info()[1])
try:
    tpulab.configure(devices=2)
except RuntimeError as error:
    print("tpulab.reset()" in str(error))
tpulab.reset()
tpulab.configure(devices=2, chip="v4")
print(torch.tpu.device_count(), torch.ones(2, device="tpu:1").sum().item())
try:
    x + 1
except RuntimeError as error:
    print("dead:", error)
"""
    done = python("-Werror", "-c", code)
    lines = done.stdout.splitlines()
    assert lines[:3] == ["3 TPU v5e (virtual, on CPU) 67108864", "True", "2 2.0"], done.stderr
    assert lines[3].startswith("dead:")


def test_the_dashboard_on_the_real_engine() -> None:
    from tpulab import _magics

    (torch.ones(8, 8, device="tpu") @ torch.ones(8, 8, device="tpu")).sum().item()
    html, text = _magics.render("")
    assert "virtual, on CPU" in text
    assert "tpu:0" in text
    assert "programs compiled" in text
    assert "PJRT API" in text
    assert "sum" in text
    assert len(html.encode()) < 64 * 1024
    for view in ("hbm", "devices", "doctor"):
        assert "says no" not in _magics.render(view)[1]


def test_the_doctor_is_content(capsys: pytest.CaptureFixture[str]) -> None:
    from tpulab import __main__

    assert __main__.main(["doctor"]) == 0, capsys.readouterr().out
    assert capsys.readouterr().out.startswith('device "tpu" works')


def test_a_blocking_call_lets_other_threads_run() -> None:
    import threading

    import tpulab

    ran = threading.Event()
    thread = threading.Thread(target=ran.set)
    with tpulab.eager_mode("strict"):
        x = torch.ones(1500, 1500, device="tpu")
        for _ in range(3):
            x = x @ x * 1e-3
        thread.start()
        torch.tpu.synchronize()
    thread.join()
    assert ran.is_set()


def test_errors_keep_their_type() -> None:
    from tpulab import _control

    with pytest.raises(ValueError, match="no_such_call"):
        _control.call("no_such_call")
    with pytest.raises(ValueError, match=r"zero byte|control request"):
        _control.send("\0")


def test_control_c_ends_a_wait(python: Run) -> None:
    code = """
import _thread, signal, threading, torch
# A shell starts what runs in its background with Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
x = torch.ones(2000, 2000, device="tpu")
for _ in range(4):
    x = x @ x * 1e-3
try:
    threading.Timer(0.01, _thread.interrupt_main).start()
    for _ in range(10**6):
        torch.tpu.synchronize()
except KeyboardInterrupt:
    print("interrupted")
"""
    assert python(code).stdout == "interrupted\n"


def test_a_forked_child_is_told_what_to_do(python: Run) -> None:
    code = """
import os, torch
x = torch.ones(2, device="tpu")
(x + 1).tolist()
if os.fork() == 0:
    try:
        torch.ones(2, device="tpu") + 1
    except RuntimeError as error:
        print(torch.tpu._is_in_bad_fork(), "spawn" in str(error), flush=True)
    torch.manual_seed(0)
    os._exit(0)
os.wait()
"""
    done = python(code)
    assert done.stdout == "True True\n", done.stderr
