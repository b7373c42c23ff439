//! Where a program may be, in the order in which a shell would look.

use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::CStr;

/// What execvp searches when there is no PATH.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

/// A name with a slash is a path: it is not searched for.
pub(super) fn is_path(program: &CStr) -> bool {
    program.to_bytes().contains(&b'/')
}

/// Relative ones are meant from the child's directory. An empty name is nowhere.
pub(super) fn candidates(program: &CStr, env: &[CString]) -> Vec<CString> {
    let name = program.to_bytes();
    if name.is_empty() {
        return Vec::new();
    }
    if is_path(program) {
        return Vec::from([CString::from(program)]);
    }
    let path = env.iter().find_map(|v| v.to_bytes().strip_prefix(b"PATH=")).unwrap_or(DEFAULT_PATH);
    path.split(|byte| *byte == b':').filter_map(|dir| join(dir, name)).collect()
}

/// An empty element of PATH is the current directory.
fn join(dir: &[u8], name: &[u8]) -> Option<CString> {
    let dir = if dir.is_empty() { b".".as_slice() } else { dir };
    CString::new([dir, b"/", name].concat()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(program: &CStr, env: &[&CStr], expected: &[&str]) {
        let env: Vec<CString> = env.iter().map(|v| CString::from(*v)).collect();
        let found: Vec<String> =
            candidates(program, &env).into_iter().map(|c| c.into_string().unwrap()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn as_a_shell_looks() {
        check(c"ls", &[c"PATH=/a:/b"], &["/a/ls", "/b/ls"]);
        check(c"ls", &[c"A=1", c"PATH=/a", c"PATH=/b"], &["/a/ls"]);
        check(c"ls", &[c"PATH=:/b:bin"], &["./ls", "/b/ls", "bin/ls"]);
        check(c"ls", &[c"PATH="], &["./ls"]);
        check(c"ls", &[], &["/bin/ls", "/usr/bin/ls"]);
        check(c"./ls", &[c"PATH=/a"], &["./ls"]);
        check(c"", &[c"PATH=/a"], &[]);
    }
}
