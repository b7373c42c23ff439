//! `cofferdam pool`, `cofferdam volume` and `cofferdam image`: what is kept for sessions that are yet to be; and
//! `cofferdam conflict`, what is kept of those that were.

use clap::{Args, Subcommand};
use cofferdam_model::{Bytes, ImageName, VolumeName};
use std::path::PathBuf;

#[derive(Subcommand)]
pub(crate) enum PoolCommand {
    /// Tell what is prepared
    Ls,
    /// Keep so many of each kind that is asked for; 0 for none
    Set { size: usize },
}

#[derive(Subcommand)]
pub(crate) enum ConflictCommand {
    /// List the commits that left something out
    Ls,
    /// Tell what one left out, and why; with a path, print the inside's version of that file
    Show {
        /// A name, the beginning of one, or `latest`
        name: String,
        /// In the work dir
        path: Option<PathBuf>,
    },
    /// Show what would change in the work dir if the inside's versions were taken
    Diff {
        /// A name, the beginning of one, or `latest`
        name: String,
        /// Only these [default: all]
        paths: Vec<PathBuf>,
    },
    /// Put the inside's versions into the work dir where nothing stands in their place: exit 1 where something does
    Take {
        /// A name, the beginning of one, or `latest`
        name: String,
        /// Only these [default: all]
        paths: Vec<PathBuf>,
        /// Into this directory, which is there, and not into the work dir
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
        /// Replace what stands in their place
        #[arg(long)]
        over: bool,
    },
    /// Remove what is kept of a commit
    Rm {
        /// Names, beginnings of names, or `latest`
        #[arg(required = true)]
        names: Vec<String>,
    },
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

#[derive(Subcommand)]
pub(crate) enum ImageCommand {
    /// Take one in from a directory, an archive or a registry: verified, unpacked, named
    Import(Box<ImageImport>),
    /// List them
    Ls,
    /// Tell of one: what it runs, and what of it was left out
    Show {
        /// A name, a digest, or the beginning of one
        image: String,
    },
    /// Remove a name, and with the last one the image; not while a session or a snapshot has it
    Rm {
        /// A name, a digest, or the beginning of one
        image: String,
    },
}

#[derive(Args)]
pub(crate) struct ImageImport {
    /// An OCI layout, an OCI or Docker archive, or docker://HOST[:PORT]/REPO[:TAG|@DIGEST]
    pub(crate) from: String,
    /// What to call it [default: after where it is from]
    #[arg(long)]
    pub(crate) name: Option<ImageName>,
    /// Which of several that are there, by its name or tag
    #[arg(long = "ref", value_name = "REF")]
    pub(crate) wanted: Option<String>,
    /// Most bytes of its files, all together [default: 16G]
    #[arg(long, value_name = "SIZE")]
    pub(crate) most: Option<Bytes>,
    /// A file with USER:PASSWORD for the registry
    #[arg(long, value_name = "FILE")]
    pub(crate) login_file: Option<PathBuf>,
}
