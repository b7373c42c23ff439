//! `cargo xtask`: what a developer or a CI machine runs on this repository. It holds the rules that prose
//! cannot hold (`tidy`), the one test command (`test`), the main job end to end (`demo`) and the
//! measurements (`bench`). It is never part of the product, and nothing in the product may depend on it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a developer's tool talks to the terminal")]

mod bench;
mod command;
mod demo;
mod dist;
mod escape;
mod eval;
mod packages;
mod test;
mod tidy;
mod venv;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Checks, tests, demonstrates and measures Cofferdam")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Hold the invariants of ARCHITECTURE.md: every violation on its own line, exit 1 if there is one
    Tidy(tidy::Args),
    /// Install what the tests need, then fmt, clippy, tidy, all tests, the escape score and cargo-deny
    Test(test::Args),
    /// Build the released binary and run an example agent in a sandbox, with its trace
    Demo(demo::Args),
    /// Build the binary as it is shipped: target/dist/cofferdam
    Dist,
    /// Find out which functions a run enters, for `dist` to put next to each other: writes xtask/order.txt
    Order,
    /// Judge labelled runs and print how often the comparison is right
    Eval(eval::Args),
    /// Measure ours and its peers in one interleaved run
    #[command(subcommand)]
    Bench(bench::Bench),
}

/// Green, red, or a reason why neither can be told.
type Outcome = Result<bool, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    if let Some(linked) = dist::link::role() {
        return linked;
    }
    let outcome = match Cli::parse().task {
        Task::Tidy(args) => tidy::main(&args),
        Task::Test(args) => test::main(&args),
        Task::Demo(args) => demo::main(&args),
        Task::Dist => dist::main(),
        Task::Order => dist::order::main(),
        Task::Eval(args) => eval::main(&args),
        Task::Bench(bench) => bench::main(&bench),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}
