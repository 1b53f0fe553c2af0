//! Compiles the C++ unit against the torch that is installed, without importing it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Prints torch's folder. `find_spec` of a top-level package does not run it.
const FIND_TORCH: &str = "\
import importlib.util
spec = importlib.util.find_spec('torch')
print(next(iter(spec.submodule_search_locations)) if spec and spec.submodule_search_locations else '')
";

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    println!("cargo::rerun-if-changed=cpp");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TORCH_DIR");
    println!("cargo::rerun-if-env-changed=TPULAB_PYTHON");
    let torch = torch_dir()?;
    let include = torch.join("include");
    // Another torch in the same place. A missing file would make every build run this again.
    let version = include.join("torch/headeronly/version.h");
    if version.is_file() {
        println!("cargo::rerun-if-changed={}", version.display());
    }

    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .opt_level(2)
        .file("cpp/bridge.cpp")
        .flag("-isystem")
        .flag(&include)
        .flag("-isystem")
        .flag(include.join("torch/csrc/api/include"))
        .flag("-fvisibility=hidden")
        // A false alarm of GCC about small vectors.
        .flag_if_supported("-Wno-maybe-uninitialized")
        .link_lib_modifier("+whole-archive")
        .try_compile("tpulab_bridge")
        .map_err(|error| {
            format!(
                "cpp/bridge.cpp does not compile against {}: {error}",
                torch.display()
            )
        })?;

    // No rpath: Python has loaded these two, by the same sonames, before it loads this library.
    println!(
        "cargo::rustc-link-search=native={}",
        torch.join("lib").display()
    );
    println!("cargo::rustc-link-lib=dylib=torch_cpu");
    println!("cargo::rustc-link-lib=dylib=c10");
    Ok(())
}

fn torch_dir() -> Result<PathBuf, String> {
    let (dir, source) = match env::var_os("TORCH_DIR") {
        Some(dir) => (PathBuf::from(dir), "TORCH_DIR".to_owned()),
        None => {
            let python = env::var("TPULAB_PYTHON").unwrap_or_else(|_| "python3".to_owned());
            (ask(&python)?, python)
        }
    };
    if has_headers(&dir) {
        Ok(dir)
    } else {
        Err(format!(
            "torch's headers are not in {:?} (from {source}). Install torch, then set TPULAB_PYTHON to its Python \
             or TORCH_DIR to the folder of the package torch",
            dir.display()
        ))
    }
}

fn has_headers(dir: &Path) -> bool {
    dir.join("include/ATen/ATen.h").is_file() && dir.join("lib").is_dir()
}

fn ask(python: &str) -> Result<PathBuf, String> {
    let output = Command::new(python)
        .args(["-c", FIND_TORCH])
        .output()
        .map_err(|error| {
            format!("cannot run {python} to find torch: {error}. Set TPULAB_PYTHON or TORCH_DIR")
        })?;
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !path.is_empty() {
        Ok(PathBuf::from(path))
    } else {
        Err(format!(
            "{python} has no package torch. Set TPULAB_PYTHON to a Python that has it, or TORCH_DIR"
        ))
    }
}
