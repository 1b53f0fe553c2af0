//! Loading plugins and opening clients.

mod common;

use std::path::Path;

use tpulab_pjrt::{Client, Error, OptionValue, Plugin};

#[test]
fn a_missing_file_is_a_load_error() {
    let path = Path::new("/nonexistent/plugin.so");
    let error = Plugin::load(path).unwrap_err();
    assert!(
        matches!(&error, Error::Load { path: named, .. } if named == path),
        "{error:?}"
    );
    assert!(error.to_string().contains("/nonexistent/plugin.so"));
}

#[test]
fn a_file_that_is_no_library_is_a_load_error() {
    let error = Plugin::load(Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/Cargo.toml"
    )))
    .unwrap_err();
    assert!(
        matches!(&error, Error::Load { reason, .. } if !reason.is_empty()),
        "{error:?}"
    );
}

#[test]
fn a_library_without_the_entry_point_is_not_a_plugin() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps
        .split_whitespace()
        .find(|word| word.contains("/libc.so"))
        .unwrap();
    let error = Plugin::load(Path::new(libc)).unwrap_err();
    assert!(matches!(error, Error::NotAPlugin { .. }), "{error:?}");
}

#[test]
fn a_plugin_loads_once_and_tells_its_version() {
    for path in common::plugin_paths() {
        let plugin = Plugin::load(&path).unwrap();
        assert!(std::ptr::eq(plugin, Plugin::load(&path).unwrap()));
        let (major, minor) = plugin.api_version();
        assert_eq!(major, 0);
        assert!(minor > 50, "{minor}");
        assert_eq!(plugin.path(), path.canonicalize().unwrap());
    }
}

#[test]
fn a_client_has_the_devices_asked_for() {
    for client in common::clients() {
        assert_eq!(client.platform_name(), "cpu");
        assert!(!client.platform_version().is_empty());
        assert_eq!(client.device_count(), common::DEVICES);
        let ids: Vec<i32> = client.devices().iter().map(|device| device.id).collect();
        assert_eq!(ids, (0..8).collect::<Vec<i32>>());
        assert_eq!(client.device_kind(7), "cpu");
        assert!(!client.device_description(7).is_empty());
        assert_eq!(client.device_kind(8), "");
    }
}

#[test]
fn two_clients_live_side_by_side() {
    for path in common::plugin_paths() {
        let plugin = Plugin::load(&path).unwrap();
        let first = common::client(plugin);
        let second = Client::create(plugin, &[("cpu_device_count", OptionValue::Int(2))]).unwrap();
        assert_eq!((first.device_count(), second.device_count()), (8, 2));
        assert_eq!(
            common::download(&common::upload(second, &[3.0], &[1], 1), 1),
            [3.0]
        );
    }
}
