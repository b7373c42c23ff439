//! `cargo xtask eval`: how well the comparison judges, on labelled data that lies beside the checkout and is no part
//! of it. It prints the tables of docs/accuracy.md; it never fails because a number is bad.

use crate::{command, workspace};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the data lies; see docs/accuracy.md for what it is
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Only these parts: differ, verdict, taint, claims, curve, ground
    parts: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
enum EvalError {
    #[error("`{0}` holds no data: give `--data DIR`; docs/accuracy.md says where it comes from")]
    NoData(PathBuf),
}

/// The file by which a directory of data is known.
const MARK: &str = "agentdojo-dev.jsonl.zst";

pub(crate) fn main(args: &Args) -> crate::Outcome {
    let root = workspace::root();
    let data = args.data.clone().unwrap_or_else(|| beside(&root));
    if !data.join(MARK).is_file() {
        return Err(EvalError::NoData(data).into());
    }
    let target = workspace::metadata(&root)?.target_directory.join("eval");
    let mut cargo = command::cargo();
    cargo
        .current_dir(root.join("bench/eval"))
        .args(["run", "--release", "--quiet", "--target-dir"])
        .arg(target);
    cargo.arg("--").arg(data.canonicalize()?).args(&args.parts);
    Ok(command::status(&mut cargo)?.success())
}

fn beside(root: &Path) -> PathBuf {
    root.parent().unwrap_or(root).join("shared/data")
}
