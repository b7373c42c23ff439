//! What the guest may say when. One small account per exec; a guest that follows the rules cannot make any of
//! them grow, and one that breaks them is found out by the first frame that does.

use super::{Event, ExecId, HostError};
use crate::wire::{
    EXECS_MAX, Exec, Exited, FrameError, Header, Kind, Outcome, PLEAS_MAX, Stdin, Stream, ToHost, WINDOW,
};
use alloc::vec::Vec;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("a frame that is none: {0}")]
    Frame(#[from] FrameError),
    #[error("{0:?} before it said hello")]
    BeforeHello(Kind),
    #[error("it said hello twice")]
    HelloTwice,
    #[error("{kind:?} for exec {id}, which is not running")]
    UnknownExec { kind: Kind, id: u32 },
    #[error("exec {id} started twice")]
    StartedTwice { id: u32 },
    #[error("{kind:?} for exec {id}, which has not started")]
    NotStarted { kind: Kind, id: u32 },
    #[error("{kind:?} for {stream:?} of exec {id}, which has no such stream or has ended it")]
    NoStream { kind: Kind, id: u32, stream: Stream },
    #[error("{bytes} bytes of {stream:?} from exec {id} where {credit} were allowed")]
    BeyondCredit { id: u32, stream: Stream, bytes: u32, credit: u32 },
    #[error("permission for {bytes} bytes of input that exec {id} was never sent")]
    FalseCredit { id: u32, bytes: u32 },
    #[error("exec {id} exited with {outcome:?}, which cannot be at this point")]
    FalseExit { id: u32, outcome: Outcome },
    #[error("exec {id} was stopped, which nobody asked to be told")]
    NoStop { id: u32 },
    #[error("plea {0}, where nobody was invited to ask, or more than may ask at once")]
    Uninvited(u32),
    #[error("plea {0} after one with that number or a higher one")]
    PleaTwice(u32),
}

/// Bytes from the guest: `credit` may come, `owed` were consumed and not yet granted again, and what is
/// between their sum and the window is in the caller's hands.
struct Output {
    stream: Stream,
    open: bool,
    credit: u32,
    owed: u32,
}

/// Bytes to the guest.
struct Input {
    stream: Stream,
    /// The guest has not said that nobody reads them.
    open: bool,
    /// This side has not ended them.
    writing: bool,
    credit: u32,
}

struct Account {
    id: u32,
    started: bool,
    /// Who sits at its terminal can be stopped with it.
    stops: bool,
    input: Option<Input>,
    outputs: Vec<Output>,
}

#[derive(Default)]
pub(super) struct Rules {
    greeted: bool,
    accounts: Vec<Account>,
    /// How many pleas may be open.
    invited: usize,
    /// Those that are.
    pleas: Vec<u32>,
    last_plea: u32,
}

impl Rules {
    pub(super) fn has_room(&self) -> bool {
        self.accounts.len() < EXECS_MAX
    }

    pub(super) fn begin(&mut self, id: u32, exec: &Exec<'_>) {
        let output = |stream| Output { stream, open: true, credit: WINDOW, owed: 0 };
        let input = |stream| Input { stream, open: true, writing: true, credit: WINDOW };
        let (input, outputs) = match (exec.tty, exec.stdin) {
            (Some(_), _) => (Some(input(Stream::Tty)), Vec::from([output(Stream::Tty)])),
            (None, stdin) => (
                (stdin == Stdin::Piped).then(|| input(Stream::Stdin)),
                Vec::from([output(Stream::Stdout), output(Stream::Stderr)]),
            ),
        };
        let stops = exec.tty.is_some_and(|tty| tty.stops);
        self.accounts.push(Account { id, started: false, stops, input, outputs });
    }

    pub(super) fn begin_task(&mut self, id: u32) {
        let input = Some(Input { stream: Stream::Stdin, open: true, writing: true, credit: WINDOW });
        let output = Output { stream: Stream::Stdout, open: true, credit: WINDOW, owed: 0 };
        self.accounts.push(Account { id, started: false, stops: false, input, outputs: Vec::from([output]) });
    }

    /// Its bytes pass between others: there is nothing to give credit for.
    pub(super) fn begin_elsewhere(&mut self, id: u32) {
        self.accounts.push(Account { id, started: false, stops: false, input: None, outputs: Vec::new() });
    }

    pub(super) fn invite(&mut self, most: u16) {
        self.invited = usize::from(most).min(PLEAS_MAX);
    }

    /// Numbers only go up, so that none is answered for another.
    pub(super) fn plea(&mut self, number: u32) -> Result<(), Violation> {
        if !self.greeted {
            return Err(Violation::BeforeHello(Kind::Plea));
        }
        if self.pleas.len() >= self.invited {
            return Err(Violation::Uninvited(number));
        }
        if number <= self.last_plea {
            return Err(Violation::PleaTwice(number));
        }
        self.last_plea = number;
        self.pleas.push(number);
        Ok(())
    }

    pub(super) fn has_plea(&self, number: u32) -> bool {
        self.pleas.contains(&number)
    }

    /// Whether it was open.
    pub(super) fn close_plea(&mut self, number: u32) -> bool {
        let before = self.pleas.len();
        self.pleas.retain(|open| *open != number);
        self.pleas.len() < before
    }

    pub(super) fn knows(&self, id: u32) -> bool {
        self.accounts.iter().any(|account| account.id == id)
    }

    fn writable(&self, id: u32) -> Option<&Input> {
        let input = self.accounts.iter().find(|account| account.id == id)?.input.as_ref()?;
        (input.open && input.writing).then_some(input)
    }

    fn writable_mut(&mut self, id: u32) -> Option<&mut Input> {
        let input = self.accounts.iter_mut().find(|account| account.id == id)?.input.as_mut()?;
        (input.open && input.writing).then_some(input)
    }

    pub(super) fn input_stream(&self, id: u32) -> Option<Stream> {
        self.writable(id).map(|input| input.stream)
    }

    pub(super) fn input_credit(&self, id: u32) -> usize {
        self.writable(id).map_or(0, |input| input.credit as usize)
    }

    pub(super) fn sent(&mut self, id: u32, bytes: u32) {
        if let Some(input) = self.writable_mut(id) {
            input.credit = input.credit.saturating_sub(bytes);
        }
    }

    pub(super) fn end_input(&mut self, id: u32) -> Option<Stream> {
        let input = self.writable_mut(id)?;
        input.writing = false;
        Some(input.stream)
    }

    /// What to grant now, if it is worth a frame. More than was delivered is not believed.
    pub(super) fn consumed(&mut self, id: u32, stream: Stream, bytes: usize) -> Option<u32> {
        let account = self.accounts.iter_mut().find(|account| account.id == id)?;
        let output = account.outputs.iter_mut().find(|output| output.stream == stream && output.open)?;
        let held = WINDOW - output.credit - output.owed;
        output.owed += held.min(u32::try_from(bytes).unwrap_or(u32::MAX));
        if output.owed < WINDOW / 2 {
            return None;
        }
        let grant = core::mem::take(&mut output.owed);
        output.credit += grant;
        Some(grant)
    }

    fn account(&mut self, kind: Kind, id: u32) -> Result<&mut Account, Violation> {
        if !self.greeted {
            return Err(Violation::BeforeHello(kind));
        }
        self.accounts.iter_mut().find(|a| a.id == id).ok_or(Violation::UnknownExec { kind, id })
    }

    /// `opens` is a new frame's whole length; the pieces after its first were judged with it.
    pub(super) fn data(&mut self, id: u32, stream: Stream, opens: Option<u32>) -> Result<(), Violation> {
        let Some(bytes) = opens else { return Ok(()) };
        let output = self.account(Kind::Data, id)?.output(Kind::Data, stream)?;
        let credit = output.credit;
        output.credit =
            credit.checked_sub(bytes).ok_or(Violation::BeyondCredit { id, stream, bytes, credit })?;
        Ok(())
    }

    pub(super) fn message(&mut self, header: Header, message: ToHost) -> Result<Event<'static>, HostError> {
        let Header { kind, id, stream, .. } = header;
        Ok(match (message, stream) {
            (ToHost::Fault(fault), _) => return Err(HostError::Fault(fault)),
            (ToHost::Hello(hello), _) => {
                if core::mem::replace(&mut self.greeted, true) {
                    return Err(Violation::HelloTwice.into());
                }
                Event::Ready { pid: hello.pid }
            }
            (ToHost::Started(started), _) => {
                if core::mem::replace(&mut self.account(kind, id)?.started, true) {
                    return Err(Violation::StartedTwice { id }.into());
                }
                Event::Started { id: ExecId(id), pid: started.pid }
            }
            (ToHost::Stopped(_), _) => self.account(kind, id)?.stopped()?,
            (ToHost::Eof, Some(stream)) => self.account(kind, id)?.eof(stream)?,
            (ToHost::Window(window), Some(stream)) => self.account(kind, id)?.window(stream, window.bytes)?,
            (ToHost::Exited(exited), _) => self.exited(id, exited)?,
            // The header has a stream, or it would not have been taken.
            (ToHost::Eof | ToHost::Window(_), None) => {
                return Err(Violation::Frame(FrameError::Stream { kind, stream: 0 }).into());
            }
        })
    }

    /// Something that ran has ended its streams and says how it ended; something that did not, why.
    fn exited(&mut self, id: u32, exited: Exited) -> Result<Event<'static>, Violation> {
        let account = self.account(Kind::Exited, id)?;
        let open = account.outputs.iter().any(|output| output.open);
        let possible = match exited.outcome {
            Outcome::Code(_) => account.started && !open,
            Outcome::Signal { number, .. } => account.started && !open && matches!(number, 1..=64),
            Outcome::NotFound | Outcome::NotExecutable { .. } | Outcome::Failed { .. } => !account.started,
        };
        if !possible {
            return Err(Violation::FalseExit { id, outcome: exited.outcome });
        }
        self.accounts.retain(|account| account.id != id);
        Ok(Event::Exited { id: ExecId(id), exited })
    }
}

impl Account {
    fn running(&mut self, kind: Kind) -> Result<&mut Self, Violation> {
        if self.started { Ok(self) } else { Err(Violation::NotStarted { kind, id: self.id }) }
    }

    /// Only what was asked for: whoever sits there is stopped for it.
    fn stopped(&mut self) -> Result<Event<'static>, Violation> {
        let account = self.running(Kind::Stopped)?;
        let id = account.id;
        if account.stops { Ok(Event::Stopped { id: ExecId(id) }) } else { Err(Violation::NoStop { id }) }
    }

    fn output(&mut self, kind: Kind, stream: Stream) -> Result<&mut Output, Violation> {
        let account = self.running(kind)?;
        let id = account.id;
        let mut outputs = account.outputs.iter_mut();
        outputs.find(|o| o.stream == stream && o.open).ok_or(Violation::NoStream { kind, id, stream })
    }

    fn input(&mut self, kind: Kind, stream: Stream) -> Result<&mut Input, Violation> {
        let account = self.running(kind)?;
        let id = account.id;
        let input = account.input.as_mut().filter(|input| input.stream == stream && input.open);
        input.ok_or(Violation::NoStream { kind, id, stream })
    }

    /// For `Stdin` nobody reads it any more; a terminal ends as the output it also is.
    fn eof(&mut self, stream: Stream) -> Result<Event<'static>, Violation> {
        let id = ExecId(self.id);
        if stream == Stream::Stdin {
            self.input(Kind::Eof, stream)?.open = false;
            return Ok(Event::InputClosed { id });
        }
        self.output(Kind::Eof, stream)?.open = false;
        Ok(Event::OutputEnd { id, stream })
    }

    /// Only what was sent can have been read.
    fn window(&mut self, stream: Stream, bytes: u32) -> Result<Event<'static>, Violation> {
        let id = self.id;
        let input = self.input(Kind::Window, stream)?;
        let credit = input.credit.checked_add(bytes).filter(|credit| bytes > 0 && *credit <= WINDOW);
        input.credit = credit.ok_or(Violation::FalseCredit { id, bytes })?;
        Ok(Event::InputReady { id: ExecId(id) })
    }
}
