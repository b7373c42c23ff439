//! The supervisor's part of a boot: it hears what the child has to say until the guest runs, and answers.

use crate::create::{Failure, Making, chosen, hearing};
use crate::decide::filter_of;
use crate::explain::explain_op;
use crate::report::{self, Settled};
use crate::room::Place;
use crate::wait;
use crate::watch::Ear;
use cofferdam_sys::Errno;
use cofferdam_sys::boot::{Launched, Message};

/// While the child works, until the guest runs.
pub(crate) fn supervise(m: &mut Making) -> Result<(), Failure> {
    if m.waiting.is_some() {
        return wait::finish(m);
    }
    match listen(m)? {
        false => Ok(()),
        true => Err(Failure::What("the guest waits for nobody".into(), "report this".into())),
    }
}

/// The same for one that is prepared: until its guest runs and waits.
pub(crate) fn until_it_waits(m: &mut Making) -> Result<(), Failure> {
    match listen(m)? {
        true => Ok(()),
        false => Err(Failure::What("the guest did not wait".into(), "report this".into())),
    }
}

/// Whether the guest waits.
fn listen(m: &mut Making) -> Result<bool, Failure> {
    let Some(mut launched) = m.launched.take() else { return chosen(m).map(|_| false) };
    let result = converse(m, &mut launched);
    m.launched = Some(launched);
    result
}

/// What the operation at this position could not do.
pub(crate) fn failed(m: &Making, child: &Launched, at: usize, errno: Errno) -> Failure {
    child.op(at).map_or_else(
        || Failure::What("an unknown operation failed".into(), "report this".into()),
        |op| explain_op(op, errno, &m.spec.workdir),
    )
}

/// Says something to the child. One that has failed hears nothing any more, and has said why before it ended.
pub(crate) fn tell(
    m: &mut Making,
    word: impl FnOnce(&Launched, &Making) -> Result<(), Errno>,
) -> Result<(), Failure> {
    let Some(mut launched) = m.launched.take() else { return chosen(m).map(drop) };
    let told = word(&launched, m).map_err(|errno| match errno {
        Errno::PIPE | Errno::CONNRESET => last_words(m, &mut launched),
        errno => hearing(errno).into(),
    });
    m.launched = Some(launched);
    told
}

fn last_words(m: &Making, launched: &mut Launched) -> Failure {
    loop {
        match launched.hear() {
            Ok(Message::Failed { at, errno }) => return failed(m, launched, at, errno),
            Ok(Message::Started) | Err(_) => return hearing(Errno::PIPE).into(),
            Ok(_) => {}
        }
    }
}

fn converse(m: &mut Making, launched: &mut Launched) -> Result<bool, Failure> {
    report::look_at_ourselves();
    loop {
        match launched.hear().map_err(hearing)? {
            // What is left to the child, privileges, rules and the guest's image, takes as long as to read what they
            // do not change.
            Message::Settled => m.settled = Settled::read(launched.pid().as_raw_nonzero().get()).ok(),
            Message::LandlockProbe(errno) => m.landlock_probe = errno,
            Message::Listener(fd) => {
                let ear = Ear::new(fd, filter_of(m)?);
                // The last that our own code does under the filter is to execute the guest.
                ear.admit().map_err(hearing)?;
                m.ear = Some(ear);
            }
            Message::Layer(fd) => m.handed.push_back(fd),
            Message::Place([mounts, network, user]) => m.place = Some(Place { mounts, network, user }),
            Message::Doors(fds) => {
                let guest = m.guest.clone();
                m.doors = m.network.as_ref().map(|network| network.doors(guest, fds)).transpose()?;
            }
            Message::Failed { at, errno } => return Err(failed(m, launched, at, errno)),
            Message::Waiting => return Ok(true),
            Message::Done => {
                return Err(Failure::What("the child left before its time".into(), "report this".into()));
            }
            Message::Started => {
                // They are shown; other rooms of the place have them too.
                m.files = Vec::new();
                return Ok(false);
            }
        }
    }
}
