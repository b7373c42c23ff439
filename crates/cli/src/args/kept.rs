//! `cofferdam pool` and `cofferdam volume`: what is kept for sessions that are yet to be.

use clap::Subcommand;
use cofferdam_model::VolumeName;

#[derive(Subcommand)]
pub(crate) enum PoolCommand {
    /// Tell what is prepared
    Ls,
    /// Keep so many of each kind that is asked for; 0 for none
    Set { size: usize },
}

#[derive(Subcommand)]
pub(crate) enum VolumeCommand {
    /// Make an empty one
    Create {
        /// NAME, or OWNER/NAME for one of someone's own
        name: VolumeName,
    },
    /// List them, with what they hold
    Ls,
    /// Tell of one
    Show {
        /// NAME or OWNER/NAME
        name: VolumeName,
    },
    /// Remove one that no session uses, with all that is in it
    Rm {
        /// NAME or OWNER/NAME
        name: VolumeName,
    },
}
