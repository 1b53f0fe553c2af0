//! Compiling, running and storing programs.

mod common;

use std::time::Duration;

use common::{add, clients, donating_add, download, fast, run, upload};
use smallvec::SmallVec;
use tpulab_pjrt::{CompileOptions, Error, ErrorCode, OptionValue};

const A: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
const B: [f32; 6] = [10.0; 6];
const SUM: [f32; 6] = [11.0, 12.0, 13.0, 14.0, 15.0, 16.0];

#[test]
fn one_portable_program_runs_on_every_device() {
    for client in clients() {
        for options in [CompileOptions::default(), fast()] {
            let program = client.compile(&add(), &options).unwrap();
            assert_eq!(program.num_outputs(), 1);
            for device in [0, 5] {
                let a = upload(client, &A, &[2, 3], device);
                let b = upload(client, &B, &[2, 3], device);
                let sum = run(&program, device, &[&a, &b]);
                assert_eq!(download(&sum, 6), SUM);
                // The sum can only meet an argument of its own device.
                assert_eq!(download(&run(&program, device, &[&sum, &b]), 6)[0], 21.0);
            }
        }
    }
}

#[test]
fn results_are_row_major_whatever_made_them() {
    let text = common::module(
        &["tensor<2x3xf32>"],
        &[],
        r#"%r = "stablehlo.transpose"(%0) <{permutation = array<i64: 1, 0>}> : (tensor<2x3xf32>) -> tensor<3x2xf32>"#,
        "%r",
        "tensor<3x2xf32>",
    );
    for client in clients() {
        for options in [CompileOptions::default(), fast()] {
            let a = upload(client, &A, &[2, 3], 1);
            let turned = run(&client.compile(&text, &options).unwrap(), 1, &[&a]);
            assert_eq!(download(&turned, 6), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        }
    }
}

#[test]
fn reading_leaves_a_buffer_donatable() {
    for client in clients() {
        let program = client
            .compile(&donating_add(), &CompileOptions::default())
            .unwrap();
        let a = upload(client, &A, &[2, 3], 0);
        let b = upload(client, &B, &[2, 3], 0);
        assert_eq!(download(&a, 6), A);
        run(&program, 0, &[&a, &b]);
        assert!(a.is_deleted().unwrap());
    }
}

#[test]
fn outputs_are_appended() {
    let ty = "tensor<2x3xf32>";
    let text = common::module(&[ty], &[], "", "%0, %0", &format!("{ty}, {ty}")).replace(
        "-> tensor<2x3xf32>, tensor<2x3xf32>,",
        "-> (tensor<2x3xf32>, tensor<2x3xf32>),",
    );
    for client in clients() {
        let program = client.compile(&text, &CompileOptions::default()).unwrap();
        let a = upload(client, &A, &[2, 3], 0);
        let mut outputs = SmallVec::new();
        for _ in 0..2 {
            program
                .execute(0, &[a.as_raw()], &[], &mut outputs)
                .unwrap();
        }
        assert_eq!(outputs.len(), 4);
        for output in &outputs {
            assert_eq!(download(output, 6), A);
        }
    }
}

#[test]
fn compile_errors_keep_the_compilers_words() {
    for client in clients() {
        let error = client
            .compile("module { nonsense }", &CompileOptions::default())
            .unwrap_err();
        let Error::Pjrt {
            message,
            call: "PJRT_Client_Compile",
            ..
        } = &error
        else {
            panic!("{error:?}")
        };
        assert!(message.contains("nonsense"), "{message}");

        let wrong = add().replace(
            "(%0, %1) : (tensor<2x3xf32>, tensor<2x3xf32>)",
            "(%0) : (tensor<2x3xf32>)",
        );
        let error = client
            .compile(&wrong, &CompileOptions::default())
            .unwrap_err();
        assert!(error.to_string().contains("stablehlo.add"), "{error}");
    }
}

#[test]
fn unknown_overrides_are_refused() {
    for client in clients() {
        let overrides = vec![("xla_no_such_flag".to_owned(), OptionValue::Bool(true))];
        let error = client
            .compile(
                &add(),
                &CompileOptions {
                    overrides,
                    ..fast()
                },
            )
            .unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::InvalidArgument), "{error}");
        assert!(error.to_string().contains("xla_no_such_flag"), "{error}");
    }
}

#[test]
fn wrong_arguments_are_errors() {
    for client in clients() {
        let program = client.compile(&add(), &CompileOptions::default()).unwrap();
        let a = upload(client, &A, &[2, 3], 0);
        let mut outputs = SmallVec::new();
        let error = program
            .execute(0, &[a.as_raw()], &[], &mut outputs)
            .unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::InvalidArgument), "{error}");
        let error = program
            .execute(8, &[a.as_raw(), a.as_raw()], &[], &mut outputs)
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
        let elsewhere = upload(client, &A, &[2, 3], 3);
        let error = program
            .execute(0, &[a.as_raw(), elsewhere.as_raw()], &[], &mut outputs)
            .unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::InvalidArgument), "{error}");
        assert!(outputs.is_empty());
    }
}

#[test]
fn a_donated_argument_is_gone() {
    for client in clients() {
        let program = client
            .compile(&donating_add(), &CompileOptions::default())
            .unwrap();
        let a = upload(client, &A, &[2, 3], 5);
        let b = upload(client, &B, &[2, 3], 5);
        let sum = run(&program, 5, &[&a, &b]);
        assert_eq!(download(&sum, 6), SUM);

        assert!(a.is_deleted().unwrap());
        assert!(!b.is_deleted().unwrap());
        let mut outputs = SmallVec::new();
        let error = program
            .execute(5, &[a.as_raw(), b.as_raw()], &[], &mut outputs)
            .unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::InvalidArgument), "{error}");
        assert!(a.copy_to_host(&mut [0; 24]).unwrap_err().code().is_some());
        assert!(a.wait().is_err());
    }
}

#[test]
fn a_non_donatable_argument_stays() {
    for client in clients() {
        let program = client
            .compile(&donating_add(), &CompileOptions::default())
            .unwrap();
        let a = upload(client, &A, &[2, 3], 0);
        let b = upload(client, &B, &[2, 3], 0);
        let mut outputs = SmallVec::new();
        program
            .execute(0, &[a.as_raw(), b.as_raw()], &[0], &mut outputs)
            .unwrap();
        assert_eq!(download(&outputs[0], 6), SUM);
        assert!(!a.is_deleted().unwrap());
        assert_eq!(download(&a, 6), A);
    }
}

#[test]
fn inputs_may_be_dropped_while_a_program_reads_them() {
    let ty = "tensor<512x512xf32>";
    let dot = format!(
        r#"%r = "stablehlo.dot_general"(%0, %0) <{{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}}> : ({ty}, {ty}) -> {ty}"#
    );
    for client in clients() {
        let program = client
            .compile(
                &common::module(&[ty], &[], &dot, "%r", ty),
                &CompileOptions::default(),
            )
            .unwrap();
        let ones = vec![1.0; 512 * 512];
        let products: Vec<_> = (0..8)
            .map(|device| {
                let a = upload(client, &ones, &[512, 512], device);
                run(&program, device, &[&a])
            })
            .collect();
        drop(program);
        for product in &products {
            assert!(
                download(product, 512 * 512)
                    .iter()
                    .all(|&value| value == 512.0)
            );
        }
    }
}

#[test]
fn stored_programs_run_again() {
    for client in clients() {
        for options in [CompileOptions::default(), fast()] {
            let program = client.compile(&add(), &options).unwrap();
            let bytes = program.serialize().unwrap();
            assert!(!bytes.is_empty());
            drop(program);
            let loaded = client.deserialize(&bytes).unwrap();
            assert_eq!(loaded.num_outputs(), 1);
            for device in [0, 5] {
                let a = upload(client, &A, &[2, 3], device);
                let b = upload(client, &B, &[2, 3], device);
                assert_eq!(download(&run(&loaded, device, &[&a, &b]), 6), SUM);
            }
        }
        assert!(
            client
                .deserialize(b"not a program")
                .unwrap_err()
                .code()
                .is_some()
        );
    }
}

#[test]
fn the_compilers_plan_can_be_read() {
    for client in clients() {
        let program = client
            .compile(&donating_add(), &CompileOptions::default())
            .unwrap();
        let stats = program.memory_stats().unwrap();
        assert_eq!((stats.argument, stats.output, stats.alias), (48, 24, 24));
        let hlo = program.optimized_hlo().unwrap();
        assert!(hlo.windows(4).any(|window| window == b"main"));
    }
}

#[test]
fn a_raw_chain_takes_time() {
    for client in clients() {
        let program = client.compile(&add(), &CompileOptions::default()).unwrap();
        let a = upload(client, &A, &[2, 3], 4);
        let time = program.raw_chain(4, &a, 1000).unwrap();
        assert!(
            time > Duration::ZERO && time < Duration::from_secs(10),
            "{time:?}"
        );
        assert_eq!(
            program.raw_chain(8, &a, 1).unwrap_err().to_string(),
            "device index 8 is out of range: the client has 8 devices"
        );
    }
}

#[test]
fn programs_compile_and_run_on_many_threads() {
    for client in clients() {
        std::thread::scope(|scope| {
            for device in 0..4 {
                scope.spawn(move || {
                    let program = client.compile(&add(), &fast()).unwrap();
                    for _ in 0..200 {
                        let a = upload(client, &A, &[2, 3], device);
                        let sum = run(&program, device, &[&a, &a]);
                        assert_eq!(download(&sum, 6)[5], 12.0);
                    }
                });
            }
        });
    }
}
