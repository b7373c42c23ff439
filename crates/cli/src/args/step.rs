//! `cofferdam step`, as data.

use clap::{Args as ClapArgs, Subcommand};

#[derive(ClapArgs)]
pub(crate) struct Step {
    #[command(subcommand)]
    pub(crate) command: StepCommand,
}

#[derive(Subcommand)]
pub(crate) enum StepCommand {
    /// A step begins; prints its id
    Start {
        name: String,
        /// What it works on, as JSON
        #[arg(long, value_name = "JSON")]
        input: Option<String>,
        /// The step that it is part of
        #[arg(long, value_name = "ID")]
        parent: Option<String>,
        /// A name of your own for it [default: a new one]
        #[arg(long, value_name = "ID")]
        id: Option<String>,
    },
    /// A step is over
    End {
        /// As `start` printed it
        id: String,
        /// What came out, as JSON
        #[arg(long, value_name = "JSON")]
        output: Option<String>,
        /// What went wrong
        #[arg(long, value_name = "TEXT")]
        error: Option<String>,
    },
    /// One plan is given up for another
    Replan {
        name: String,
        /// What was known, as JSON
        #[arg(long, value_name = "JSON")]
        input: Option<String>,
        /// What is to be done now, as JSON
        #[arg(long, value_name = "JSON")]
        output: Option<String>,
        /// The step in which it was given up
        #[arg(long, value_name = "ID")]
        parent: Option<String>,
    },
}
