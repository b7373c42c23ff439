//! What the supervisor holds while a command runs: resident and proportional set, as the kernel counts them.

use super::contenders::Ground;
use super::stats;
use serde::Serialize;
use std::io;
use std::process::Stdio;
use std::time::Duration;

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Memory {
    /// Kibibytes, all three.
    pub(crate) resident: f64,
    pub(crate) proportional: f64,
    pub(crate) peak: f64,
}

const RUNS: usize = 3;

/// Medians of a few runs, each looked at when the command has settled.
pub(crate) fn measure(ground: &Ground) -> io::Result<Option<Memory>> {
    let mut looks = Vec::new();
    for _ in 0..RUNS {
        let argv = ground.cofferdam(&["--", "sleep", "2"]);
        let mut child = ground.command(&argv).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        std::thread::sleep(Duration::from_secs(1));
        let proc = format!("/proc/{}", child.id());
        let status = std::fs::read_to_string(format!("{proc}/status")).unwrap_or_default();
        let rollup = std::fs::read_to_string(format!("{proc}/smaps_rollup")).unwrap_or_default();
        looks.extend(look(&status, &rollup));
        child.wait()?;
    }
    let of = |field: fn(&Memory) -> f64| stats::median(&looks.iter().map(field).collect::<Vec<_>>());
    let all = (of(|m| m.resident), of(|m| m.proportional), of(|m| m.peak));
    Ok(match all {
        (Some(resident), Some(proportional), Some(peak)) => Some(Memory { resident, proportional, peak }),
        _ => None,
    })
}

fn look(status: &str, rollup: &str) -> Option<Memory> {
    Some(Memory {
        resident: kib(rollup, "Rss:")?,
        proportional: kib(rollup, "Pss:")?,
        peak: kib(status, "VmHWM:")?,
    })
}

pub(super) fn kib(text: &str, field: &str) -> Option<f64> {
    let value = text.lines().find_map(|line| line.strip_prefix(field))?;
    value.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let memory =
            look("Name:\tx\nVmHWM:\t    9000 kB\n", "00-ff ---p\nRss:   8192 kB\nPss:   4096 kB\n").unwrap();
        assert_eq!((memory.resident, memory.proportional, memory.peak), (8192.0, 4096.0, 9000.0));
        assert!(look("", "Rss: many kB").is_none());
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(kib(&own, "VmHWM:").unwrap() > 0.0);
    }
}
