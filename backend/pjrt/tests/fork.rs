//! A forked child has no plugin threads, so it gets errors rather than hangs.
#![expect(unsafe_code, reason = "fork, waitpid")]

mod common;

use common::{add, clients, upload};
use smallvec::SmallVec;
use tpulab_pjrt::{CompileOptions, Error, Plugin, forked};

#[test]
fn a_forked_child_gets_errors_and_drops_do_nothing() {
    for client in clients() {
        let program = client.compile(&add(), &CompileOptions::default()).unwrap();
        let a = upload(client, &[1.0; 6], &[2, 3], 0);
        assert!(!forked());

        // SAFETY: the child only calls into this crate, which touches no lock of another thread, and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_forked = |result: Result<(), Error>| matches!(result, Err(Error::Forked));
            let mut outputs = SmallVec::new();
            let all = forked()
                && is_forked(program.execute(0, &[a.as_raw(), a.as_raw()], &[], &mut outputs))
                && is_forked(a.copy_to_host(&mut [0; 24]))
                && is_forked(a.wait())
                && is_forked(client.compile("", &CompileOptions::default()).map(drop))
                && is_forked(Plugin::load(client.plugin().path()).map(drop));
            drop(a);
            drop(program);
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(if all { 17 } else { 1 }) };
        }
        assert!(child > 0, "fork failed");
        let mut status = 0;
        // SAFETY: `status` lives through the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "the child died: {status:#x}");
        assert_eq!(libc::WEXITSTATUS(status), 17);

        assert!(!forked());
        assert_eq!(
            common::download(&common::run(&program, 0, &[&a, &a]), 6),
            [2.0; 6]
        );
    }
}
