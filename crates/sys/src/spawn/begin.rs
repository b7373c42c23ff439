//! A program that is being started, and what is known of it. The child uses memory of ours until it has become the
//! program or has ended, and says so by a pipe of which it alone has the other end: only when that is closed is the memory
//! given back.

use super::child::{self, Begun};
use super::{Command, FIRST_OTHER, Failure, Step, prepared};
use crate::signal::Mask;
use crate::syscall::number;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::NonNull;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

/// For what the child does before it is its program: a few small frames, of an unoptimised build as well.
const STACK: usize = 32 * 1024;

/// Whether a child has become its program, as far as it is known.
pub struct Beginning {
    status: OwnedFd,
    failure: Option<Failure>,
    /// Not where the child has a copy of everything.
    memory: Option<Memory>,
}

/// The child's as well as ours. Leaked unless it is known that the child has left it.
struct Memory {
    begun: NonNull<Begun>,
    stack: ManuallyDrop<Vec<MaybeUninit<Line>>>,
}

/// A stack begins at a multiple of this.
#[repr(C, align(16))]
struct Line {
    _bytes: [u8; 16],
}

impl Memory {
    fn of(begun: Begun) -> Self {
        let stack = Vec::with_capacity(STACK / size_of::<Line>());
        Self { begun: NonNull::from(Box::leak(Box::new(begun))), stack: ManuallyDrop::new(stack) }
    }

    /// # Safety
    /// The child has left it, or there is none.
    unsafe fn give_back(self) {
        drop(ManuallyDrop::into_inner(self.stack));
        // SAFETY: `of` has made it from a box, once, and nobody else uses it any more.
        drop(unsafe { Box::from_raw(self.begun.as_ptr()) });
    }

    /// One after the last: stacks grow down.
    fn top(&mut self) -> *mut u8 {
        self.stack.spare_capacity_mut().as_mut_ptr_range().end.cast()
    }
}

/// Starts the child and waits for nothing. Whether it is its program by now is to be asked; the caller reaps it either way.
pub fn begin(command: Command<'_>) -> Result<(Pid, Beginning), Failure> {
    let (job, _open) = prepared(command)?;
    let no_pipe = |errno| Failure { step: Step::Stdio, errno };
    let (status, mut theirs) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(no_pipe)?;
    if theirs.as_raw_fd() < FIRST_OTHER {
        theirs = rustix::io::fcntl_dupfd_cloexec(&theirs, FIRST_OTHER).map_err(no_pipe)?;
    }
    let mut memory = Memory::of(Begun { job, status: theirs.as_raw_fd() });
    match start(&mut memory) {
        Ok(pid) => Ok((pid, Beginning { status, failure: None, memory: Some(memory) })),
        Err(errno) => {
            // SAFETY: nobody was started.
            unsafe { memory.give_back() };
            Err(Failure { step: Step::Fork, errno })
        }
    }
}

impl Beginning {
    /// Of a process that `fork` has made and that will turn into a program: a failure is told to the other end of this pipe,
    /// which blocks nobody.
    pub const fn of(status: OwnedFd) -> Self {
        Self { status, failure: None, memory: None }
    }

    /// Nothing is known yet, it runs or ran, or why it does not.
    pub fn hear(&mut self) -> Option<Result<(), Failure>> {
        loop {
            let mut word = [0; WORD];
            match rustix::io::read(&self.status, &mut word) {
                Ok(0) => {
                    if let Some(memory) = self.memory.take() {
                        // SAFETY: the child alone had the other end, so it has become its program or ended.
                        unsafe { memory.give_back() };
                    }
                    return Some(self.failure.map_or(Ok(()), Err));
                }
                Ok(_) => {
                    let failure = Failure::from(word);
                    if self.memory.is_none() {
                        return Some(Err(failure));
                    }
                    // It says so with the last of its strength, and ends.
                    self.failure = Some(failure);
                }
                Err(Errno::INTR) => (),
                Err(_) => return None,
            }
        }
    }

    pub(super) fn wait(mut self) -> Result<(), Failure> {
        loop {
            if let Some(heard) = self.hear() {
                return heard;
            }
            let _ = poll(&mut [PollFd::new(&self.status, PollFlags::IN)], None);
        }
    }
}

impl AsFd for Beginning {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.status.as_fd()
    }
}

/// What a failure looks like on its pipe: the step and the number of the error.
const WORD: usize = 3;
const STEPS: [Step; 7] =
    [Step::Fork, Step::Session, Step::Terminal, Step::Stdio, Step::User, Step::Directory, Step::Program];

impl Failure {
    /// To who has the other end of this pipe.
    pub fn tell(self, status: BorrowedFd<'_>) {
        let step = STEPS.iter().position(|step| *step == self.step).unwrap_or_default();
        let [low, high] = (self.errno.raw_os_error() as u16).to_le_bytes();
        let _ = rustix::io::write(status, &[step as u8, low, high]);
    }
}

impl From<[u8; WORD]> for Failure {
    fn from([step, low, high]: [u8; WORD]) -> Self {
        let step = STEPS.get(usize::from(step)).copied().unwrap_or(Step::Program);
        Self { step, errno: Errno::from_raw_os_error(u16::from_le_bytes([low, high]).into()) }
    }
}

fn start(memory: &mut Memory) -> Result<Pid, Errno> {
    // No handler of ours may run in the child while it shares our memory.
    let before = Mask::ALL.set()?;
    let top = memory.top();
    // SAFETY: what it may use is kept until the child has left it, see `Beginning`.
    let forked = unsafe { clone_sharing_memory(memory.begun, top) };
    // With all signals blocked we would only be deaf to some of them; the child is there.
    let _ = before.set();
    forked
}

/// Returns in the parent only, and at once.
///
/// # Safety
/// Until the child has become its program or has ended, the job stays as it is and the stack below `top` is nobody
/// else's.
unsafe fn clone_sharing_memory(begun: NonNull<Begun>, top: *mut u8) -> Result<Pid, Errno> {
    const CLONE_VM: usize = 0x100;
    const SIGCHLD: usize = 17;
    let flags = CLONE_VM | SIGCHLD;
    let begun = begun.as_ptr();
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the child begins on a stack of its own and never returns from `run`, so this frame is left once, by the
    // parent. What the child changes of the shared memory is that stack and the job's cells, which nobody else uses.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call {run}",
            "ud2",
            "2:",
            run = sym child::run,
            inlateout("rax") number::CLONE => result,
            in("rdi") flags, in("rsi") top, in("rdx") 0, in("r10") 0, in("r8") 0,
            in("r12") begun,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x0, x20",
            "bl {run}",
            "brk 1",
            "2:",
            run = sym child::run,
            in("x8") number::CLONE,
            inlateout("x0") flags => result,
            in("x1") top, in("x2") 0, in("x3") 0, in("x4") 0,
            in("x20") begun,
            lateout("x30") _,
        );
    }
    let errno = || Errno::from_raw_os_error(-(result as i32));
    Pid::from_raw(result as i32).filter(|_| result > 0).ok_or_else(errno)
}
