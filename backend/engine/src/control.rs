//! The control interface of the Python package: one JSON request, one JSON response.

use std::sync::atomic::Ordering;

use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::chip;
use crate::error::{Error, Kind, Result};
use crate::registry;
use crate::runtime;
use crate::settings::{self, Changes, Mode};
use crate::stats;
use crate::{CallContext, DType, Tensor};

#[derive(Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
enum Request {
    Configure(Changes),
    Settings,
    Status,
    Start,
    Devices,
    Memory { device: usize },
    ResetPeak { device: usize },
    Counters,
    LastOps { n: usize },
    SetMode { mode: Mode },
    CpuFallback { on: Option<bool> },
    Synchronize { device: Option<usize> },
    Reset,
    Ops,
    Forked,
    RawChain { n: usize, side: i64 },
}

/// Answers a request: `{"ok": …}` or `{"error": {"kind", "message"}}`.
pub fn control(request: &str) -> String {
    let answer = serde_json::from_str::<Request>(request)
        .map_err(|error| Error::value(format!("not a control request: {error}")))
        .and_then(answer);
    match answer {
        Ok(value) => json!({ "ok": value }),
        Err(error) => {
            json!({ "error": { "kind": python_kind(error.kind()), "message": error.to_string() } })
        }
    }
    .to_string()
}

fn python_kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Runtime => "RuntimeError",
        Kind::Index => "IndexError",
        Kind::Value => "ValueError",
        Kind::Type => "TypeError",
        Kind::OutOfMemory => "OutOfMemoryError",
        Kind::NotImplemented | Kind::NotLowered => "NotImplementedError",
    }
}

fn answer(request: Request) -> Result<Json> {
    match request {
        Request::Configure(changes) => configure(changes),
        Request::Settings => Ok(json!(settings::current())),
        Request::Status => Ok(status()),
        Request::Start => runtime::start().map(|()| Json::Null),
        Request::Devices => Ok(devices()),
        Request::Memory { device } => Ok(json!(stats::memory_stats(device))),
        Request::ResetPeak { device } => {
            stats::reset_peak_memory(device);
            Ok(Json::Null)
        }
        Request::Counters => Ok(counters()),
        Request::LastOps { n } => Ok(stats::last_ops(n)
            .into_iter()
            .map(|(op, device, start_ns, enqueue_ns)| {
                json!({ "op": op, "device": device, "start_ns": start_ns, "enqueue_ns": enqueue_ns })
            })
            .collect()),
        Request::SetMode { mode } => {
            settings::change(Changes { mode: Some(mode), ..Changes::default() })?;
            if let Some(runtime) = runtime::started() {
                runtime.set_mode(mode);
            }
            Ok(Json::Null)
        }
        Request::CpuFallback { on } => {
            if let Some(on) = on {
                stats::set_fallback(on);
            }
            Ok(json!(stats::fallback_enabled()))
        }
        Request::Synchronize { device } => runtime::synchronize(device).map(|()| Json::Null),
        Request::Reset => runtime::reset().map(|()| Json::Null),
        Request::Ops => Ok(json!(registry::lowered_names())),
        Request::Forked => Ok(json!(crate::forked())),
        Request::RawChain { n, side } => raw_chain(n, side),
    }
}

fn configure(changes: Changes) -> Result<Json> {
    let fixed = changes.devices.is_some()
        || changes.chip.is_some()
        || changes.hbm.is_some()
        || changes.plugin.is_some();
    if fixed && runtime::started().is_some() {
        return Err(Error::runtime(
            "the device has already started: call tpulab.reset() first, or configure before the first tensor",
        ));
    }
    let settings = settings::change(changes)?;
    if let Some(runtime) = runtime::started() {
        runtime.set_mode(settings.mode);
    }
    Ok(json!(settings))
}

fn status() -> Json {
    match runtime::started() {
        None => json!({ "started": false }),
        Some(runtime) => json!({
            "started": true,
            "platform": runtime.client.platform_name(),
            "platform_version": runtime.client.platform_version(),
            "plugin": runtime.plugin.path(),
            "api_version": runtime.plugin.api_version(),
        }),
    }
}

fn devices() -> Json {
    let settings = settings::current();
    let on_tpu = runtime::started().is_some_and(|runtime| runtime.client.platform_name() == "tpu");
    let per_chip = chip::find(settings.chip).map_or(1, |chip| chip.devices_per_chip);
    (0..runtime::device_count())
        .map(|index| {
            let memory = stats::memory_stats(index);
            json!({
                "index": index,
                "chip": settings.chip,
                "chip_index": index as u32 / per_chip,
                "virtual": !on_tpu,
                "hbm_bytes": settings.hbm,
                "allocated": memory.allocated,
                "peak": memory.peak,
            })
        })
        .collect()
}

fn counters() -> Json {
    let counters = &stats::COUNTERS;
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    json!({
        "programs_compiled": read(&counters.compiled),
        "compile_seconds": read(&counters.compile_ns) as f64 / 1e9,
        "program_executions": read(&counters.executed),
        "internal_programs": read(&counters.internal),
        "fallbacks": stats::fallbacks(),
    })
}

/// Seconds that `n` dependent executions of a `side`×`side` float32 add take in a bare PJRT loop.
fn raw_chain(n: usize, side: i64) -> Result<Json> {
    let runtime = runtime::get()?;
    let bytes = vec![0; (side * side * 4) as usize];
    let a = Tensor::from_bytes(&bytes, DType::F32, &[side, side], 0)?;
    let op = registry::internal("add", &["self", "other"], 1)?;
    let b = Tensor::from_bytes(&bytes, DType::F32, &[side, side], 0)?;
    let context = CallContext::plain(0);
    let pair = [a.arg(), b.arg()];
    let call = crate::key::Analysis::new(op, &pair, context.flags)?;
    let program = runtime
        .cache
        .get(runtime, op, &pair, &call, context.flags, 0)?;
    let value = a
        .cell
        .snapshot()?
        .value
        .ok_or_else(|| Error::runtime("no value"))?;
    let took = program.executable.raw_chain(0, value.whole()?, n)?;
    Ok(json!(took.as_secs_f64()))
}
