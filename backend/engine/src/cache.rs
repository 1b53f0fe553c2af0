//! The compile cache. Numbers are constants of a program until a key meets a third distinct set of them: then one
//! program takes them as parameters, but for those its lowering needs while it builds.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::address::MAX_DEVICES;
use crate::args::ArgRef;
use crate::error::Result;
use crate::key::{Analysis, Key, Numbers};
use crate::program::{Program, build};
use crate::registry::Op;
use crate::runtime::Runtime;
use crate::stats;

/// Distinct sets of numbers served by constants before they become parameters.
const STATIC_VARIANTS: usize = 2;

/// What is known of a key. Immutable: devices hold snapshots and share no lock.
#[derive(Clone)]
enum Variants {
    Static(SmallVec<[(Numbers, Arc<Program>); STATIC_VARIANTS]>),
    Changing {
        /// Places of the numbers that stay constants.
        pinned: SmallVec<[usize; 4]>,
        by_pinned: FxHashMap<Numbers, Arc<Program>>,
        /// Views whose start does not fit the common program.
        odd: FxHashMap<Numbers, Arc<Program>>,
    },
}

impl Variants {
    fn find(&self, numbers: &Numbers) -> Option<&Arc<Program>> {
        match self {
            Self::Static(list) => list
                .iter()
                .find(|(known, _)| known == numbers)
                .map(|(_, program)| program),
            Self::Changing {
                pinned,
                by_pinned,
                odd,
            } => by_pinned
                .get(&subset(numbers, pinned))
                .filter(|program| {
                    program
                        .guards
                        .iter()
                        .all(|(index, plan)| plan.fits(numbers[*index] as i64))
                })
                .or_else(|| odd.get(numbers)),
        }
    }
}

fn subset(numbers: &Numbers, places: &[usize]) -> Numbers {
    places.iter().map(|&place| numbers[place]).collect()
}

type Entry = Arc<Mutex<Arc<Variants>>>;

pub(crate) struct Cache {
    /// A device's own view of the cache, read on every call.
    devices: [RwLock<FxHashMap<Key, Arc<Variants>>>; MAX_DEVICES],
    /// All keys; an entry's lock is held while it compiles, so that nobody compiles the same twice.
    entries: Mutex<FxHashMap<Key, Entry>>,
}

impl Cache {
    pub(crate) fn new() -> Self {
        Self {
            devices: [const { RwLock::new(FxHashMap::with_hasher(rustc_hash::FxBuildHasher)) };
                MAX_DEVICES],
            entries: Mutex::default(),
        }
    }

    #[inline]
    pub(crate) fn get(
        &self,
        runtime: &Runtime,
        op: &'static Op,
        args: &[ArgRef<'_>],
        call: &Analysis<'_>,
        flags: u32,
        device: usize,
    ) -> Result<Arc<Program>> {
        if let Some(variants) = self.devices[device].read().get(&call.key)
            && let Some(program) = variants.find(&call.numbers)
        {
            return Ok(program.clone());
        }
        self.miss(runtime, op, args, call, flags, device)
    }

    #[cold]
    fn miss(
        &self,
        runtime: &Runtime,
        op: &'static Op,
        args: &[ArgRef<'_>],
        call: &Analysis<'_>,
        flags: u32,
        device: usize,
    ) -> Result<Arc<Program>> {
        let empty = || Arc::new(Mutex::new(Arc::new(Variants::Static(SmallVec::new()))));
        let entry = self
            .entries
            .lock()
            .entry(call.key.clone())
            .or_insert_with(empty)
            .clone();
        let mut variants = entry.lock();
        let program = match variants.find(&call.numbers) {
            Some(program) => program.clone(),
            None => {
                let next = extend(&variants, runtime, op, args, call, flags)?;
                *variants = Arc::new(next.0);
                next.1
            }
        };
        self.devices[device]
            .write()
            .insert(call.key.clone(), variants.clone());
        Ok(program)
    }

    pub(crate) fn clear(&self) {
        self.entries.lock().clear();
        for device in &self.devices {
            device.write().clear();
        }
    }
}

fn extend(
    old: &Variants,
    runtime: &Runtime,
    op: &'static Op,
    args: &[ArgRef<'_>],
    call: &Analysis<'_>,
    flags: u32,
) -> Result<(Variants, Arc<Program>)> {
    let compile = |changing| {
        stats::COUNTERS.compiled.fetch_add(1, Ordering::Relaxed);
        build(runtime, op, args, call, flags, changing)
    };
    let numbers = call.numbers.clone();
    let changing = op.def.as_ref().is_some_and(|def| def.changing);
    match old {
        Variants::Static(list) if list.len() < STATIC_VARIANTS && !changing => {
            let program = Arc::new(compile(false)?.program);
            let mut list = list.clone();
            list.push((numbers, program.clone()));
            Ok((Variants::Static(list), program))
        }
        Variants::Static(_) => {
            let built = compile(true)?;
            let program = Arc::new(built.program);
            let pinned = SmallVec::from_vec(built.forced_static);
            let by_pinned = FxHashMap::from_iter([(subset(&numbers, &pinned), program.clone())]);
            Ok((
                Variants::Changing {
                    pinned,
                    by_pinned,
                    odd: FxHashMap::default(),
                },
                program,
            ))
        }
        Variants::Changing {
            pinned,
            by_pinned,
            odd,
        } => {
            let (mut pinned, mut by_pinned, mut odd) =
                (pinned.clone(), by_pinned.clone(), odd.clone());
            if by_pinned.contains_key(&subset(&numbers, &pinned)) {
                // The common program exists, but a view does not fit it.
                let program = Arc::new(compile(false)?.program);
                odd.insert(numbers, program.clone());
                return Ok((
                    Variants::Changing {
                        pinned,
                        by_pinned,
                        odd,
                    },
                    program,
                ));
            }
            let built = compile(true)?;
            let program = Arc::new(built.program);
            if built
                .forced_static
                .iter()
                .any(|place| !pinned.contains(place))
            {
                // Other numbers need other constants: what was known by fewer is no longer told apart.
                pinned.extend(built.forced_static);
                pinned.sort_unstable();
                pinned.dedup();
                by_pinned.clear();
            }
            by_pinned.insert(subset(&numbers, &pinned), program.clone());
            Ok((
                Variants::Changing {
                    pinned,
                    by_pinned,
                    odd,
                },
                program,
            ))
        }
    }
}
