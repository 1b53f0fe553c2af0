//! TPU generations: what a virtual device of each has. HBM limits are those libtpu's topologies report.

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chip {
    pub name: &'static str,
    aliases: &'static [&'static str],
    pub hbm_per_device: u64,
    pub devices_per_chip: u32,
}

const fn chip(
    name: &'static str,
    aliases: &'static [&'static str],
    hbm_per_device: u64,
    devices_per_chip: u32,
) -> Chip {
    Chip {
        name,
        aliases,
        hbm_per_device,
        devices_per_chip,
    }
}

static CHIPS: [Chip; 7] = [
    chip("v2", &["tpu v2"], 8_034_172_928, 2),
    chip("v3", &["tpu v3"], 16_624_107_520, 2),
    chip("v4", &["tpu v4"], 32_745_971_712, 2),
    chip(
        "v5e",
        &["v5litepod", "v5lite", "tpu v5 lite", "tpu v5e"],
        16_909_334_528,
        1,
    ),
    chip("v5p", &["v5", "tpu v5", "tpu v5p"], 102_786_660_352, 1),
    chip(
        "v6e",
        &["v6", "trillium", "tpu v6 lite", "tpu v6e"],
        33_546_041_344,
        1,
    ),
    chip(
        "v7x",
        &["v7", "tpu7x", "tpu7", "ironwood", "tpu v7x"],
        101_724_450_816,
        2,
    ),
];

pub(crate) static DEFAULT: &Chip = &CHIPS[5];

/// By canonical name or alias, whatever the case.
pub(crate) fn find(name: &str) -> Option<&'static Chip> {
    let name = name.trim().to_ascii_lowercase();
    CHIPS
        .iter()
        .find(|chip| chip.name == name || chip.aliases.contains(&name.as_str()))
}

pub(crate) fn names() -> String {
    CHIPS
        .iter()
        .map(|chip| chip.name)
        .collect::<Vec<_>>()
        .join(", ")
}
