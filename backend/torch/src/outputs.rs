//! Results on their way to C++. They stay here, a place a thread, until the thread's next call.

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;

use tpulab_engine::{OutDesc, OutKind, Outputs};

use crate::abi::{TlOut, TlResult, out_kind};
use crate::handle;

#[derive(Default)]
struct Place {
    outs: Vec<TlOut>,
    /// Owns the sizes and strides that `outs` points to.
    descs: Option<Arc<[OutDesc]>>,
}

thread_local! {
    static PLACE: RefCell<Place> = RefCell::default();
}

/// Gives the cells to C++, which owns them from here on.
#[inline]
pub(crate) fn hand_over(outputs: Outputs) -> TlResult {
    PLACE.with_borrow_mut(|place| {
        place.outs.clear();
        let cells = outputs.cells.into_iter().chain(std::iter::repeat(None));
        place
            .outs
            .extend(outputs.descs.iter().zip(cells).map(|(desc, cell)| {
                let (device, address) = cell
                    .as_ref()
                    .map_or((0, 0), |cell| (cell.device(), cell.address()));
                TlOut {
                    kind: kind(desc.kind),
                    arg: index(desc.arg),
                    item: index(desc.item),
                    ret: desc.ret as i32,
                    cell: cell.map_or(std::ptr::null_mut(), handle::into_handle),
                    address: address as *mut c_void,
                    nbytes: desc.nbytes as i64,
                    dtype: i32::from(desc.dtype.code()),
                    ndim: desc.sizes.len() as i32,
                    device: device as i32,
                    reserved: 0,
                    sizes: desc.sizes.as_ptr(),
                    strides: desc.strides.as_ptr(),
                }
            }));
        place.descs = Some(outputs.descs);
        TlResult {
            outs: place.outs.as_ptr(),
            n: place.outs.len() as u32,
            reserved: 0,
        }
    })
}

fn kind(kind: OutKind) -> u32 {
    match kind {
        OutKind::New => out_kind::NEW,
        OutKind::Arg => out_kind::ARG,
        OutKind::Undefined => out_kind::UNDEFINED,
        OutKind::Take => out_kind::TAKE,
    }
}

fn index(index: Option<usize>) -> i32 {
    index.map_or(-1, |index| index as i32)
}
