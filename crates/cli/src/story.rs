//! A trace told to a person at eighty columns.

mod browser;
mod egress;
mod model;
pub(crate) mod replay;
mod work;

use crate::command::run::mark;
use crate::output::{Output, Paint};
use cofferdam_engine::{Exec, Story, Told};
use cofferdam_model::{
    Aspect, BlobRef, Bytes, ChangeOp, Exit, FileChange, OutputCaptured, SessionChanged, Span, State, Stream,
    Usage,
};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use std::time::Duration;

const WIDTH: usize = 80;
/// Lines of a stream that are shown at most.
const LINES: usize = 12;
const CHANGES: usize = 20;

pub(crate) type Payload<'a> = &'a dyn Fn(&BlobRef) -> Option<Vec<u8>>;

pub(crate) fn tell(story: &Story, full: bool, payload: Payload<'_>, output: &Output) -> String {
    let mut page =
        Page { text: String::new(), output, began: story.session.as_ref().map_or(0, |told| told.time_us) };
    page.session(story);
    page.enforcement(story, full);
    page.events(story, full, payload);
    page.end(story);
    page.text
}

/// Something that happened, to be told in the order of the trace.
enum Moment<'a> {
    Exec(&'a Exec),
    Output(&'a Told<OutputCaptured>),
    Exit(&'a Exit, &'a Usage),
    Line(&'static str, Paint, String),
    Changes(Vec<&'a FileChange>),
}

struct Page<'a> {
    text: String,
    output: &'a Output,
    began: u64,
}

impl Page<'_> {
    fn line(&mut self, text: &str) {
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    fn field(&mut self, name: &str, value: &str) {
        self.line(&format!("  {name:<10} {}", wrap(value, 13, WIDTH)));
    }

    fn session(&mut self, story: &Story) {
        let Some(told) = &story.session else {
            self.line("a trace without a beginning");
            return;
        };
        let title = self.output.paint(Paint::Bold, format!("session {}", told.fact.session));
        self.line(&title);
        self.field("started", &second(told.time_us));
        match told.fact.spec.command.as_slice() {
            [] => self.field("command", "none of its own: it stays, and is told what to run"),
            command => self.field("command", &command_line(command)),
        }
        self.field("work dir", &told.fact.workdir.to_string());
        self.field("by", &format!("uid {} on {}, {}", told.fact.user, told.fact.host, told.fact.by));
    }

    fn enforcement(&mut self, story: &Story, full: bool) {
        let Some(told) = &story.enforcement else { return };
        let report = &told.fact;
        let enforced = report.controls.iter().filter(|c| c.state == State::Enforced).count();
        let total = report.controls.len();
        self.field(
            "sandbox",
            &format!(
                "{} tier on Linux {}; {enforced} of {total} controls in full force",
                report.tier, report.kernel
            ),
        );
        for control in report.controls.iter().filter(|c| full || c.state != State::Enforced) {
            let paint = if control.state == State::Enforced { Paint::Good } else { Paint::Care };
            let word = self.output.paint(paint, format!("{:<8}", control.state.word()));
            let detail = wrap(&control.detail, 42, WIDTH);
            self.line(&format!("{:13}{word} {:<19} {detail}", "", control.name));
        }
    }

    fn events(&mut self, story: &Story, full: bool, payload: Payload<'_>) {
        let mut moments = moments(story);
        moments.sort_by_key(|(seq, ..)| *seq);
        self.line("");
        for (_, time, moment) in moments {
            self.moment(time, moment, full, payload);
        }
    }

    fn moment(&mut self, time: u64, moment: Moment<'_>, full: bool, payload: Payload<'_>) {
        let clock =
            self.output.paint(Paint::Dim, format!("{:>8.3}", time.saturating_sub(self.began) as f64 / 1e6));
        match moment {
            Moment::Exec(exec) => {
                let fact = &exec.started.fact;
                let tty = if fact.tty { " on a terminal" } else { "" };
                let argv = if fact.own { fact.argv.get(3..4).unwrap_or_default() } else { &fact.argv };
                let text = format!("{} (as {}{tty})", command_line(argv), fact.user);
                self.line(&format!("{clock}  exec      {}", wrap(&text, 20, WIDTH)));
            }
            Moment::Output(told) => self.output_of(&clock, &told.fact, full, payload),
            Moment::Exit(exit, usage) => {
                let text = format!("{}; {}", exit_words(exit), usage_words(usage));
                self.line(&format!("{clock}  exit      {}", wrap(&text, 20, WIDTH)));
            }
            Moment::Line(word, paint, text) => {
                let word = self.output.paint(paint, format!("{word:<9}"));
                self.line(&format!("{clock}  {word} {}", wrap(&text, 20, WIDTH)));
            }
            Moment::Changes(changes) => self.changes(&clock, &changes, full),
        }
    }

    fn output_of(&mut self, clock: &str, seen: &OutputCaptured, full: bool, payload: Payload<'_>) {
        let name = stream(seen.stream);
        let digest = seen.digest.to_string();
        self.line(&format!("{clock}  {name:<9} {}, sha256 {}…", Bytes(seen.bytes), &digest[..16]));
        let Some(head) = seen.head.as_ref().and_then(payload) else { return };
        let text = String::from_utf8_lossy(&head);
        let most = if full { usize::MAX } else { LINES };
        let lines: Vec<&str> = text.lines().collect();
        for line in lines.iter().take(most) {
            self.line(&format!("{:20}| {}", "", fit(&printable(line), WIDTH - 22)));
        }
        let hidden = lines.len().saturating_sub(most);
        if hidden > 0 || seen.tail.is_some() {
            self.line(&format!("{:20}… {}", "", rest(hidden, seen)));
        }
    }

    fn changes(&mut self, clock: &str, changes: &[&FileChange], full: bool) {
        let count = |op: ChangeOp| changes.iter().filter(|c| c.op == op).count();
        let (c, m, d) = (count(ChangeOp::Created), count(ChangeOp::Modified), count(ChangeOp::Deleted));
        let renamed = match count(ChangeOp::Renamed) {
            0 => String::new(),
            n => format!(", {n} renamed"),
        };
        self.line(&format!("{clock}  files     {c} created, {m} modified{renamed}, {d} deleted"));
        let most = if full { usize::MAX } else { CHANGES };
        for change in changes.iter().take(most) {
            let size = change.size.map(|size| format!(" ({})", Bytes(size))).unwrap_or_default();
            let line = format!("{} {}{size}", mark(change.op), fit(&change.path.to_string(), 46));
            self.line(&format!("{:20}{line}{}", "", respects(change)));
        }
        if changes.len() > most {
            self.line(&format!("{:20}… and {} more; --full shows them", "", changes.len() - most));
        }
    }

    fn end(&mut self, story: &Story) {
        self.line("");
        match &story.end {
            Some(told) => {
                let took = Span(Duration::from_micros(told.fact.usage.wall_us));
                self.field("ended", &format!("{} after {took}", exit_words(&told.fact.exit)));
                if let Some(error) = &told.fact.error {
                    self.field("error", error);
                }
            }
            None => self.field("ended", "not in this trace: its writer was ended, or is still at work"),
        }
        let sealed = if story.finished { "sealed" } else { "not sealed" };
        self.field("trace", &format!("{} events, {} signatures, {sealed}", story.events, story.signatures));
    }
}

/// What a mark and a size leave out: the name before, or what but the content differs.
pub(crate) fn respects(change: &FileChange) -> String {
    if let Some(from) = &change.from {
        return format!(" (was {})", fit(&from.to_string(), 40));
    }
    if change.changed.is_empty() || change.changed == [Aspect::Content] {
        return String::new();
    }
    let words: Vec<_> = change.changed.iter().map(|aspect| aspect.word()).collect();
    format!(" [{}]", words.join(", "))
}

fn moments(story: &Story) -> Vec<(u64, u64, Moment<'_>)> {
    let mut all = Vec::new();
    for exec in &story.execs {
        all.push((exec.started.seq, exec.started.time_us, Moment::Exec(exec)));
        all.extend(exec.outputs.iter().map(|told| (told.seq, told.time_us, Moment::Output(told))));
        // Of a run that was killed, the last that was heard.
        for told in &exec.seen {
            if !exec.outputs.iter().any(|output| output.fact.stream == told.fact.stream) {
                let (bytes, digest) = (Bytes(told.fact.bytes), told.fact.digest.to_string());
                let text =
                    format!("{bytes} of {} so far, sha256 {}…", stream(told.fact.stream), &digest[..16]);
                all.push((told.seq, told.time_us, Moment::Line("output", Paint::Dim, text)));
            }
        }
        if let Some(told) = &exec.exited {
            all.push((told.seq, told.time_us, Moment::Exit(&told.fact.exit, &told.fact.usage)));
        }
    }
    for told in &story.blocked {
        let fact = &told.fact;
        let times = if fact.times > 1 { format!(", {} times", fact.times) } else { String::new() };
        let text = format!(
            "{} by {} (pid {}){times}: {}",
            fact.syscall,
            printable(&fact.program),
            fact.pid,
            fact.reason
        );
        all.push((told.seq, told.time_us, Moment::Line("blocked", Paint::Bad, text)));
    }
    for told in &story.programs {
        let argv = told.fact.about.get(1..).unwrap_or_default();
        let text = format!("{} (by {})", fit(&command_line(argv), 200), printable(&told.fact.program));
        all.push((told.seq, told.time_us, Moment::Line("program", Paint::Dim, text)));
    }
    for told in &story.limits {
        all.push((told.seq, told.time_us, Moment::Line("limit", Paint::Bad, told.fact.detail.clone())));
    }
    if let Some(first) = story.changes.first() {
        all.push((
            first.seq,
            first.time_us,
            Moment::Changes(story.changes.iter().map(|told| &told.fact).collect()),
        ));
    }
    all.extend(egress::moments(&story.egress));
    all.extend(work::moments(&story.work));
    for told in &story.life {
        let SessionChanged { what, by, detail } = &told.fact;
        let detail = if detail.is_empty() { String::new() } else { format!("; {detail}") };
        let text = printable(&format!("{what} by {by}{detail}"));
        all.push((told.seq, told.time_us, Moment::Line("session", Paint::Bold, text)));
    }
    if let Some(told) = &story.decision {
        let verb = if told.fact.kept { "kept" } else { "discarded" };
        let skipped = told.fact.skipped.iter().map(|s| format!("; not kept: {} ({})", s.path, s.reason));
        let mut text = format!("by {}{}", told.fact.by, skipped.collect::<String>());
        if let Some(name) = &told.fact.aside {
            text.push_str(&format!("; the inside's versions: cofferdam conflict show {name}"));
        }
        all.push((told.seq, told.time_us, Moment::Line(verb, Paint::Bold, text)));
    }
    all
}

fn stream(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdin => "stdin",
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
        Stream::Tty => "terminal",
    }
}

fn rest(hidden: usize, seen: &OutputCaptured) -> String {
    match (&seen.tail, hidden) {
        (None, hidden) => format!("{hidden} more lines; --full shows them"),
        (Some(_), _) => "only its first and last bytes are stored".into(),
    }
}

pub(crate) fn exit_words(exit: &Exit) -> String {
    match exit {
        Exit::Code(code) => format!("code {code}"),
        Exit::Signal(signal) => format!("signal {signal}"),
        Exit::NotFound => "not found (127)".into(),
        Exit::NotExecutable => "not executable (126)".into(),
        Exit::TimedOut => "timed out (124)".into(),
        Exit::LimitReached => "killed at a limit (137)".into(),
    }
}

fn usage_words(usage: &Usage) -> String {
    let span = |us: u64| Span(Duration::from_micros(us));
    format!(
        "{} of time, {} of CPU, {}",
        span(usage.wall_us),
        span(usage.user_us + usage.system_us),
        Bytes(usage.peak_memory)
    )
}

/// Words as a shell would want them.
pub(crate) fn command_line(argv: &[String]) -> String {
    let plain = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./=:,@%+".contains(c))
    };
    let words: Vec<String> = argv
        .iter()
        .map(|word| {
            if plain(word) { word.clone() } else { format!("'{}'", printable(&word.replace('\'', r"'\''"))) }
        })
        .collect();
    words.join(" ")
}

/// Characters that are not seen, and turn or hide what is: a text is to be read in the order in which it stands.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Control characters would let a trace draw on the reader's terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c == '\t' {
                ' '
            } else if c.is_control() || is_unseen(c) {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

/// Cut to `width` characters, with a mark where something is missing.
pub(crate) fn fit(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// All of it, broken wherever a line is full: for what has to be seen to its last character.
pub(crate) fn whole(text: &str, indent: usize, width: usize) -> String {
    let room = width.saturating_sub(indent).max(20);
    let all: Vec<char> = text.chars().collect();
    let lines: Vec<String> = all.chunks(room).map(|line| line.iter().collect()).collect();
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

/// Broken into lines of `width`, all but the first indented.
pub(crate) fn wrap(text: &str, indent: usize, width: usize) -> String {
    let room = width.saturating_sub(indent).max(20);
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let long = lines[last].chars().count() + 1 + word.chars().count() > room;
        if lines[last].is_empty() {
            lines[last].push_str(word);
        } else if long {
            lines.push(word.to_owned());
        } else {
            lines[last].push(' ');
            lines[last].push_str(word);
        }
    }
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

fn zoned(us: u64) -> Option<Zoned> {
    Timestamp::from_microsecond(i64::try_from(us).ok()?).ok().map(|t| t.to_zoned(TimeZone::system()))
}

pub(crate) fn minute(us: u64) -> String {
    zoned(us).map_or_else(|| "-".into(), |time| time.strftime("%Y-%m-%d %H:%M").to_string())
}

pub(crate) fn second(us: u64) -> String {
    zoned(us).map_or_else(|| "-".into(), |time| time.strftime("%A %-d %B %Y, %H:%M:%S %Z").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        let words = ["sh", "-c", "echo 'hi' > x", ""].map(String::from);
        assert_eq!(command_line(&words), r"sh -c 'echo '\''hi'\'' > x' ''");
    }

    #[test]
    fn text_is_cut_and_wrapped_by_characters() {
        assert_eq!(fit("äöüß", 3), "äö…");
        assert_eq!(fit("äöü", 3), "äöü");
        assert_eq!(wrap("one two three four five six", 2, 22), "one two three four\n  five six");
        assert_eq!(printable("a\x1b[1mb\tc"), "a\u{fffd}[1mb c");
    }
}
