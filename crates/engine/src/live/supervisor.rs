//! The process that holds a user's sessions: takes orders for new ones, gives each a thread, and goes when there
//! is nothing left to hold.

use super::hands::Hands;
use super::holder;
use super::mail::Letter;
use super::operator::Operator;
use super::pool::{self, Kind, Order, Pool};
use super::promise::{Ordered, Promise};
use super::shelf::{self, Shelf};
use super::{Mailbox, register, snapshot};
use crate::Engine;
use crate::control::{Answers, Asked, Control, CreateAsked, Lines, Origin, Question, Reply};
use crate::egress::make_room;
use crate::error::EngineError;
use cofferdam_model::{Changes, LayerPlace, SessionId, SessionSpec};
use cofferdam_runtime::Begun;
use cofferdam_sys::descriptor;
use cofferdam_sys::signal::Signals;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub(super) const SOCKET: &str = "supervisor.sock";
pub(super) const LOCK: &str = "supervisor.lock";
/// So long it waits for another order when it holds nothing.
const QUIET: Duration = Duration::from_secs(30);
/// How often it looks whether that is so.
const LOOK: Duration = Duration::from_secs(1);

/// How often it looks after what others left.
const TIDY: Duration = Duration::from_secs(60);

/// So many sessions are made from one at once.
const FORKS: usize = 64;

/// A line for the log.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Default)]
pub(super) struct Books {
    pub(super) sessions: BTreeMap<SessionId, Mailbox>,
    /// The placeholders of each, by the variable that holds them inside.
    pub(super) placeholders: BTreeMap<SessionId, Vec<(String, String)>>,
    names: BTreeSet<String>,
    threads: Vec<JoinHandle<()>>,
    /// Orders that are being carried out.
    opening: usize,
    /// No more orders.
    closing: bool,
}

pub(super) struct Supervisor {
    pub(super) engine: Engine,
    pub(super) shelf: Shelf,
    pub(super) pool: Pool,
    pub(super) hands: Hands,
    books: Mutex<Books>,
    pub(super) log: Log,
}

impl Engine {
    /// Holds sessions until there are none. Returns at once where another process does so already.
    pub fn supervise(&self, log: Log) -> Result<(), EngineError> {
        let failed = |source| EngineError::Io { doing: "become the supervisor", source };
        leave_the_caller().map_err(|errno| failed(errno.into()))?;
        let Some(_lock) = self.lock()? else { return Ok(()) };
        let ending = [Signal::TERM, Signal::INT, Signal::HUP];
        let signals = Signals::listen(&ending).map_err(|errno| failed(errno.into()))?;
        let (supervisor, control) = self.take_orders(log)?;
        supervisor.wait(&signals, &control)?;
        drop(control);
        supervisor.leave();
        Ok(())
    }

    /// Puts the place in order, and opens the door at which sessions are ordered. Only for who has the lock.
    pub(super) fn take_orders(&self, log: Log) -> Result<(Arc<Supervisor>, Control), EngineError> {
        let failed = |source| EngineError::Io { doing: "become the supervisor", source };
        make_room();
        register::forget(&self.home);
        if let Ok(operator) = Operator::load(&self.home) {
            operator.prune_usage(&self.home);
        }
        self.housekeeping();
        let engine = Engine { home: self.home.clone() };
        let shelf = Shelf::new(self.home.clone());
        shelf.sweep();
        self.reap_marks();
        let (pool, hands, books) = (Pool::default(), Hands::default(), Mutex::default());
        let supervisor = Arc::new(Supervisor { engine, shelf, pool, hands, books, log });
        let dir = self.home.live_dir().map_err(failed)?;
        let control = Control::open_at(&dir, SOCKET, Arc::new(supervisor.clone())).map_err(failed)?;
        match pool::read_size(self) {
            0 => {}
            size => supervisor.open_pool(size),
        }
        Ok((supervisor, control))
    }

    /// The lock goes with the process, however that ends.
    pub(super) fn lock(&self) -> Result<Option<File>, EngineError> {
        let failed = |source| EngineError::Io { doing: "lock the supervisor's place", source };
        let path = self.home.live_dir().map_err(failed)?.join(LOCK);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(None),
            other => other.map_err(|errno| failed(errno.into()))?,
        }
        // For people, and for who wants to signal it.
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
        Ok(Some(file))
    }
}

/// Nothing of who started it stays with it.
fn leave_the_caller() -> Result<(), Errno> {
    descriptor::close_inherited()?;
    // A process group's leader cannot; it is one only if someone types the command by hand.
    let _ = rustix::process::setsid();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::chdir("/")
}

impl Supervisor {
    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until it is told to go, or has held nothing for a while.
    fn wait(self: &Arc<Self>, signals: &Signals, control: &Control) -> Result<(), EngineError> {
        let mut quiet_since = Instant::now();
        let mut tidied = Instant::now();
        loop {
            let mut set = [PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
            let look = Timespec::try_from(LOOK).ok();
            match rustix::event::poll(&mut set, look.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(EngineError::Io { doing: "wait for orders", source: errno.into() }),
            }
            // What could not be prepared is tried again.
            self.refill();
            if tidied.elapsed() > TIDY {
                self.engine.housekeeping();
                tidied = Instant::now();
            }
            let mut books = self.books();
            books.threads.retain(|thread| !thread.is_finished());
            let busy = !books.sessions.is_empty() || books.opening > 0 || control.connections() > 0;
            if busy || self.pool.size() > 0 {
                quiet_since = Instant::now();
            } else if quiet_since.elapsed() > QUIET {
                // Decided with the books in hand: whoever comes now is not answered, and starts another.
                books.closing = true;
                return Ok(());
            }
        }
    }

    /// Has one of our threads do this.
    pub(super) fn employ(&self, job: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let new = self.hands.give(Box::new(job))?;
        self.books().threads.extend(new);
        Ok(())
    }

    /// Ends every session in good order.
    pub(super) fn leave(&self) {
        self.pool.clear();
        self.hands.close();
        let mut books = self.books();
        books.closing = true;
        for mailbox in books.sessions.values() {
            let _ = mailbox.put(Letter::Goodbye);
        }
        let threads = std::mem::take(&mut books.threads);
        drop(books);
        threads.into_iter().for_each(|thread| drop(thread.join()));
        register::drop_spare(&self.engine.home);
    }

    pub(super) fn create(self: &Arc<Self>, asked: CreateAsked) -> Ordered {
        let (to, told) = sync_channel(1);
        self.order(asked, Promise::here(to));
        told.recv().unwrap_or_else(|_| Err(Reply::Refused("it could not be made".into())))
    }

    /// Has a session made. That it stands, or why not, is told by the thread that knows it, as soon as it does.
    fn order(self: &Arc<Self>, mut asked: CreateAsked, mut promise: Promise) {
        match self.admit(&mut asked) {
            Ok(operator) => self.begin(asked, operator, promise),
            Err(reply) => promise.keep(Err(reply)),
        }
    }

    /// Whether such a session may be made, and in which bounds. Its name is taken from then on.
    fn admit(&self, asked: &mut CreateAsked) -> Result<Operator, Reply> {
        let error = |error: EngineError| Reply::error(&error);
        let operator = Operator::load(&self.engine.home).map_err(error)?;
        if let Some(name) = &asked.snapshot {
            asked.from = Some(self.from(name, &mut asked.spec).map_err(error)?);
        }
        if asked.from.is_some() && !asked.spec.limits.bound_files() {
            // They are told and kept together with what lies on disk. Where there is a limit it stays where that holds.
            asked.spec.layer = LayerPlace::Disk;
        }
        asked.spec.check_place().map_err(|e| error(e.into()))?;
        if asked.spec.changes == Changes::Ask {
            return Err(error(EngineError::NobodyToAsk));
        }
        self.reserve(asked.spec.live.name.as_deref(), &operator)?;
        Ok(operator)
    }

    fn begin(self: &Arc<Self>, asked: CreateAsked, operator: Operator, promise: Promise) {
        let name = asked.spec.live.name.clone();
        let in_file = asked.spec.layer == LayerPlace::Disk && asked.spec.limits.bound_files();
        let kind = (asked.spec.image.is_none() && !in_file).then(|| Kind::of(&asked.spec));
        let (this, named) = (self.clone(), name.clone());
        let order: Order = Box::new(move |prepared| this.hold(asked, operator, named, prepared, promise));
        // What is prepared has the host's directories, and its scratch space in memory.
        let started = match kind.and_then(|kind| self.pool.claim(kind)) {
            // It waits for nothing else, and for this once.
            Some(to) => match to.send(order) {
                Ok(()) => Ok(()),
                Err(SendError(order)) => self.employ(move || order(None)),
            },
            None => self.employ(move || order(None)),
        };
        if let Err(error) = started {
            // Who waits for it was told when the order was dropped.
            name.iter().for_each(|name| _ = self.books().names.remove(name));
            (self.log)(&format!("no thread could be started for a session: {error}"));
        }
        // Another is begun a while later: whoever has claimed one goes first.
        self.refill();
    }

    /// An order from a connection is not under way any more.
    pub(super) fn carried_out(&self) {
        self.books().opening -= 1;
    }

    /// All of a session, on its own thread.
    fn hold(
        &self,
        asked: CreateAsked,
        operator: Operator,
        named: Option<String>,
        prepared: Option<Box<dyn Begun>>,
        mut promise: Promise,
    ) {
        let engine = Engine { home: self.engine.home.clone() };
        let mut session = None;
        let over = holder::hold(&engine, asked, operator, &self.shelf, prepared, |result| {
            if let Ok(opened) = &result {
                session = Some(opened.session.clone());
                let mut books = self.books();
                books.sessions.insert(opened.session.clone(), opened.mailbox.clone());
                books.placeholders.insert(opened.session.clone(), opened.placeholders.clone());
            }
            promise.keep(result.map(|opened| opened.session));
        });
        if let (Err(error), Some(session)) = (&over.result, &session) {
            (self.log)(&format!("session {session}: {error}"));
        }
        {
            let mut books = self.books();
            session.iter().for_each(|session| drop(books.sessions.remove(session)));
            session.iter().for_each(|session| drop(books.placeholders.remove(session)));
            named.iter().for_each(|name| _ = books.names.remove(name));
        }
        // Last of all: who waited for the end may use its name again.
        if let Some((to, reply)) = over.reply {
            to.send(reply);
        }
    }

    /// What a session over this work dir begins with, to have the files of a snapshot.
    fn from(&self, name: &str, spec: &mut SessionSpec) -> Result<Origin, EngineError> {
        let snapshot = shelf::find(&self.engine.home, name)?;
        let workdir = spec.workdir.clone().unwrap_or_default();
        snapshot::of_workdir(&snapshot, &workdir)?;
        let named = spec.image.as_deref().map(|name| self.engine.image(name)).transpose()?;
        match (&named, snapshot.image) {
            // It knows what it lies over.
            (None, Some(image)) => spec.image = Some(image.to_string()),
            (named, _) => snapshot::of_image(&snapshot, named.as_ref().map(|image| image.digest))?,
        }
        Ok(Origin { layers: snapshot.layers, since: snapshot.since })
    }

    /// Sessions that begin as this one is. What cannot be made whole is not made at all.
    pub(super) fn fork(
        self: &Arc<Self>,
        session: &SessionId,
        count: usize,
        by: String,
    ) -> Result<Vec<SessionId>, Reply> {
        if !(1..=FORKS).contains(&count) {
            return Err(Reply::Refused(format!("{count} forks at once: between 1 and {FORKS} can be made")));
        }
        let asked = self.mailbox(session)?.fork(count, by)?;
        // What all of them begin with is looked at by the first; the others find it so.
        let first = self.create(asked.clone())?;
        let (made, failed) = (Mutex::new(vec![first]), OnceLock::new());
        let left = AtomicUsize::new(count - 1);
        let one_less = |left: usize| left.checked_sub(1);
        let work = || {
            while failed.get().is_none()
                && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
            {
                match self.create(asked.clone()) {
                    Ok(session) => made.lock().unwrap_or_else(PoisonError::into_inner).push(session),
                    Err(reply) => _ = failed.set(reply),
                }
            }
        };
        let at_once = thread::available_parallelism().map_or(1, usize::from).min(count);
        thread::scope(|scope| {
            (1..at_once).for_each(|_| _ = scope.spawn(work));
            work();
        });
        let made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some(reply) = failed.into_inner() else { return Ok(made) };
        let ending = |session: &SessionId| self.books().sessions.get(session).cloned();
        for mailbox in made.iter().filter_map(ending) {
            let _ = mailbox.put(Letter::Goodbye);
        }
        Err(reply)
    }

    pub(super) fn mailbox(&self, session: &SessionId) -> Result<Mailbox, Reply> {
        let mailbox = self.books().sessions.get(session).cloned();
        mailbox.ok_or_else(|| Reply::error(&EngineError::NotLive(session.to_string())))
    }

    fn reserve(&self, name: Option<&str>, operator: &Operator) -> Result<(), Reply> {
        let mut books = self.books();
        if books.sessions.len() + books.opening > operator.most {
            let most = operator.most;
            return Err(Reply::Refused(format!(
                "there are {most} sessions, and the operator allows no more: end one with `cofferdam session kill`"
            )));
        }
        if name.is_some_and(|name| !books.names.insert(name.to_owned())) {
            let name = name.unwrap_or_default();
            return Err(Reply::Refused(format!("a session has the name `{name}` already: choose another")));
        }
        Ok(())
    }
}

/// Shared by the threads that answer.
impl Answers for Arc<Supervisor> {
    fn answer(&self, asked: Asked, connection: &mut Lines) -> Option<Reply> {
        {
            let mut books = self.books();
            if books.closing {
                return None;
            }
            books.opening += 1;
        }
        let done = match asked.question {
            Question::Create(create) => match connection.stream().try_clone() {
                Ok(asker) => {
                    self.order(*create, Promise::there(asker, self.clone()));
                    return None;
                }
                Err(error) => Err(Reply::Refused(error.to_string())),
            },
            Question::Fork { session, count } => {
                self.fork(&session, count, asked.by).map(|sessions| Reply::Forked { sessions })
            }
            Question::Archive { session, snapshot } => {
                let to = asked.descriptors.into_iter().next();
                self.archive(session, snapshot, asked.by, to).map(|cut| Reply::Done { cut })
            }
            Question::Unarchive { name } => {
                let from = asked.descriptors.into_iter().next();
                self.unarchive(&name, from).map(|()| Reply::Done { cut: 0 })
            }
            Question::Pool => Ok(Reply::Pool(Box::new(self.pool.info()))),
            Question::SetPool { size } => {
                let done = self.set_pool(size).map(|()| Reply::Done { cut: 0 });
                done.map_err(|error| Reply::error(&error))
            }
            Question::Forget { name } => {
                let done = self.shelf.remove(&name).map(|()| Reply::Done { cut: 0 });
                done.map_err(|error| Reply::error(&error))
            }
            _ => Err(Reply::Refused("the supervisor makes sessions: ask the session itself".into())),
        };
        self.carried_out();
        Some(done.unwrap_or_else(|reply| reply))
    }
}
