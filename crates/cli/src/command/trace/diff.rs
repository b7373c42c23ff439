//! What one run did that another did not, a line each: what changes the world is marked.

use crate::output::{Failure, Output, Paint};
use crate::story::{fit, printable};
use cofferdam_engine::Engine;
use cofferdam_engine::gate::{Change, Difference, Edit, Hunk, What};
use cofferdam_model::{Act, Decided};

const WIDTH: usize = 80;

pub(super) fn run(
    engine: &Engine,
    base: &str,
    new: &str,
    full: bool,
    output: &Output,
) -> Result<u8, Failure> {
    let found = engine.diff_traces(&engine.find_trace(base)?, &engine.find_trace(new)?)?;
    if output.json {
        output.value(&found)?;
    } else {
        output.data(&tell(&found, full, output))?;
    }
    Ok(0)
}

fn tell(found: &Difference, full: bool, output: &Output) -> String {
    let diff = &found.diff;
    let mut text = String::new();
    for (sign, head) in [('-', &diff.base), ('+', &diff.new)] {
        text.push_str(&format!("{sign}{sign}{sign} {} ({} acts)\n", printable(&head.id), head.acts));
    }
    for doubt in &found.doubts {
        text.push_str(&format!("{} {}\n", output.paint(Paint::Care, "note:"), printable(doubt)));
    }
    if let Some(fork) = &diff.fork {
        text.push_str(&format!(
            "from act {} on another path: given up {}, done instead {}\n",
            fork.new + 1,
            fork.left,
            fork.taken
        ));
    }
    for change in &diff.changes {
        line(&mut text, change, output);
    }
    if full {
        for noise in &diff.noise {
            let mut told = String::new();
            line(&mut told, &noise.change, output);
            text.push_str(&told.replacen("  ", "~ ", 1));
        }
    }
    if diff.changes.is_empty() {
        text.push_str("no difference that means anything\n");
    }
    if !diff.noise.is_empty() && !full {
        let count = diff.noise.len();
        let (them, means) = if count == 1 { ("difference", "means") } else { ("differences", "mean") };
        text.push_str(&format!("{count} {them} {means} nothing (ids, times, notation): --full lists them\n"));
    }
    text
}

fn line(text: &mut String, change: &Change, output: &Output) {
    let weight = if change.effect { "* " } else { "  " };
    let place = change.new.or(change.base).map_or(0, |at| at + 1);
    let kind = serde_json::to_value(change.act).ok();
    let kind = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or("act");
    let name = if change.name.is_empty() { kind.to_owned() } else { format!("{kind} {}", change.name) };
    let put = |text: &mut String, sign: &str, paint: Paint, rest: &str| {
        let told = fit(&printable(&format!("{name}{rest}")), WIDTH - 17);
        text.push_str(&format!(
            "{weight}{place:>4}  {}  {told}\n",
            output.paint(paint, format!("{sign:<7}"))
        ));
    };
    match &change.what {
        What::Added { added } => put(text, "added", Paint::Good, &called(added)),
        What::Duplicated { of, added } => {
            put(text, "again", Paint::Care, &format!(" as act {}{}", of + 1, called(added)));
        }
        What::Removed => put(text, "removed", Paint::Bad, ""),
        What::Moved => {
            let from = change.base.map_or(0, |at| at + 1);
            put(text, "moved", Paint::Care, &format!(" (was act {from})"));
        }
        What::Argument(edit) => put(text, "changed", Paint::Care, &edited(edit)),
        What::Status { from, to } => {
            put(text, "status", Paint::Care, &format!(": {from:?} → {to:?}").to_lowercase())
        }
        What::Text { hunks } => {
            put(text, "text", Paint::Care, "");
            hunks.iter().take(6).for_each(|hunk| piece(text, hunk, output));
            if hunks.len() > 6 {
                text.push_str(&format!("{:15}and {} pieces more\n", "", hunks.len() - 6));
            }
        }
        What::Name { from, to } => put(text, "name", Paint::Care, &format!(": {from} → {to}")),
        What::Effect { from, to } => {
            put(text, "effect", Paint::Care, &format!(": {from:?} → {to:?}").to_lowercase());
        }
        What::Decided { from, to } => {
            let word = |decided: &Option<Decided>| {
                decided.as_ref().map_or_else(
                    || "nothing".to_owned(),
                    |d| {
                        format!("{:?} by {}", d.effect, d.rule.as_deref().unwrap_or("no rule")).to_lowercase()
                    },
                )
            };
            put(text, "decided", Paint::Care, &format!(": {} → {}", word(from), word(to)));
        }
        What::Within { to } => {
            let to = to.map_or_else(|| "none".to_owned(), |to| (to + 1).to_string());
            put(text, "within", Paint::Dim, &format!(": act {to}"));
        }
    }
}

fn called(act: &Act) -> String {
    if act.args.is_null() { String::new() } else { format!(" {}", act.args) }
}

fn edited(edit: &Edit) -> String {
    match edit {
        Edit::Set { path, from, to } => format!(" {path}: {from} → {to}"),
        Edit::Put { path, value } => format!(" {path}: put {value}"),
        Edit::Take { path, value } => format!(" {path}: took {value}"),
    }
}

fn piece(text: &mut String, hunk: &Hunk, output: &Output) {
    for (sign, part, paint) in [('-', &hunk.old, Paint::Bad), ('+', &hunk.new, Paint::Good)] {
        if !part.is_empty() {
            let told = fit(&printable(part.trim_end()), WIDTH - 19);
            text.push_str(&format!("{:15}{}\n", "", output.paint(paint, format!("{sign} {told}"))));
        }
    }
}
