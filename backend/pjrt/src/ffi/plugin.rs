//! Loading plugins.
#![expect(unsafe_code, reason = "dlopen, and calls into the plugin")]

use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use parking_lot::Mutex;

use super::fork;
use super::reaper::Reaper;
use crate::error::{Error, Result};
use crate::sys::table::{Head, Table};
use crate::sys::types::PluginInitialize;

/// Plugins change process-wide state when they start, so each file is loaded and initialised once.
static LOADED: Mutex<Vec<&'static Plugin>> = Mutex::new(Vec::new());

/// A loaded PJRT plugin. It stays loaded for the life of the process: its threads and exit handlers
/// cannot be taken back.
pub struct Plugin {
    path: PathBuf,
    pub(super) table: Table,
    pub(super) reaper: OnceLock<Option<Reaper>>,
    /// Set by the first client, where device memory is this process's own memory.
    pub(super) host_memory: AtomicBool,
    /// Held around changes of a buffer's external references, which plugins keep in a bare vector.
    pub(super) references: Mutex<()>,
    _library: Library,
}

impl Plugin {
    /// Loads and initialises the plugin at `path`; the same file loaded again gives the same plugin.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::NotAPlugin`], [`Error::ApiVersion`], or what the plugin's own start reports.
    pub fn load(path: &Path) -> Result<&'static Self> {
        if fork::forked() {
            return Err(Error::Forked);
        }
        let real = path.canonicalize().map_err(|error| Error::Load {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        let mut loaded = LOADED.lock();
        if let Some(plugin) = loaded.iter().find(|plugin| plugin.path == real) {
            return Ok(plugin);
        }
        let plugin: &'static Self = Box::leak(Box::new(Self::open(real)?));
        loaded.push(plugin);
        Ok(plugin)
    }

    fn open(path: PathBuf) -> Result<Self> {
        // SAFETY: the initialisers of a PJRT plugin are sound to run; that the file is one is the user's word.
        let library = match unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => library,
            Err(error) => {
                return Err(Error::Load {
                    path,
                    reason: error.to_string(),
                });
            }
        };
        // SAFETY: the symbol of this name has this type in every PJRT plugin.
        let entry: Result<Symbol<unsafe extern "C" fn() -> *mut Head>, _> =
            unsafe { library.get(b"GetPjrtApi\0") };
        let Ok(entry) = entry else {
            return Err(Error::NotAPlugin {
                path,
                reason: "it does not export GetPjrtApi",
            });
        };
        // SAFETY: the function takes nothing and may be called at any time.
        let Some(head) = NonNull::new(unsafe { entry() }) else {
            return Err(Error::NotAPlugin {
                path,
                reason: "GetPjrtApi returned no table",
            });
        };
        // SAFETY: `head` came from `GetPjrtApi`, and the library is kept.
        let Some(table) = (unsafe { Table::read(head) }) else {
            return Err(Error::NotAPlugin {
                path,
                reason: "its table lacks the error functions",
            });
        };
        let (major, minor) = table.version();
        if major != 0 {
            return Err(Error::ApiVersion { path, major, minor });
        }
        fork::watch();
        // SAFETY: no pointers are passed.
        unsafe { table.plugin_initialize(&mut PluginInitialize::new()) }?;
        Ok(Self {
            path,
            table,
            reaper: OnceLock::new(),
            host_memory: AtomicBool::new(false),
            references: Mutex::new(()),
            _library: library,
        })
    }

    /// The plugin's version of the PJRT API, as (major, minor).
    #[must_use]
    pub fn api_version(&self) -> (i32, i32) {
        self.table.version()
    }

    /// The file, with links resolved.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether destroying a buffer waits for the programs that read it: so in XLA before API 0.100.
    #[must_use]
    pub fn destroy_blocks(&self) -> bool {
        self.table.version().1 < 100
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin")
            .field("path", &self.path)
            .field("api_version", &self.api_version())
            .finish_non_exhaustive()
    }
}
