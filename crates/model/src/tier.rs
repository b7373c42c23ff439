//! The kinds of sandbox, and what "at least as strong as" means between them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    Process,
    Container,
    Gvisor,
    Microvm,
    Wasm,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an isolation tier: use process, container, gvisor, microvm or wasm")]
pub struct TierError(String);

impl Tier {
    pub const ALL: [Self; 5] = [Self::Process, Self::Container, Self::Gvisor, Self::Microvm, Self::Wasm];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Container => "container",
            Self::Gvisor => "gvisor",
            Self::Microvm => "microvm",
            Self::Wasm => "wasm",
        }
    }

    /// Whether a sandbox of this tier satisfies a demand for `floor`. Process and container share the host's
    /// kernel in the same way; wasm shares no system-call surface, but runs no programs either.
    pub const fn meets(self, floor: Self) -> bool {
        self.rank() >= floor.rank()
    }

    const fn rank(self) -> u8 {
        match self {
            Self::Process | Self::Container => 1,
            Self::Gvisor => 2,
            Self::Microvm | Self::Wasm => 3,
        }
    }
}

impl FromStr for Tier {
    type Err = TierError;
    fn from_str(text: &str) -> Result<Self, TierError> {
        Self::ALL
            .into_iter()
            .find(|t| t.name() == text)
            .ok_or_else(|| TierError(text.chars().take(40).collect()))
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_kernel_does_not_meet_a_demand_for_an_own_one() {
        assert!(!Tier::Process.meets(Tier::Microvm));
        assert!(!Tier::Container.meets(Tier::Gvisor));
        assert!(Tier::Microvm.meets(Tier::Gvisor));
        assert!(Tier::Process.meets(Tier::Process));
    }
}
