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
        Command::Doctor => command::doctor::run(home, output),
        Command::Escape(escape) => command::escape::run(home, &escape, output),
        Command::Probe { command } => command::probe::run(command, output),
        Command::Init(init) => command::init::run(home, init, output),
        Command::Completions { shell } => command::generate::completions(shell),
        Command::Man => command::generate::man(),
    }
}

/// clap's own message; its code is ours, since `run` promises 125.
fn usage(error: &clap::Error) -> ExitCode {
    let asked_for = !error.use_stderr();
    // Printing help to a closed pipe is no failure.
    let _ = error.print();
    let words: Vec<_> = std::env::args_os().skip(1).take_while(|arg| arg != "--").collect();
    let is_run = words.iter().any(|arg| arg == "run" || arg == "replay")
        || words.windows(2).any(|w| w == ["session", "exec"] || w == ["mcp", "wrap"]);
    match (asked_for, is_run) {
        (true, _) => ExitCode::SUCCESS,
        (_, true) => ExitCode::from(RUN_FAILED),
        _ => ExitCode::from(USAGE),
    }
}
