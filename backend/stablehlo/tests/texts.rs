//! The text of every kind of operation.

#[path = "../examples/catalogue/modules.rs"]
mod modules;

use tpulab_stablehlo::DType;

#[test]
fn samples() {
    for (name, text) in modules::samples().unwrap() {
        insta::assert_snapshot!(name, text);
    }
}

#[test]
fn unary_on_one_line_each() {
    let lines = operations("unary_", &[DType::F32, DType::C64, DType::I32]);
    insta::assert_snapshot!(lines);
}

#[test]
fn binary_on_one_line_each() {
    let lines = operations("binary_", &[DType::F32, DType::U8, DType::Bool]);
    insta::assert_snapshot!(lines);
}

#[test]
fn every_operation_takes_some_type() {
    let modules = modules::all().unwrap();
    let there = |prefix: &str| modules.iter().any(|(name, _)| name.starts_with(prefix));
    for op in modules::UNARY {
        assert!(there(&format!("unary_{op:?}_").to_lowercase()), "{op:?}");
    }
    for op in modules::BINARY {
        assert!(there(&format!("binary_{op:?}_").to_lowercase()), "{op:?}");
    }
}

#[test]
fn values_are_named_once() {
    for (name, text) in modules::all().unwrap() {
        let mut ids: Vec<&str> = definitions(&text).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all, "{name}");
    }
}

/// The lines that apply the operation, for these element types.
fn operations(prefix: &str, dtypes: &[DType]) -> String {
    let mut lines = Vec::new();
    for (name, text) in modules::all().expect("the catalogue") {
        let suffix = name.rsplit_once('_').map_or("", |parts| parts.1);
        if name.starts_with(prefix) && dtypes.iter().any(|dtype| dtype.name() == suffix) {
            lines.extend(
                text.lines()
                    .filter(|line| line.contains(" = "))
                    .map(str::trim)
                    .map(str::to_owned),
            );
        }
    }
    lines.join("\n")
}

/// Names on the left of `=` and of arguments.
fn definitions(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| {
        let arguments = line
            .split("(%")
            .nth(1)
            .filter(|_| line.contains("@main") || line.contains("^bb0"));
        let results = line.split_once(" = \"").map(|(left, _)| left.trim());
        let arguments = arguments
            .into_iter()
            .flat_map(|list| list.split('%'))
            .filter_map(|item| item.split_once(':').map(|(id, _)| id));
        let results = results
            .into_iter()
            .flat_map(|list| list.split(", "))
            .map(|id| id.trim_start_matches('%'));
        arguments.chain(results)
    })
}
