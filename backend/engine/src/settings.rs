//! What can be configured before the device starts.

use std::path::PathBuf;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::address::MAX_DEVICES;
use crate::chip::{self, Chip};
use crate::error::{Error, Result};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One program an op, asynchronous.
    #[default]
    Strict,
    /// Every op awaited, so that an error names its line.
    Blocking,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settings {
    pub devices: usize,
    pub chip: &'static str,
    /// Bytes of HBM a virtual device has.
    pub hbm: u64,
    pub mode: Mode,
    pub plugin: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Changes {
    pub devices: Option<usize>,
    pub chip: Option<String>,
    pub hbm: Option<u64>,
    pub mode: Option<Mode>,
    pub plugin: Option<PathBuf>,
}

const DEFAULT_DEVICES: usize = 8;

static SETTINGS: Mutex<Option<Settings>> = Mutex::new(None);

pub(crate) fn current() -> Settings {
    SETTINGS.lock().clone().unwrap_or_else(defaults)
}

fn defaults() -> Settings {
    let chip = chip::DEFAULT;
    Settings {
        devices: DEFAULT_DEVICES,
        chip: chip.name,
        hbm: chip.hbm_per_device,
        mode: Mode::Strict,
        plugin: None,
    }
}

/// Applies changes. The caller has made sure that nothing has started, or that only the mode changes.
pub(crate) fn change(changes: Changes) -> Result<Settings> {
    let mut guard = SETTINGS.lock();
    let mut next = guard.clone().unwrap_or_else(defaults);
    if let Some(devices) = changes.devices {
        if !(1..=MAX_DEVICES).contains(&devices) {
            return Err(Error::value(format!(
                "devices must be 1 to {MAX_DEVICES}, not {devices}"
            )));
        }
        next.devices = devices;
    }
    if let Some(name) = changes.chip {
        let chip: &Chip = chip::find(&name).ok_or_else(|| {
            Error::value(format!(
                "unknown TPU generation {name:?}; known: {}",
                chip::names()
            ))
        })?;
        next.chip = chip.name;
        next.hbm = chip.hbm_per_device;
    }
    next.hbm = changes.hbm.unwrap_or(next.hbm);
    next.mode = changes.mode.unwrap_or(next.mode);
    next.plugin = changes.plugin.or(next.plugin);
    *guard = Some(next.clone());
    Ok(next)
}
