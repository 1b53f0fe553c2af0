//! Writes one module per operation and element type into a folder, to try a compiler on them:
//! `cargo run -p tpulab-stablehlo --example catalogue -- FOLDER`.

mod modules;

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("give a folder to write to")?);
    fs::create_dir_all(&folder)?;
    for (name, text) in modules::all()? {
        fs::write(folder.join(name).with_extension("mlir"), text)?;
    }
    Ok(())
}
