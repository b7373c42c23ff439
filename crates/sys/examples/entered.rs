//! Which functions a program enters: `entered ADDRESSES OUT PROGRAM ARG…`. A trap stands at each address until somebody
//! comes by, so that every function costs its program one stop, and what is written is in the order of first entries.
//! It follows whatever shares the program's memory or has a copy of it, and lets go of whoever executes another one.
//! For `cargo xtask order`, and for programs with fixed addresses on x86_64; it knows nothing of names.

#[cfg(not(target_arch = "x86_64"))]
fn main() -> std::io::Result<()> {
    Err(std::io::Error::other("a trap is one byte on x86_64 alone; run this there"))
}

#[cfg(target_arch = "x86_64")]
fn main() -> Result<std::process::ExitCode, Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let (Some(addresses), Some(out), Some(program)) = (words.next(), words.next(), words.next()) else {
        return Err("usage: entered ADDRESSES OUT PROGRAM ARG…".into());
    };
    let addresses = std::fs::read_to_string(addresses)?;
    let addresses =
        addresses.lines().map(|line| u64::from_str_radix(line, 16)).collect::<Result<Vec<_>, _>>()?;
    let (entered, code) = trap::watch(std::process::Command::new(program).args(words), &addresses)?;
    std::fs::write(out, entered.iter().map(|address| format!("{address:x}\n")).collect::<String>())?;
    Ok(code.into())
}

#[cfg(target_arch = "x86_64")]
mod trap {
    use std::collections::HashMap;
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    const INT3: u8 = 0xCC;

    /// The addresses that were come by, and the code that the program ended with.
    pub(crate) fn watch(program: &mut Command, addresses: &[u64]) -> io::Result<(Vec<u64>, u8)> {
        // SAFETY: between fork and exec only one system call is made, on no data.
        unsafe { program.pre_exec(|| ask(libc::PTRACE_TRACEME, 0, 0, 0)) };
        #[allow(clippy::zombie_processes, reason = "it is waited for below, with all that it starts")]
        let pid = program.spawn()?.id() as i32;
        // It has executed, and stands before its first instruction.
        wait(pid)?;
        let options = libc::PTRACE_O_EXITKILL
            | libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACEEXEC;
        ask(libc::PTRACE_SETOPTIONS, pid, 0, options as usize)?;
        let traps = set(pid, addresses)?;
        ask(libc::PTRACE_CONT, pid, 0, 0)?;
        follow(pid, &traps)
    }

    /// Sets the traps; what stood in their places.
    fn set(pid: i32, addresses: &[u64]) -> io::Result<HashMap<u64, u8>> {
        let memory = memory(pid)?;
        let mut before = HashMap::new();
        for &address in addresses {
            let mut byte = [0];
            memory.read_exact_at(&mut byte, address)?;
            memory.write_all_at(&[INT3], address)?;
            before.entry(address).or_insert(byte[0]);
        }
        Ok(before)
    }

    fn follow(program: i32, traps: &HashMap<u64, u8>) -> io::Result<(Vec<u64>, u8)> {
        let (mut entered, mut code) = (Vec::new(), 0);
        loop {
            let (pid, status) = match wait(-1) {
                Ok(told) => told,
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok((entered, code)),
                Err(error) => return Err(error),
            };
            if !libc::WIFSTOPPED(status) {
                if pid == program {
                    code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) as u8 } else { u8::MAX };
                }
                continue;
            }
            let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
            let answered = match (signal, event) {
                (libc::SIGTRAP, libc::PTRACE_EVENT_EXEC) => ask(libc::PTRACE_DETACH, pid, 0, 0),
                (libc::SIGTRAP, 0) => match passed(pid, traps)? {
                    Some(address) => {
                        entered.push(address);
                        ask(libc::PTRACE_CONT, pid, 0, 0)
                    }
                    None => ask(libc::PTRACE_CONT, pid, 0, libc::SIGTRAP as usize),
                },
                // What follows a child that has just begun, and what tells of one.
                (libc::SIGSTOP | libc::SIGTRAP, _) => ask(libc::PTRACE_CONT, pid, 0, 0),
                (signal, _) => ask(libc::PTRACE_CONT, pid, 0, signal as usize),
            };
            match answered {
                // Killed while it stood.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                other => other?,
            }
        }
    }

    /// Takes the trap away that this one has run into, and puts it back to where it stood.
    fn passed(pid: i32, traps: &HashMap<u64, u8>) -> io::Result<Option<u64>> {
        // SAFETY: all zeroes are a value of this plain structure of numbers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        ask(libc::PTRACE_GETREGS, pid, 0, (&raw mut registers) as usize)?;
        let address = registers.rip.wrapping_sub(1);
        let Some(&byte) = traps.get(&address) else { return Ok(None) };
        memory(pid)?.write_all_at(&[byte], address)?;
        registers.rip = address;
        ask(libc::PTRACE_SETREGS, pid, 0, (&raw const registers) as usize)?;
        Ok(Some(address))
    }

    fn memory(pid: i32) -> io::Result<File> {
        File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))
    }

    fn wait(pid: i32) -> io::Result<(i32, i32)> {
        let mut status = 0;
        loop {
            // SAFETY: the status is ours and lives through the call.
            let told = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
            match io::Error::last_os_error() {
                _ if told >= 0 => return Ok((told, status)),
                error if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }

    fn ask(what: libc::c_uint, pid: i32, address: usize, data: usize) -> io::Result<()> {
        // SAFETY: what is asked here reads or writes at most the registers that the caller holds.
        match unsafe { libc::ptrace(what, pid, address, data) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}
