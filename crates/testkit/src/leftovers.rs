//! What a session may have left on the host.

use std::fs;
use std::path::{Path, PathBuf};

/// Processes whose command line holds `marker`, as `pid: command line`.
pub fn processes_with(marker: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        // One that is only waiting to be reaped has no command line.
        if line.contains(marker) {
            found.push(format!("{pid}: {line}"));
        }
    }
    found
}

/// Control groups of a session, wherever they are mounted.
pub fn groups_of(session: &str) -> Vec<PathBuf> {
    let name = format!("cofferdam-{session}");
    let mut found = Vec::new();
    search(Path::new("/sys/fs/cgroup"), &name, 6, &mut found);
    found
}

fn search(dir: &Path, name: &str, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name() == name {
            found.push(entry.path());
        } else if depth > 0 {
            search(&entry.path(), name, depth - 1, found);
        }
    }
}

/// Mount points at or below a directory, in the namespace of the test.
pub fn mounts_below(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = text.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|point| Path::new(point).starts_with(dir)).map(str::to_owned).collect()
}
