//! Serves the host, question by question, until it is gone.

use crate::export;
use crate::mark::Mark;
use crate::port::{Port, Ports};
use crate::prepare;
use crate::rehearse::{self, Ahead};
use crate::wire::{
    Ask, Clock, FROM_HOST, Frame, HEARD, Identity, Note, Renewal, Tell, VERSION, receive, send,
};
use cofferdam_model::RawPath;
use cofferdam_runtime::{Heard, RuntimeError, Sandbox, ShownFile, Witness};
use cofferdam_runtime_process::Channels;
use cofferdam_sys::machine::{Home, Pool};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The names of the machine's ports: the guest's channel, what is said about the machine, connections, and what is
/// told of system calls.
pub const GUEST: &str = "guest";
pub const HOUSE: &str = "house";
pub const NET: &str = "net";
pub const NOTES: &str = "notes";

/// And of its disks.
pub const SYSTEM: &str = "system";
pub const PROGRAMS: &str = "programs";
pub const SESSION: &str = "session";

/// The order in which a VMM has them, where it gives them no names.
pub const DISKS: [&str; 3] = [SYSTEM, PROGRAMS, SESSION];

/// Where layers that lie beneath are on the session's disk.
pub const BASE: &str = ".cofferdam/base";

/// For the guest to read what is there.
const QUIET: Duration = Duration::from_secs(2);

const SHOWN: &str = "/run/shown";
pub(crate) const LAYERS: &str = "/run/layers";
pub(crate) const STAGING: &str = "/run/staging";
pub(crate) const RANGES: &str = "/run/ranges";

/// Serves the host until it is gone.
pub fn serve() -> Result<(), RuntimeError> {
    let failed = |doing: &str| RuntimeError::io(doing.to_owned());
    prepare::root().map_err(failed("make the machine's root"))?;
    prepare::groups().map_err(failed("mount the control groups"))?;
    for name in ["root", "scratch", "lower"] {
        let path = Path::new(STAGING).join(name);
        std::fs::create_dir_all(&path).map_err(RuntimeError::io(format!("make {}", path.display())))?;
    }
    let mut ports = Ports::new().map_err(failed("listen to the host"))?;
    let mut house = ports.open(HOUSE).map_err(failed("open the port to the host"))?.file;
    let guest = ports.open(GUEST).map_err(failed("open the port of the guest"))?;
    let notes = ports.open(NOTES).map_err(failed("open the port of system calls"))?.file;
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    send(&mut house, &Tell::Booted { version: VERSION, kernel }).map_err(failed("speak to the host"))?;
    let channel = Channel { port: guest, mark: Arc::default() };
    let teller = Arc::new(Teller(Mutex::new(notes)));
    let mut inside = Inside {
        house,
        ports,
        channel,
        teller,
        ahead: Vec::new(),
        understudy: None,
        made: None,
        room: 0,
        host: String::new(),
        renewed: Vec::new(),
        own: Own {
            home: Home::of_this_thread()
                .map_err(io::Error::from)
                .map_err(failed("find our own namespaces"))?,
            pool: Pool::open().map_err(io::Error::from).map_err(failed("open the pool of random numbers"))?,
            id: None,
        },
    };
    while inside.hear().map_err(failed("hear the host"))? {}
    Ok(())
}

pub(crate) struct Inside {
    house: File,
    pub(crate) ports: Ports,
    pub(crate) channel: Channel,
    pub(crate) teller: Arc<Teller>,
    /// Those that wait to be somebody's.
    pub(crate) ahead: Vec<Ahead>,
    /// And one that waits to be nobody's, and is used to rehearse.
    pub(crate) understudy: Option<Ahead>,
    pub(crate) made: Option<Here>,
    /// Bytes that there is room for, of changes.
    pub(crate) room: u64,
    /// What this machine is called.
    pub(crate) host: String,
    /// What a copy is shown instead of what it was.
    renewed: Vec<ShownFile>,
    pub(crate) own: Own,
}

/// What is the machine's own, open before it is copied: a copy has to do again whatever was not done.
pub(crate) struct Own {
    pub(crate) home: Home,
    pool: Pool,
    /// What tells it from others, once it has that.
    id: Option<File>,
}

/// What a wait has brought.
struct Happened {
    house: bool,
    ended: bool,
    /// A call was refused, and nobody has heard of it.
    attempted: bool,
}

/// The inside, once it is made.
pub(crate) struct Here {
    pub(crate) sandbox: Box<dyn Sandbox>,
    pub(crate) layer: PathBuf,
}

/// The one stream on which guests are spoken to, one after the other.
pub(crate) struct Channel {
    port: Port,
    /// What says that the guest before has said its last.
    mark: Arc<Mutex<Option<Mark>>>,
}

impl Channel {
    pub(crate) fn for_guests(&self) -> io::Result<Channels> {
        let (port, mark) = (self.port.file.try_clone()?, self.mark.clone());
        Ok(Channels(Box::new(move || {
            if let Some(mark) = mark.lock().unwrap_or_else(PoisonError::into_inner).take() {
                // Guests make it one that does not wait; nobody has it now.
                let flags = rustix::fs::fcntl_getfl(&port)?;
                rustix::fs::fcntl_setfl(&port, flags - rustix::fs::OFlags::NONBLOCK)?;
                (&port).write_all(&mark.0)?;
                // What was said to the guest before ends with it as well.
                let mut search = mark.search();
                let mut bytes = [0; 4096];
                loop {
                    match (&port).read(&mut bytes)? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        count if search.feed(bytes.get(..count).unwrap_or_default()).is_some() => break,
                        _ => {}
                    }
                }
            }
            Ok(OwnedFd::from(port.try_clone()?))
        })))
    }

    /// Waits until nothing is left to be read by the guest.
    fn quiet(&self) -> Tell {
        let until = Instant::now() + QUIET;
        loop {
            // In this order: what is given can be read from then on.
            let all_given = self.port.is_all_given();
            let mut set = [PollFd::new(&self.port.file, PollFlags::IN)];
            let _ = poll(&mut set, Some(&Timespec::default()));
            match !all_given || set.iter().any(|fd| fd.revents().contains(PollFlags::IN)) {
                false => return Tell::Done,
                true if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                true => {
                    let what = "the guest does not read what is sent to it".into();
                    return Tell::Refused {
                        what,
                        fix: "try again when its commands read their input".into(),
                    };
                }
            }
        }
    }

    fn set(&self, mark: Option<Mark>) {
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner) = mark;
    }
}

/// Tells the host of a system call, and waits until it is on record.
pub(crate) struct Teller(Mutex<File>);

impl Witness for Teller {
    fn hear(&self, heard: Heard) -> bool {
        let note = match heard {
            Heard::Refused(attempt) => Note::Refused(attempt),
            Heard::Passed(seen) => Note::Passed(seen),
        };
        let mut port = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut answer = [0];
        send(&mut *port, &note).and_then(|()| port.read_exact(&mut answer)).is_ok() && answer == [HEARD]
    }
}

pub(crate) fn refusal(error: RuntimeError) -> Tell {
    match error {
        RuntimeError::Refused { what, fix } | RuntimeError::Step { what, fix, .. } => {
            Tell::Refused { what, fix }
        }
        error @ RuntimeError::Io { .. } => {
            Tell::Refused { what: error.to_string(), fix: "report this".into() }
        }
    }
}

impl Inside {
    /// Waits for the host. A guest that ends by itself takes the machine along: nobody would answer for it. Refused calls are
    /// listened to from the first one on, whose caller waits for that: many a session has none.
    fn wait(&mut self) -> io::Result<()> {
        loop {
            let Happened { house, ended, attempted } = self.happened()?;
            if attempted && !ended {
                self.listen().map_err(io::Error::other)?;
            }
            match (house, ended) {
                (true, _) => return Ok(()),
                (_, true) => return Err(io::Error::other("the guest has ended")),
                _ => {}
            }
        }
    }

    fn happened(&self) -> io::Result<Happened> {
        let here = self.made.as_ref();
        let (guest, alarm) =
            (here.and_then(|here| here.sandbox.ended()), here.and_then(|here| here.sandbox.alarm()));
        let mut set = vec![PollFd::new(&self.house, PollFlags::IN)];
        set.extend(alarm.map(|alarm| PollFd::from_borrowed_fd(alarm, PollFlags::IN)));
        set.extend(guest.map(|guest| PollFd::from_borrowed_fd(guest, PollFlags::IN)));
        match poll(&mut set, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let at = |at: usize| set.get(at).map_or(PollFlags::empty(), PollFd::revents);
        Ok(Happened {
            house: !at(0).is_empty(),
            attempted: alarm.is_some() && at(1).contains(PollFlags::IN),
            ended: guest.is_some() && !at(set.len() - 1).is_empty(),
        })
    }

    fn listen(&mut self) -> Result<(), RuntimeError> {
        let teller = self.teller.clone();
        self.made.as_mut().map_or(Ok(()), |here| here.sandbox.listen(teller))
    }

    fn hear(&mut self) -> io::Result<bool> {
        self.wait()?;
        let asked = match receive(&mut self.house, FROM_HOST) {
            Ok(Frame::Message(asked)) => asked,
            Ok(Frame::Renewal(Renewal { who, files })) => {
                self.renewed = self.files(&files)?;
                let told = match self.renew(&who) {
                    Ok(()) => self.cover(),
                    Err(error) => refusal(error),
                };
                return send(&mut self.house, &told).map(|()| true);
            }
            Ok(Frame::Piece(_) | Frame::Entry(_)) => return Err(io::ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        };
        let told = match asked {
            Ask::Prepare { home, git, room } => self.prepare(home.as_path(), git.as_deref(), room),
            Ask::Rehearse(make) => self.rehearse(*make),
            Ask::Make(make) => {
                let files = self.files(&make.files)?;
                self.make(*make, files)
            }
            Ask::LookInto { path } => {
                path.iter().for_each(|dir| prepare::look_into(dir.as_path()));
                Tell::Done
            }
            Ask::Counters => {
                Tell::Counters(self.made.as_ref().map(|here| here.sandbox.counters()).unwrap_or_default())
            }
            Ask::Occupied => {
                Tell::Occupied(self.made.as_ref().is_some_and(|here| here.sandbox.is_occupied()))
            }
            Ask::Clock(clock) => {
                set_clock(clock);
                Tell::Done
            }
            Ask::Quiet => self.channel.quiet(),
            Ask::Begin { mark } => self.rearrange(mark, |sandbox| sandbox.begin_transaction()),
            Ask::Settle { keep, mark } => {
                self.rearrange(mark, |sandbox| sandbox.settle(keep, &mut |_| Ok(())).map(drop))
            }
            Ask::Difference { texts } => return self.difference(texts).map(|()| true),
            Ask::Finish => return self.finish().map(|()| true),
        };
        send(&mut self.house, &told)?;
        Ok(true)
    }

    /// As they were announced.
    fn files(&mut self, announced: &[(RawPath, u64)]) -> io::Result<Vec<ShownFile>> {
        let mut files = Vec::new();
        for (at, length) in announced {
            let length = usize::try_from(*length).map_err(|_| io::ErrorKind::InvalidData)?;
            let mut content = Vec::new();
            while content.len() < length {
                match receive::<Ask>(&mut self.house, FROM_HOST)? {
                    Frame::Piece(piece) if !piece.is_empty() => content.extend_from_slice(&piece),
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                }
            }
            files.push(ShownFile { at: at.as_path().to_owned(), content });
        }
        Ok(files)
    }

    fn prepare(&mut self, home: &Path, git: Option<&[u8]>, room: u64) -> Tell {
        let mut own = || -> io::Result<()> {
            self.own.id = Some(prepare::machine_id()?);
            // Mounted before anything is begun, so that all of them have it.
            prepare::layers(Path::new(LAYERS), room)?;
            prepare::places()?;
            prepare::calm();
            std::fs::create_dir_all(home)?;
            git.map_or(Ok(()), |git| std::fs::write(home.join(".gitconfig"), git))
        };
        let own = own().map_err(RuntimeError::io("make the home"));
        let prepared = own.and_then(|()| rehearse::rehearse(home)).and_then(|()| {
            let channels = || self.channel.for_guests().map_err(RuntimeError::io("find the guest's channel"));
            rehearse::ahead(home, &channels)
        });
        match prepared {
            Ok((ahead, understudy)) => {
                (self.ahead, self.understudy, self.room) = (ahead, Some(understudy), room);
                // What was used on the way here is of no use to a copy, which has to bring it along all the same.
                prepare::blank();
                Tell::Done
            }
            Err(error) => refusal(error),
        }
    }

    /// A copy of a machine is another one. One that cannot become so is of no use.
    pub(crate) fn renew(&mut self, who: &Identity) -> Result<(), RuntimeError> {
        set_clock(who.clock);
        let renewed = || -> io::Result<()> {
            self.own.pool.renew(&who.seed)?;
            // Of one length, so that nothing is left of the one before.
            let id = self.own.id.as_ref().ok_or(io::ErrorKind::NotFound)?;
            id.write_all_at(format!("{}\n", who.machine).as_bytes(), 0)?;
            Ok(rustix::system::sethostname(who.host.as_bytes())?)
        };
        renewed().map_err(RuntimeError::io("make the machine another one"))?;
        self.host.clone_from(&who.host);
        Ok(())
    }

    /// Lets the layers change under a guest that ends by it, and tells another from it by the mark.
    fn rearrange(
        &mut self,
        mark: Mark,
        act: impl FnOnce(&mut dyn Sandbox) -> Result<(), RuntimeError>,
    ) -> Tell {
        let Some(here) = &mut self.made else { return nothing_made() };
        self.channel.set(Some(mark));
        let done = act(here.sandbox.as_mut());
        let listened = here.sandbox.listen(self.teller.clone());
        self.channel.set(None);
        match done.and(listened) {
            // Another guest sees what the first one saw.
            Ok(()) => self.cover(),
            Err(error) => refusal(error),
        }
    }

    fn cover(&self) -> Tell {
        let Some(guest) = self.made.as_ref().and_then(|here| here.sandbox.ended()) else { return Tell::Done };
        let put = || -> io::Result<()> {
            let mut files = Vec::new();
            for (number, file) in self.renewed.iter().enumerate() {
                std::fs::create_dir_all(SHOWN)?;
                let path = Path::new(SHOWN).join(number.to_string());
                std::fs::write(&path, &file.content)?;
                files.push((path, file.at.clone()));
            }
            Ok(self.own.home.cover(guest, &files, (guest, &self.host))?)
        };
        match put() {
            Ok(()) => Tell::Done,
            Err(error) => refusal(RuntimeError::io("show the copy its own files")(error)),
        }
    }

    fn difference(&mut self, texts: bool) -> io::Result<()> {
        let Some(here) = &mut self.made else { return send(&mut self.house, &nothing_made()) };
        match here.sandbox.difference(texts, true) {
            Ok(found) => {
                for difference in found {
                    send(&mut self.house, &Tell::Difference(Box::new(difference)))?;
                }
                send(&mut self.house, &Tell::End)
            }
            Err(error) => send(&mut self.house, &refusal(error)),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        let Some(mut here) = self.made.take() else { return send(&mut self.house, &nothing_made()) };
        // What was done in transactions that nobody settled is not kept.
        while here.sandbox.depth() > 0 && here.sandbox.settle(false, &mut |_| Ok(())).is_ok() {}
        let finished = here.sandbox.finish().unwrap_or_default();
        let told = Tell::Finished { usage: finished.usage, limits: finished.limits };
        send(&mut self.house, &told)?;
        let mut out = io::BufWriter::with_capacity(64 << 10, &mut self.house);
        export::export(&here.layer.join("upper"), &mut out)?;
        out.flush()
    }
}

pub(crate) fn nothing_made() -> Tell {
    Tell::Refused { what: "nothing was made".into(), fix: "report this".into() }
}

fn set_clock(clock: Clock) {
    let now = rustix::time::Timespec { tv_sec: clock.seconds, tv_nsec: clock.nanos.into() };
    let _ = rustix::time::clock_settime(rustix::time::ClockId::Realtime, now);
}
