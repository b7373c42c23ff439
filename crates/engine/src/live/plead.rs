//! What those inside a box ask for by its `sudo`: a command as somebody else. It is decided here, put on record, and
//! started as any other command of the session's is: in the same sandbox, under the same limits, filter and policy.
//!
//! Who asks may be hostile. How many wait is bounded by the protocol, and how many are answered in a second by this: a
//! loop inside is slowed down, and fills no trace faster than that. Of both, what waits and what runs, everybody who asks has a
//! share, so that one command's loop leaves some to the others.

use super::commands::{Exec, is_of_one_exec};
use super::holder::Holder;
use crate::error::EngineError;
use crate::record::now_us;
use crate::relay::{Asked, Asking, ExecId, Io, PleaId, Relay};
use crate::standing::Command;
use cofferdam_guest::wire;
use cofferdam_model::{ExecInfo, SessionSpec, Usage};
use cofferdam_runtime::Identity;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Open at once.
const MOST: u16 = 16;
/// So many at once, and from then on one in each such time.
const BURST: u32 = 50;
const EACH: Duration = Duration::from_millis(40);
/// So many of their commands run at once. The rest of what a guest can do at all is for those outside: nobody inside can
/// take it from them.
const RUNNING: usize = 128;
/// What a terminal has until whoever holds it says otherwise.
const SIZE: wire::Size = wire::Size { rows: 24, columns: 80 };

/// Questions that wait for their turn.
pub(super) struct Pleas {
    waiting: VecDeque<Asking>,
    left: u32,
    since: Instant,
    /// Who had its turn last.
    served: Option<u32>,
}

impl Pleas {
    pub(super) fn new(now: Instant) -> Self {
        Self { waiting: VecDeque::new(), left: BURST, since: now, served: None }
    }

    fn next(&mut self, now: Instant) -> Option<Asking> {
        let passed = now.saturating_duration_since(self.since).as_nanos() / EACH.as_nanos();
        let earned = u32::try_from(passed).unwrap_or(BURST).min(BURST);
        if earned > 0 {
            self.left = (self.left + earned).min(BURST);
            self.since = now;
        }
        self.left = self.left.checked_sub(u32::from(!self.waiting.is_empty()))?;
        // Whoever asks a hundred times is before nobody who asks once.
        let other = self.waiting.iter().position(|asking| Some(asking.asker) != self.served);
        let next = self.waiting.remove(other.unwrap_or(0));
        self.served = next.as_ref().map(|asking| asking.asker).or(self.served);
        next
    }

    /// When the next one may have its turn.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then(|| self.since + EACH)
    }
}

/// Everybody may have as many as are left to all others: half of them who is alone, a third each where there are two.
/// Nobody alone can have the last.
fn may_run_one_more(running: impl Iterator<Item = u32>, asker: u32) -> Result<(), String> {
    let (mut all, mut own) = (0, 0);
    for one in running {
        all += 1;
        own += usize::from(one == asker);
    }
    if own < RUNNING.saturating_sub(all) {
        return Ok(());
    }
    Err(format!(
        "{own} commands by sudo are running for the command that asks, of {all} in all and at most {RUNNING}: \
         wait for one of them to end"
    ))
}

/// On a guest that is told whether it may be asked.
pub(super) fn relay(channel: OwnedFd, spec: &SessionSpec) -> Result<Relay, EngineError> {
    let mut relay = Relay::new(channel)?;
    if spec.sudo {
        relay.invite(MOST)?;
    }
    Ok(relay)
}

/// Where the programs of the box's root are.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What makes a program load or run something else than itself.
const STEERS: &[&str] = &[
    "LD_",
    "GLIBC_",
    "GCONV_PATH",
    "BASH_ENV",
    "BASH_FUNC_",
    "ENV",
    "IFS",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "PYTHON",
    "PERL",
    "RUBY",
    "NODE_",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "GIT_",
    "EDITOR",
    "VISUAL",
    "PAGER",
];

impl Holder {
    /// Another guest knows nothing of what was asked of the one before.
    pub(super) fn forget_askers(&mut self) {
        self.pleas.waiting.clear();
    }

    pub(super) fn hear_askers(&mut self, asked: Vec<Asking>) -> Result<(), EngineError> {
        self.pleas.waiting.extend(asked);
        while let Some(Asking { plea, asker, wanted }) = self.pleas.next(Instant::now()) {
            let started = wanted
                .map_err(|why| EngineError::Declined(why.into()))
                .and_then(|asked| self.start_for_asker(plea, asker, asked));
            match started {
                Ok(()) => {}
                Err(error) if is_of_one_exec(&error) => self.relay.deny(plea, &error.to_string())?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn start_for_asker(&mut self, plea: PleaId, asker: u32, asked: Asked) -> Result<(), EngineError> {
        let Asked { argv, mut env, cwd, tty, name, uid, gid, groups, home } = asked;
        // The session's own value of these is in every command: who keeps its environment has the same.
        if let Some(egress) = &self.standing.egress {
            env.retain(|variable, _| !egress.placeholders.contains(variable));
        }
        // Rules name programs: which one a name means, and what it loads, is not for the asker to say.
        env.retain(|variable, _| !STEERS.iter().any(|prefix| variable.starts_with(prefix)));
        env.insert("PATH".into(), PATH.into());
        self.may_start(&argv, &env)?;
        may_run_one_more(self.relay.askers(), asker).map_err(EngineError::Declined)?;
        self.be_awake("sudo")?;
        let command = Command {
            argv: argv.clone(),
            env,
            cwd: Some(cwd),
            who: Some((Identity { name, uid, gid, home }, groups)),
            tty: tty.then_some(SIZE),
            timeout: self.spec.limits.timeout,
            by: Some("sudo"),
            ..Command::default()
        };
        let (id, _) =
            self.standing.start(&mut self.relay, &self.spec, &command, Io::Asker { plea, asker })?;
        self.enter_asked(id, argv);
        Ok(())
    }

    fn enter_asked(&mut self, id: ExecId, argv: Vec<String>) {
        self.last += 1;
        let info = ExecInfo {
            id: self.last,
            argv,
            started_us: now_us(),
            detached: true,
            output: 0,
            exit: None,
            usage: Usage::default(),
        };
        let running = Some(id);
        self.execs.push(Exec { running, info, watcher: None, doomed: None, tx: None, hub: None });
        self.clock.running(self.running(), Instant::now());
        self.forget_old();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_guest::host::{Client, Event};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// Numbers of pleas come from a conversation alone.
    fn asking(count: usize) -> VecDeque<Asking> {
        let kind = SocketType::STREAM;
        let (ours, guest) = socketpair(AddressFamily::UNIX, kind, SocketFlags::empty(), None).unwrap();
        let mut client = Client::new(ours).unwrap();
        client.invite(1).unwrap();
        let who = wire::Account {
            name: b"root".to_vec(),
            uid: 0,
            gid: 0,
            groups: vec![],
            home: b"/".to_vec(),
            shell: vec![],
        };
        let request = wire::Request { argv: vec![b"id"], env: vec![], cwd: b"/", tty: false, who };
        let mut said = Vec::new();
        wire::put(&mut said, wire::Kind::Hello, 0, None, &wire::Hello { pid: 1 }).unwrap();
        wire::put(&mut said, wire::Kind::Plea, 1, None, &wire::Plea { request, uid: 0, session: 2 }).unwrap();
        rustix::io::write(&guest, &said).unwrap();
        client.receive().unwrap();
        client.next_event().unwrap();
        match client.next_event().unwrap() {
            Some(Event::Asked { plea, .. }) => {
                std::iter::repeat_n(Asking { plea, asker: 7, wanted: Err("") }, count).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn check_share(running: &[(u32, usize)], asker: u32, may: bool) {
        let running = running.iter().flat_map(|(asker, count)| std::iter::repeat_n(*asker, *count));
        assert_eq!(may_run_one_more(running, asker).is_ok(), may);
    }

    #[test]
    fn everybody_has_a_share_and_nobody_all() {
        check_share(&[], 1, true);
        check_share(&[(1, RUNNING / 2 - 1)], 1, true);
        check_share(&[(1, RUNNING / 2)], 1, false);
        check_share(&[(1, RUNNING / 2)], 2, true);
        check_share(&[(1, RUNNING / 2), (2, RUNNING / 4)], 2, false);
        check_share(&[(1, RUNNING / 2), (2, RUNNING / 4)], 3, true);
        let crowd: Vec<(u32, usize)> = (1..128).map(|asker| (asker, 1)).collect();
        check_share(&crowd, 200, true);
        check_share(&[&crowd[..], &[(200, 1)]].concat(), 201, false);
        let told = may_run_one_more(std::iter::repeat_n(1, 64), 1).unwrap_err();
        assert!(told.starts_with("64 commands by sudo are running for the command that asks, of 64 in all"));
        assert!(told.ends_with("wait for one of them to end"), "{told}");
    }

    #[test]
    fn so_many_at_once_and_then_one_after_the_other() {
        let began = Instant::now();
        let mut pleas = Pleas { waiting: asking(BURST as usize + 5), ..Pleas::new(began) };
        let answered = |pleas: &mut Pleas, at: Instant| std::iter::from_fn(|| pleas.next(at)).count();
        assert_eq!(answered(&mut pleas, began), BURST as usize);
        assert_eq!(answered(&mut pleas, began + EACH / 2), 0);
        assert_eq!(pleas.due(), Some(began + EACH));
        assert_eq!(answered(&mut pleas, began + EACH), 1);
        assert_eq!(answered(&mut pleas, began + EACH * 3), 2);
        assert_eq!(answered(&mut pleas, began + EACH * 1000), 2, "and that was all");
        assert_eq!(pleas.due(), None);
        pleas.waiting = asking(200);
        pleas.waiting.push_back(Asking { asker: 8, ..asking(1).remove(0).unwrap() });
        assert_eq!(pleas.next(began + EACH * 2000).map(|asking| asking.asker), Some(8), "it asks but once");
        assert_eq!(pleas.next(began + EACH * 2000).map(|asking| asking.asker), Some(7));
        assert_eq!(answered(&mut pleas, began + EACH * 100_000), BURST as usize, "nobody saves up");
    }
}
