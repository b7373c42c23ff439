//! How well the comparison judges, on labelled data of others: one table, each number with its n and its 95 %
//! interval. `cargo xtask eval` runs it; docs/accuracy.md says what the rows mean.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a developer's tool talks to the terminal")]

mod claims;
mod curve;
mod data;
mod differ;
mod dump;
mod ground;
mod open;
mod speed;
mod stats;
mod swap;
mod table;
mod taint;
mod verdict;

use data::Data;
use std::process::ExitCode;
use table::Table;

type Part = (&'static str, fn(&Data) -> Table);

const PARTS: &[Part] = &[
    ("differ", differ::run),
    ("verdict", verdict::run),
    ("taint", taint::run),
    ("claims", claims::run),
    ("curve", curve::run),
    ("ground", ground::run),
];

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(dir) = args.next() else {
        eprintln!("eval: the directory of the data is missing: run `cargo xtask eval --data DIR`");
        return ExitCode::from(2);
    };
    let wanted: Vec<String> = args.collect();
    if dir == "speed" {
        return speed(wanted.first().map(std::path::Path::new));
    }
    if dir == "speed-memory" {
        println!("{}", speed::memory(wanted.first().and_then(|n| n.parse().ok()).unwrap_or(0)));
        return ExitCode::SUCCESS;
    }
    let data = match Data::load(std::path::Path::new(&dir)) {
        Ok(data) => data,
        Err(error) => {
            eprintln!("eval: {error}");
            return ExitCode::from(2);
        }
    };
    let chosen = PARTS.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| w == name));
    for (name, run) in chosen {
        let begun = std::time::Instant::now();
        let table = run(&data);
        println!("## {name} ({:.1} s)\n\n{table}", begun.elapsed().as_secs_f64());
    }
    ExitCode::SUCCESS
}

/// Times only; with a file, also writes the pairs there for others to be timed on.
fn speed(pairs: Option<&std::path::Path>) -> ExitCode {
    if let Some(Err(error)) = pairs.map(|path| std::fs::write(path, speed::pairs().to_string())) {
        eprintln!("eval: the pairs cannot be written: {error}");
        return ExitCode::from(2);
    }
    println!("{}", speed::run());
    ExitCode::SUCCESS
}
