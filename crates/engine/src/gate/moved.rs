//! A baseline from another place: what it did in its work dir is told as if that had been the one of the new run, so
//! that a recording that was committed can be compared in any clone.

use cofferdam_model::{ActKind, Run};
use serde_json::Value;

/// The run with paths below `then` told as below `now`.
pub(super) fn moved(run: &Run, then: &str, now: &str) -> Run {
    let mut run = run.clone();
    for act in run.acts.iter_mut().filter(|act| matches!(act.kind, ActKind::File | ActKind::Exec)) {
        for name in ["path", "cwd"] {
            if let Some(Value::String(path)) = act.args.get_mut(name) {
                rename(path, then, now);
            }
        }
        let words = act.args.get_mut("argv").and_then(Value::as_array_mut);
        for word in words.into_iter().flatten() {
            if let Value::String(word) = word {
                rename(word, then, now);
            }
        }
    }
    run
}

fn rename(path: &mut String, then: &str, now: &str) {
    let rest = path.strip_prefix(then).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    if let Some(renamed) = rest.map(|rest| format!("{now}{rest}")) {
        *path = renamed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::{Act, EffectOf, Status};
    use serde_json::json;

    #[test]
    fn only_what_lies_in_the_work_dir_moves() {
        let act = |kind, args| Act {
            at: 0,
            within: None,
            kind,
            name: "modified a".into(),
            args,
            text: String::new(),
            status: Status::default(),
            effect: EffectOf::default(),
            decided: None,
        };
        let acts = vec![
            act(ActKind::File, json!({ "path": "/w/one/a", "digest": "/w/one" })),
            act(ActKind::File, json!({ "path": "/w/one2/a" })),
            act(ActKind::Exec, json!({ "argv": ["python3", "/w/one/x.py", "/etc"], "cwd": "/w/one" })),
            act(ActKind::Tool, json!({ "path": "/w/one/a" })),
        ];
        let run = moved(&Run { acts, ..Run::default() }, "/w/one", "/else");
        let args: Vec<&Value> = run.acts.iter().map(|act| &act.args).collect();
        assert_eq!(*args[0], json!({ "path": "/else/a", "digest": "/w/one" }));
        assert_eq!(*args[1], json!({ "path": "/w/one2/a" }));
        assert_eq!(*args[2], json!({ "argv": ["python3", "/else/x.py", "/etc"], "cwd": "/else" }));
        assert_eq!(*args[3], json!({ "path": "/w/one/a" }));
    }
}
