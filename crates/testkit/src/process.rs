//! A process that does not outlive its test, and what it said.

use rustix::process::{Pid, Signal};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// What a test waits for at most. Nothing takes nearly as long, but machines may be busy.
pub const PATIENCE: Duration = Duration::from_secs(400);

/// How a process ended and what it wrote.
#[derive(Debug)]
pub struct Done {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Done {
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| -self.status.signal().unwrap_or(0))
    }

    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Fails with all there is to read if the code is another.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        let (out, err) = (self.out(), self.err());
        let cut = |text: &str| text.chars().take(4_000).collect::<String>();
        assert_eq!(self.code(), code, "exit code; stdout: {}\nstderr: {}", cut(&out), cut(&err));
        self
    }
}

/// A process under way.
pub struct Running {
    child: Child,
    stdout: Receiver<Vec<u8>>,
    stderr: Receiver<Vec<u8>>,
}

fn collect(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        // A pipe that breaks has given what it had.
        let _ = from.read_to_end(&mut all);
        let _ = send.send(all);
    });
    receive
}

impl Running {
    /// Starts a command, feeds it `input` (nothing: its input is empty), and collects its output.
    pub fn start(command: &mut Command, input: Option<Vec<u8>>) -> Self {
        command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        if let (Some(bytes), Some(mut stdin)) = (input, child.stdin.take()) {
            std::thread::spawn(move || stdin.write_all(&bytes));
        }
        let (stdout, stderr) = (collect(child.stdout.take().unwrap()), collect(child.stderr.take().unwrap()));
        Self { child, stdout, stderr }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ends it and tells what it said: for the message of a test that fails.
    pub fn said(&mut self) -> String {
        let ended = self.child.try_wait().unwrap();
        let _ = self.child.kill();
        let text = |from: &Receiver<Vec<u8>>| {
            String::from_utf8_lossy(&from.recv_timeout(PATIENCE).unwrap_or_default()).into_owned()
        };
        let how = ended.map_or("it ran until now".to_owned(), |status| format!("it had ended: {status}"));
        format!("{how}\nstdout: {}\nstderr: {}", text(&self.stdout), text(&self.stderr))
    }

    /// Waits for the end. A process that takes too long is killed and fails the test.
    #[track_caller]
    pub fn finish(mut self) -> Done {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break Some(status);
            }
            if started.elapsed() > PATIENCE {
                let _ = self.child.kill();
                break None;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let late = status.is_none();
        let status = status.unwrap_or_else(|| self.child.wait().unwrap());
        // Output that is held open by something left behind would never end.
        let stdout =
            self.stdout.recv_timeout(PATIENCE).expect("stdout is held open by a process left behind");
        let stderr =
            self.stderr.recv_timeout(PATIENCE).expect("stderr is held open by a process left behind");
        let done = Done { status, stdout, stderr };
        assert!(!late, "did not end in time; stdout: {}\nstderr: {}", done.out(), done.err());
        done
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn finish(command: &mut Command) -> Done {
    Running::start(command, None).finish()
}
