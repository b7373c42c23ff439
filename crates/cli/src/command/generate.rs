//! Shell completions and manual pages, made from the command line's own description.

use crate::args::Args;
use crate::output::{Failure, Output};
use clap::CommandFactory;

pub(crate) fn completions(shell: clap_complete::Shell, output: &Output) -> Result<u8, Failure> {
    // Into memory first: the generator takes a reader that has left for a mistake of its own.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "cofferdam", &mut text);
    output.data(&String::from_utf8_lossy(&text))?;
    Ok(0)
}

/// The page of the whole, or of the command that these words name.
pub(crate) fn man(words: &[String], output: &Output) -> Result<u8, Failure> {
    let mut whole = Args::command();
    // Names a page after all of its words, and gives it the options that every command has.
    whole.build();
    let mut command = &whole;
    for word in words {
        command = command.find_subcommand(word).ok_or_else(|| {
            let words = words.join(" ");
            Failure::Usage(format!("there is no command `{words}`; `cofferdam man` lists them"))
        })?;
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    output.data(&String::from_utf8_lossy(&text))?;
    Ok(0)
}
