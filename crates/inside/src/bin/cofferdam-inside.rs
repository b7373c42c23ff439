//! The program itself, which the machine's first process starts. What goes wrong is said on the console, and ends the
//! machine.

use std::process::ExitCode;

fn main() -> ExitCode {
    match cofferdam_inside::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let said = format!("cofferdam: {error}\n");
            let _ = rustix::io::write(rustix::stdio::stderr(), said.as_bytes());
            ExitCode::FAILURE
        }
    }
}
