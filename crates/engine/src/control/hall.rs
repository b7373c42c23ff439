//! Who waits at this process's doors: a few threads for all of its sockets, however many sessions it holds. Whoever
//! hears somebody come answers them too, so a question is not handed from thread to thread; another takes the place
//! at the doors meanwhile. Who stays to be told how something ends holds no thread either.

use super::lines::{Hear, Lines};
use super::serve::{Answers, Counted};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// So many stay when there is nobody to answer.
const KEPT: usize = 4;
const STACK: usize = 512 << 10;
/// After somebody could not be let in.
const PAUSE: Duration = Duration::from_millis(10);

/// A socket, and who answers at it.
pub(super) struct Door {
    listener: UnixListener,
    pub(super) desk: Arc<dyn Answers>,
    /// Of those who ask now.
    pub(super) connections: AtomicUsize,
}

/// A door in the hall. It is closed when this is dropped.
pub(super) struct Attended {
    key: u64,
    pub(super) door: Arc<Door>,
}

/// Somebody who stays.
struct Caller {
    lines: Lines,
    hear: Hear,
    _counted: Counted,
}

/// Where something may happen.
#[derive(Clone)]
enum Place {
    Door(Arc<Door>),
    Caller(Arc<Mutex<Caller>>),
}

#[derive(Default)]
struct Places {
    last: u64,
    all: HashMap<u64, Place>,
}

impl Places {
    fn add(&mut self, place: Place) -> u64 {
        self.last += 1;
        self.all.insert(self.last, place);
        self.last
    }
}

struct Hall {
    epoll: OwnedFd,
    places: Mutex<Places>,
    /// Threads that wait at the doors, or are about to.
    idle: AtomicUsize,
}

static HALL: OnceLock<Hall> = OnceLock::new();

fn hall() -> io::Result<&'static Hall> {
    if let Some(hall) = HALL.get() {
        return Ok(hall);
    }
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    Ok(HALL.get_or_init(|| Hall { epoll, places: Mutex::default(), idle: AtomicUsize::new(0) }))
}

/// Has whoever comes to this socket, which must not block, answered.
pub(super) fn attend(listener: UnixListener, desk: Arc<dyn Answers>) -> io::Result<Attended> {
    let hall = hall()?;
    if hall.idle.load(Ordering::Acquire) == 0 {
        hall.employ()?;
    }
    let door = Arc::new(Door { listener, desk, connections: AtomicUsize::new(0) });
    let key = hall.places().add(Place::Door(door.clone()));
    let attended = Attended { key, door };
    epoll::add(&hall.epoll, &attended.door.listener, EventData::new_u64(key), ONCE)?;
    Ok(attended)
}

/// Has what more this one says heard when it comes.
pub(super) fn stay(mut lines: Lines, mut hear: Hear, counted: Counted) -> io::Result<()> {
    // What came with the question is told by nobody.
    if lines.has_more() && !hear(&mut lines) {
        return Ok(());
    }
    let hall = hall()?;
    let caller = Arc::new(Mutex::new(Caller { lines, hear, _counted: counted }));
    // Who is woken by it waits for this.
    let held = caller.lock().unwrap_or_else(PoisonError::into_inner);
    let key = hall.places().add(Place::Caller(caller.clone()));
    let added = epoll::add(&hall.epoll, held.lines.stream(), EventData::new_u64(key), ONCE);
    drop(held);
    if added.is_err() {
        hall.places().all.remove(&key);
    }
    Ok(added?)
}

/// One is told of those who come, and nobody else before it says that it has let them in.
const ONCE: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);

impl Drop for Attended {
    fn drop(&mut self) {
        if let Some(hall) = HALL.get() {
            hall.places().all.remove(&self.key);
            let _ = epoll::delete(&hall.epoll, &self.door.listener);
        }
    }
}

impl Hall {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more who waits.
    fn employ(&'static self) -> io::Result<()> {
        self.idle.fetch_add(1, Ordering::AcqRel);
        let thread = std::thread::Builder::new().name("asked".into()).stack_size(STACK);
        let started = thread.spawn(move || while self.serve() {});
        started.map(drop).inspect_err(|_| _ = self.idle.fetch_sub(1, Ordering::AcqRel))
    }

    /// Waits for something to happen and sees to it; false when enough others wait.
    fn serve(&'static self) -> bool {
        let came = self.wait();
        let last = self.idle.fetch_sub(1, Ordering::AcqRel) == 1;
        let relieved = !last || self.employ().is_ok();
        match came {
            Some((key, Place::Door(door))) => self.let_in(key, &door, relieved),
            Some((key, Place::Caller(caller))) => self.hear(key, &caller),
            None => {}
        }
        let joins = |idle: usize| (idle < KEPT).then_some(idle + 1);
        self.idle.fetch_update(Ordering::AcqRel, Ordering::Acquire, joins).is_ok()
    }

    fn wait(&self) -> Option<(u64, Place)> {
        let mut space = [MaybeUninit::<Event>::uninit(); 1];
        let (told, _) = match epoll::wait(&self.epoll, &mut space, None) {
            Ok(told) => told,
            Err(Errno::INTR) => return None,
            // There is nothing left that could come; a loop would only burn.
            Err(_) => loop {
                std::thread::park();
            },
        };
        let key = told.first()?.data.u64();
        let place = self.places().all.get(&key).cloned()?;
        Some((key, place))
    }

    fn let_in(&self, key: u64, door: &Arc<Door>, relieved: bool) {
        let accepted = door.listener.accept();
        // Others may have come with it. One that was closed meanwhile is not there any more.
        let _ = epoll::modify(&self.epoll, &door.listener, EventData::new_u64(key), ONCE);
        match accepted {
            Ok((stream, _)) if relieved => super::serve::receive(stream, door),
            // Without a thread to be had, the one that asks is not answered, and the next one is.
            Ok(_) => {}
            // Without a descriptor to be had they stay where they are, and would be told of at once.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            Err(_) => {}
        }
    }

    fn hear(&self, key: u64, caller: &Mutex<Caller>) {
        let mut caller = caller.lock().unwrap_or_else(PoisonError::into_inner);
        let Caller { lines, hear, .. } = &mut *caller;
        if hear(lines) && epoll::modify(&self.epoll, lines.stream(), EventData::new_u64(key), ONCE).is_ok() {
            return;
        }
        // Whoever has another descriptor of it would keep it here.
        let _ = epoll::delete(&self.epoll, lines.stream());
        self.places().all.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::serve::{Asked, Control};
    use super::super::{Question, Reply};
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{Sender, channel};

    /// Answers everybody at once but those who ask to be shown: they stay, and what more they say is told.
    struct Desk(Sender<Option<Question>>);

    impl Answers for Desk {
        fn answer(&self, asked: Asked, connection: &mut Lines) -> Option<Reply> {
            if asked.question != Question::Show {
                return Some(Reply::Done { cut: 7 });
            }
            let told = self.0.clone();
            connection.go_on(Box::new(move |lines| {
                loop {
                    let heard = match lines.next_now::<Question>() {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                        heard => heard.ok().flatten(),
                    };
                    let over = heard.is_none();
                    told.send(heard).unwrap();
                    if over {
                        return false;
                    }
                }
            }));
            None
        }
    }

    const SHOW: &[u8] = b"{\"ask\":\"show\"}\n";
    const PAUSE: &[u8] = b"{\"ask\":\"pause\"}\n";

    #[test]
    fn many_who_stay_are_heard_to_the_end_and_hold_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let (told, heard) = channel();
        let control = Control::open_at(dir.path(), "it.sock", Arc::new(Desk(told))).unwrap();
        let mode = std::fs::metadata(dir.path().join("it.sock")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "nobody else comes");
        let connect = || UnixStream::connect(dir.path().join("it.sock")).unwrap();
        let mut staying: Vec<UnixStream> = (0..3 * KEPT).map(|_| connect()).collect();
        for (at, stream) in staying.iter_mut().enumerate() {
            // Some say more in the same breath.
            stream
                .write_all(if at % 2 == 0 { SHOW } else { b"{\"ask\":\"show\"}\n{\"ask\":\"pause\"}\n" })
                .unwrap();
        }
        // Others are answered meanwhile.
        for _ in 0..3 * KEPT {
            let mut asker = connect();
            asker.write_all(PAUSE).unwrap();
            let mut line = String::new();
            BufReader::new(asker).read_line(&mut line).unwrap();
            assert_eq!(line, "{\"done\":{\"cut\":7}}\n");
        }
        for stream in staying.iter_mut().step_by(2) {
            stream.write_all(PAUSE).unwrap();
        }
        for _ in &staying {
            assert_eq!(heard.recv().unwrap(), Some(Question::Pause));
        }
        // Those who were answered are counted until whoever answered has closed their connections.
        let mut tries = 0..1000;
        while control.connections() != staying.len() && tries.next().is_some() {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(control.connections(), staying.len());
        staying.clear();
        for _ in 0..3 * KEPT {
            assert_eq!(heard.recv().unwrap(), None);
        }
        drop(control);
        assert!(UnixStream::connect(dir.path().join("it.sock")).is_err());
    }
}
