//! Shell completions and the manual page, made from the command line's own description.

use crate::args::Args;
use crate::output::Failure;
use clap::CommandFactory;
use std::io;

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<u8, Failure> {
    clap_complete::generate(shell, &mut Args::command(), "cofferdam", &mut io::stdout());
    Ok(0)
}

pub(crate) fn man() -> Result<u8, Failure> {
    clap_mangen::Man::new(Args::command()).render(&mut io::stdout())?;
    Ok(0)
}
