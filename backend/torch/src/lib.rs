//! Device "tpu" in PyTorch: the C++ unit in `cpp/` registers it with torch, this side answers from the engine.
//!
//! A failure crosses as a return code with its text in [`error`]; C++ turns it into the exception a user sees. No panic
//! leaves an exported function.

mod abi;
mod arguments;
mod call;
mod error;
mod handle;
mod loader;
mod outputs;
mod storage;
