//! Runs in a line, for tests: `get_a(1) send(2)!` is two calls, of which the second failed; `"so"` is said.

use cofferdam_model::{Act, ActKind, EffectOf, Run, Status};
use serde_json::{Value, json};

pub(crate) fn run(line: &str) -> Run {
    let acts = line.split_whitespace().enumerate().map(|(at, word)| act(at, word));
    Run { id: line.to_owned(), origin: "sketch".into(), acts: acts.collect(), ..Run::default() }
}

fn act(at: usize, word: &str) -> Act {
    let failed = word.ends_with('!');
    let word = word.trim_end_matches('!');
    let (kind, name, args, text) = if let Some(said) = word.strip_prefix('"') {
        (ActKind::Said, "assistant", Value::Null, said.trim_end_matches('"').to_owned())
    } else {
        let (call, result) = word.split_once('>').unwrap_or((word, ""));
        let (name, args) = call.split_once('(').unwrap_or((call, ""));
        let values = args.trim_end_matches(')').split(',').filter(|v| !v.is_empty());
        let value = |v: &str| serde_json::from_str(v).unwrap_or_else(|_| Value::from(v));
        let args: Value = values
            .enumerate()
            .map(|(at, v)| (format!("p{at}"), value(v)))
            .collect::<serde_json::Map<_, _>>()
            .into();
        (ActKind::Tool, name, if args == json!({}) { Value::Null } else { args }, result.to_owned())
    };
    Act {
        at: at as u64,
        within: None,
        kind,
        name: name.to_owned(),
        args,
        text,
        status: if failed { Status::Failed } else { Status::Ok },
        effect: EffectOf::Unknown,
        decided: None,
    }
}
