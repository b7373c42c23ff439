//! `cofferdam`: the one binary. A file per command; this one only finds it and turns its end into an exit code.

mod args;
mod ask;
mod command;
mod output;
mod progress;
mod story;

use args::{Args, Command};
use cofferdam_engine::Early;
use output::{Failure, Output};
use std::ffi::OsString;
use std::process::ExitCode;

/// What `run` answers for everything that is ours and not the command's.
const RUN_FAILED: u8 = 125;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    // Namespaces take as long to make as a command line takes to read.
    let early =
        if std::env::args_os().nth(1).is_some_and(|word| word == "run") { Early::begin() } else { None };
    let args = match args::parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    let output = Output::new(&args.global);
    let is_run = args.command.passes_code_through();
    match dispatch(args, early, &output) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let code = if is_run { RUN_FAILED } else { failure.code() };
            output.failure(&failure, code);
            ExitCode::from(code)
        }
    }
}

fn dispatch(args: Args, early: Option<Early>, output: &Output) -> Result<u8, Failure> {
    let home = args.global.home;
    match args.command {
        Command::Run(run) => command::run::run(home, run, early, output),
        Command::Replay(replay) => command::replay::run(home, replay, output),
        Command::Trace(trace) => command::trace::run(home, trace, output),
        Command::Key(key) => command::key::run(home, key, output),
        Command::Policy(policy) => command::policy::run(policy, output),
        Command::Secret(secret) => command::secret::run(home, secret, output),
        Command::Approve(approve) => command::approve::run(home, approve, output),
        Command::Session(session) => command::session::run(home, session, output),
        Command::Conflict { command } => command::conflict::run(home, command, output),
        Command::Pool { command } => command::pool::run(home, command, output),
        Command::Image { command } => command::image::run(home, command, output),
        Command::Volume { command } => command::volume::run(home, command, output),
        Command::Usage { session } => command::usage::run(home, session, output),
        Command::Mcp(mcp) => command::mcp::run(home, mcp, output),
        Command::Step(step) => command::step::run(step, output),
        Command::Serve(serve) => command::serve::run(home, serve, output),
        Command::Apikey { command } => command::apikey::run(home, command, output),
        Command::Tenant { command } => command::apikey::tenants(home, command, output),
        Command::Supervise => command::supervise::run(home),
        Command::VmCount { rounds } => command::machine::count(rounds),
        Command::VmLaunch { meeting } => command::machine::launch(&meeting),
        Command::Record(record) => command::record::run(home, record, output),
        Command::Gate(gate) => command::gate::run(home, *gate, output),
        Command::Compare(compare) => command::compare::run(home, compare, output),
        Command::Verify(verify) => command::verify::run(home, verify, output),
        Command::Eval(eval) => command::eval::run(&eval, output),
        Command::Doctor => command::doctor::run(home, output),
        Command::Escape(escape) => command::escape::run(home, &escape, output),
        Command::Probe { command } => command::probe::run(command, output),
        Command::Init(init) => command::init::run(home, init, output),
        Command::Completions { shell } => command::generate::completions(shell, output),
        Command::Man { command } => command::generate::man(&command, output),
    }
}

/// clap's own message; its code is ours, since `run` promises 125.
fn usage(error: &clap::Error) -> ExitCode {
    let asked_for = !error.use_stderr();
    let words: Vec<_> = std::env::args_os().skip(1).take_while(|arg| arg != "--").collect();
    let code = if passes_code_through(&words) { RUN_FAILED } else { USAGE };
    if !asked_for && words.iter().any(|word| word == "--json") {
        let text = error.render().to_string();
        let text = text.trim().trim_start_matches("error: ").to_owned();
        Output::for_programs().failure(&Failure::Usage(text), code);
    } else {
        // Printing help to a closed pipe is no failure.
        let _ = error.print();
    }
    if asked_for { ExitCode::SUCCESS } else { ExitCode::from(code) }
}

/// Which command is meant by a line that cannot be read: [`Command::passes_code_through`], by its first words.
fn passes_code_through(words: &[OsString]) -> bool {
    let mut named = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--home") => _ = words.next(),
            Some(word) if !word.starts_with('-') => named.push(word),
            _ => {}
        }
    }
    matches!(&*named, ["run" | "replay", ..] | ["session", "exec", ..] | ["mcp", "wrap", ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_commands_that_pass_a_code_through_answer_125() {
        let check = |line: &str, expected: bool| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(passes_code_through(&words), expected, "{line}");
        };
        check("run --nonesuch", true);
        check("--json --home /x run --nonesuch", true);
        check("--home=/x -q replay", true);
        check("session --json exec", true);
        check("mcp wrap", true);
        check("gate run --nonesuch", false);
        check("--home run trace", false);
        check("trace show run --nonesuch", false);
        check("session create exec", false);
        check("mcp pins --nonesuch", false);
    }
}
