//! Moving bytes to devices and back.

mod common;

use common::{clients, download, upload};
use tpulab_pjrt::{ElementType, Error};

const VALUES: [f32; 6] = [1.0, -2.0, 3.5, f32::INFINITY, 0.0, 6.0];

#[test]
fn bytes_come_back_in_row_major_order() {
    for client in clients() {
        for device in [0, 5] {
            let buffer = upload(client, &VALUES, &[2, 3], device);
            buffer.wait().unwrap();
            assert!(buffer.is_ready().unwrap());
            assert_eq!(buffer.byte_size().unwrap(), 24);
            assert_eq!(download(&buffer, 6), VALUES);
        }
    }
}

#[test]
fn scalars_and_empty_arrays_travel() {
    for client in clients() {
        assert_eq!(download(&upload(client, &[7.0], &[], 0), 1), [7.0]);
        let empty = upload(client, &[], &[0, 4], 3);
        assert_eq!(download(&empty, 0), [0f32; 0]);
    }
}

#[test]
fn every_element_type_travels() {
    use ElementType::*;
    for client in clients() {
        for element in [
            Pred, S8, S16, S32, S64, U8, U16, U32, U64, F16, F32, F64, BF16, C64, C128,
        ] {
            let bytes: Vec<u8> = (0..4 * element.size())
                .map(|i| u8::try_from(i % 2).unwrap())
                .collect();
            let buffer = client.buffer_from_host(&bytes, element, &[4], 1).unwrap();
            let mut back = vec![9; bytes.len()];
            buffer.copy_to_host(&mut back).unwrap();
            assert_eq!(back, bytes, "{element:?}");
        }
    }
}

#[test]
fn the_source_may_change_after_the_upload() {
    for client in clients() {
        // Small and large, because plugins copy small arrays at once and large ones on another thread.
        for count in [16usize, 1 << 22] {
            let mut bytes = common::bytes_of(&vec![1.0; count]);
            let dims = [i64::try_from(count).unwrap()];
            let buffer = client
                .buffer_from_host(&bytes, ElementType::F32, &dims, 0)
                .unwrap();
            bytes.fill(0xff);
            assert!(download(&buffer, count).iter().all(|&value| value == 1.0));
        }
    }
}

#[test]
fn a_download_is_a_copy() {
    for client in clients() {
        let buffer = upload(client, &VALUES, &[6], 0);
        let mut bytes = vec![0; 24];
        buffer.copy_to_host(&mut bytes).unwrap();
        bytes.fill(0);
        assert_eq!(download(&buffer, 6), VALUES);
    }
}

#[test]
fn wrong_sizes_are_refused() {
    for client in clients() {
        let error = client
            .buffer_from_host(&[0; 23], ElementType::F32, &[2, 3], 0)
            .unwrap_err();
        assert!(
            matches!(
                error,
                Error::HostSize {
                    expected: 24,
                    given: 23,
                    ..
                }
            ),
            "{error:?}"
        );
        let error = client
            .buffer_from_host(&[], ElementType::F32, &[-1], 0)
            .unwrap_err();
        assert!(matches!(error, Error::Dims { .. }), "{error:?}");
        let error = client
            .buffer_from_host(&[0; 4], ElementType::F32, &[1], 8)
            .unwrap_err();
        assert!(
            matches!(
                error,
                Error::Device {
                    device: 8,
                    count: 8
                }
            ),
            "{error:?}"
        );

        let error = upload(client, &VALUES, &[6], 0)
            .copy_to_host(&mut [0; 8])
            .unwrap_err();
        assert!(error.code().is_some(), "{error:?}");
    }
}

#[test]
fn copies_between_devices_are_independent() {
    for client in clients() {
        let source = upload(client, &VALUES, &[2, 3], 0);
        let copy = source.copy_to_device(&client, 6).unwrap();
        drop(source);
        copy.wait().unwrap();
        assert_eq!(download(&copy, 6), VALUES);
        assert!(matches!(
            copy.copy_to_device(&client, 9),
            Err(Error::Device {
                device: 9,
                count: 8
            })
        ));
    }
}

#[test]
fn buffers_move_between_threads() {
    for client in clients() {
        let buffer = upload(client, &VALUES, &[6], 2);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(download(&buffer, 6), VALUES));
            }
        });
        std::thread::spawn(move || drop(buffer)).join().unwrap();
    }
}
