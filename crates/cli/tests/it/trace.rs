//! `cofferdam trace` and the keys behind it: a trace can be read, moved and proved, and no damage passes.

use crate::{each, site};
use cofferdam_testkit::{Site, eventually};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_tree(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// A session that has something of every kind to tell.
fn eventful(site: &Site) -> String {
    let script = "echo out; echo err >&2; echo made > file; unshare -U true; exit 3";
    site.sh(script).with(&["--env", "GIVEN=x"]).exits(3);
    site.traces().pop().unwrap()
}

#[test]
fn a_trace_tells_the_whole_story() {
    each(|site| {
        eventful(site);
        let kinds: Vec<String> =
            site.events().iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect();
        let shape: Vec<&str> =
            kinds.iter().map(String::as_str).filter(|kind| *kind != "checkpoint").collect();
        let expected = [
            "session.started",
            "enforcement",
            "exec.started",
            "blocked",
            "output",
            "output",
            "exec.exited",
            "file.changed",
            "changes.decided",
            "session.ended",
            "head",
        ];
        assert_eq!(shape, expected);
        let exited = &site.bodies("exec.exited")[0];
        assert_eq!(exited["exit"]["code"], 3);
        assert!(exited["usage"]["peak_memory"].as_u64() > Some(0), "{exited}");
        let started = &site.bodies("exec.started")[0];
        assert!(started["env"].as_array().unwrap().contains(&"GIVEN".into()), "{started}");
        assert_eq!(started["cwd"].as_str(), site.work().to_str());
    });
}

#[test]
fn a_trace_is_shown_listed_and_verified() {
    each(|site| {
        let id = eventful(site);
        let done = site.call(&["trace", "show", "latest"]).exits(0);
        let shown = done.out();
        for part in [&id, "out", "err", "file", "unshare", "code 3", "sealed"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        // A path may be longer than a line; everything else fits.
        let fits = |line: &str| line.chars().count() <= 80 || !line.trim().contains(' ');
        assert!(shown.lines().all(fits), "{shown}");
        let told = json(&site.call(&["trace", "show", &id[..12], "--json"]).exits(0).out());
        assert!(told.to_string().contains(&id));
        let listed = json(&site.call(&["trace", "ls", "--json"]).exits(0).out());
        assert_eq!(listed[0]["id"].as_str(), Some(id.as_str()));
        assert!(site.call(&["trace", "ls"]).exits(0).out().contains(&id));
        for name in ["latest", &id, &id[..10]] {
            assert!(site.call(&["trace", "verify", name]).exits(0).out().starts_with("valid:"));
        }
        let verified = json(&site.call(&["trace", "verify", "latest", "--json"]).exits(0).out());
        assert_eq!(verified["state"], "valid");
        assert!(site.call(&["-q", "trace", "verify", "latest"]).exits(0).out().is_empty());
    });
}

#[test]
fn the_list_has_the_newest_first_and_no_more_than_asked() {
    let site = site();
    for n in 0..4 {
        site.sh(&format!("exit {n}")).exits(n);
    }
    let listed = json(&site.call(&["trace", "ls", "-n", "3", "--json"]).exits(0).out());
    let codes: Vec<_> = listed.as_array().unwrap().iter().map(|row| row["exit"]["code"].clone()).collect();
    assert_eq!(codes, [3, 2, 1]);
    let mut expected = site.traces();
    expected.reverse();
    let ids: Vec<_> = listed.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(ids, expected[..3]);
}

/// A copy of a trace with other lines.
fn damaged(site: &Site, id: &str, name: &str, lines: &[String]) -> PathBuf {
    let copy = site.root().join("copies").join(name);
    copy_tree(site.events_file(id).parent().unwrap(), &copy);
    fs::write(copy.join("events.jsonl"), lines.concat()).unwrap();
    copy
}

#[track_caller]
fn broken_at(site: &Site, path: &Path, seq: usize, what: &str) {
    let found = site.call(&["trace", "verify", path.to_str().unwrap(), "--json"]).done();
    assert_eq!(found.code(), 1, "{what} {seq}: {}{}", found.out(), found.err());
    let told = json(&found.out());
    assert_eq!(told["state"], "broken", "{what} {seq}: {told}");
    assert_eq!(told["first_bad"]["seq"].as_u64(), Some(seq as u64), "{what} {seq}: {told}");
}

#[test]
fn every_damage_is_found_and_named() {
    let site = site();
    let id = eventful(&site);
    let text = fs::read_to_string(site.events_file(&id)).unwrap();
    let lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    let same = damaged(&site, &id, "same", &lines);
    site.call(&["trace", "verify", same.to_str().unwrap()]).exits(0);
    for at in 0..lines.len() {
        let mut changed = lines.clone();
        changed[at] = changed[at].replacen("\"time\":1", "\"time\":2", 1);
        assert_ne!(changed[at], lines[at]);
        broken_at(&site, &damaged(&site, &id, "changed", &changed), at, "changed");
        let mut added = lines.clone();
        added.insert(at, lines[at].clone());
        broken_at(&site, &damaged(&site, &id, "added", &added), at + 1, "added after");
        if at + 1 < lines.len() {
            let mut dropped = lines.clone();
            dropped.remove(at);
            broken_at(&site, &damaged(&site, &id, "dropped", &dropped), at, "dropped");
            let mut swapped = lines.clone();
            swapped.swap(at, at + 1);
            broken_at(&site, &damaged(&site, &id, "swapped", &swapped), at, "swapped");
        }
    }
    let named = damaged(&site, &id, "named", &[&lines[..2], &lines[3..]].concat());
    let told = site.call(&["trace", "verify", named.to_str().unwrap()]).exits(1).out();
    assert!(told.starts_with("broken: event 2 "), "{told}");
}

/// Cut anywhere, a trace is never said to be valid.
#[test]
fn a_trace_that_was_cut_is_not_valid() {
    let site = site();
    let id = eventful(&site);
    let text = fs::read_to_string(site.events_file(&id)).unwrap();
    let lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    for keep in 0..lines.len() {
        let mut cut = lines[..keep].to_vec();
        for torn in [false, true] {
            if torn {
                cut.push(lines[keep][..lines[keep].len() / 2].to_owned());
            }
            let copy = damaged(&site, &id, "cut", &cut);
            let found = site.call(&["trace", "verify", copy.to_str().unwrap(), "--json"]).done();
            assert!(matches!(found.code(), 1 | 3), "{keep} {torn}: {}{}", found.out(), found.err());
            assert_ne!(json(&found.out())["state"], "valid");
        }
    }
}

#[test]
fn a_payload_that_was_changed_is_found() {
    let site = site();
    let id = eventful(&site);
    let copy = site.root().join("copy");
    copy_tree(site.events_file(&id).parent().unwrap(), &copy);
    let blob = fs::read_dir(copy.join("blobs")).unwrap().next().unwrap().unwrap().path();
    let bytes = fs::read(&blob).unwrap();
    for (what, change) in [("flipped", Some(7u8)), ("gone", None)] {
        match change {
            Some(bit) => {
                let mut other = bytes.clone();
                let last = other.len() - 1;
                other[last] ^= bit;
                fs::write(&blob, other).unwrap();
            }
            None => fs::remove_file(&blob).unwrap(),
        }
        let found = site.call(&["trace", "verify", copy.to_str().unwrap()]).done();
        assert_eq!(found.code(), 1, "{what}: {}", found.out());
        assert!(found.out().contains("(output)"), "{what}: {}", found.out());
    }
}

#[test]
fn an_unknown_signer_is_not_valid() {
    let (ours, theirs) = (site(), site());
    let id = eventful(&theirs);
    ours.sh("exit 0").exits(0);
    let copy = ours.root().join("theirs");
    copy_tree(theirs.events_file(&id).parent().unwrap(), &copy);
    let copy = copy.to_str().unwrap();
    let found = ours.call(&["trace", "verify", copy]).exits(1);
    let out = found.out();
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["not a trusted key", "`cofferdam key trust`", "none signed"] {
        assert!(words.contains(part), "{part}: {out}");
    }
    let key = theirs.call(&["key", "show"]).exits(0).out();
    let file = ours.write("theirs.pem", key);
    let file = file.to_str().unwrap();
    ours.call(&["trace", "verify", copy, "--key", file]).exits(0);
    ours.call(&["trace", "verify", copy]).exits(1);
    // A key that is named is the only one believed.
    ours.call(&["trace", "verify", "latest", "--key", file]).exits(1);
    ours.call(&["key", "trust", file]).exits(0);
    ours.call(&["trace", "verify", copy]).exits(0);
    ours.call(&["trace", "verify", "latest"]).exits(0);
    ours.write("not.pem", "nonsense");
    for args in [&["key", "trust", "not.pem"][..], &["trace", "verify", copy, "--key", "not.pem"]] {
        let done = ours.call(args).exits(2);
        assert!(done.err().contains("not.pem"), "{}", done.err());
    }
}

/// A trace of another session under this one's name is no trace of this one.
#[test]
fn a_trace_under_anothers_id_is_not_valid() {
    let site = site();
    site.sh("exit 0").exits(0);
    site.sh("exit 1").exits(1);
    let ids = site.traces();
    fs::copy(site.events_file(&ids[0]), site.events_file(&ids[1])).unwrap();
    site.call(&["trace", "verify", &ids[1]]).exits(1);
    site.call(&["trace", "verify", &ids[0]]).exits(0);
}

#[test]
fn a_rotated_key_leaves_old_traces_valid() {
    each(|site| {
        site.sh("exit 0").exits(0);
        let old = json(&site.call(&["key", "show", "--json"]).exits(0).out());
        let rotated = json(&site.call(&["key", "rotate", "--json"]).exits(0).out());
        assert_eq!(rotated["old"], old["id"]);
        assert_ne!(rotated["new"], old["id"]);
        site.sh("exit 0").exits(0);
        for id in site.traces() {
            site.call(&["trace", "verify", &id]).exits(0);
        }
        let new = json(&site.call(&["trace", "verify", "latest", "--json"]).exits(0).out());
        assert_eq!(new["signer"], rotated["new"]);
        for entry in fs::read_dir(site.state().join("keys")).unwrap() {
            use std::os::unix::fs::PermissionsExt;
            let path = entry.unwrap().path();
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
        }
    });
}

#[test]
fn a_bundle_moves_a_trace_whole() {
    let (ours, theirs) = (site(), site());
    let id = eventful(&theirs);
    theirs.call(&["trace", "export", &id, "--format", "bundle", "-o", "trace.bundle"]).exits(0);
    let bundle = theirs.work().join("trace.bundle");
    theirs.call(&["trace", "verify", bundle.to_str().unwrap()]).exits(0);
    let told = ours.call(&["trace", "import", bundle.to_str().unwrap()]).exits(0);
    assert_eq!(told.out().trim(), id);
    ours.call(&["trace", "verify", &id]).exits(1);
    let key = ours.write("key.pem", theirs.call(&["key", "show"]).exits(0).out());
    ours.call(&["trace", "verify", &id, "--key", key.to_str().unwrap()]).exits(0);
    let shown = |site: &Site| site.call(&["trace", "show", &id]).exits(0).out();
    assert_eq!(shown(&ours), shown(&theirs));
    // What is there is not replaced by what comes.
    let again = ours.call(&["trace", "import", bundle.to_str().unwrap()]).exits(2);
    assert!(again.err().contains(&id), "{}", again.err());
    let to_stdout = theirs.call(&["trace", "export", &id, "--format", "bundle"]).exits(0);
    assert!(to_stdout.stdout == fs::read(&bundle).unwrap());
}

#[test]
fn a_bundle_that_is_none_is_refused() {
    let site = site();
    let id = eventful(&site);
    site.call(&["trace", "export", &id, "--format", "bundle", "-o", "whole"]).exits(0);
    let whole = fs::read(site.work().join("whole")).unwrap();
    site.write("cut", &whole[..whole.len() / 2]);
    site.write("noise", [7; 1000]);
    site.write("empty", "");
    for name in ["cut", "noise", "empty", "missing"] {
        let done = site.call(&["trace", "import", name]).exits(2);
        assert!(!done.err().is_empty(), "{name}");
        let done = site.call(&["trace", "verify", &format!("./{name}")]).done();
        // A writer that is killed before its first event leaves an empty file: nothing of it is wrong yet.
        let expected: &[i32] = if name == "empty" { &[3] } else { &[1, 2] };
        assert!(expected.contains(&done.code()), "{name}: {}{}", done.out(), done.err());
    }
    assert_eq!(site.traces(), [id]);
}

#[test]
fn exported_events_are_the_events() {
    let site = site();
    let id = eventful(&site);
    let out = site.call(&["trace", "export", &id]).exits(0);
    assert!(out.stdout == fs::read(site.events_file(&id)).unwrap());
    let file = site.write("events.jsonl", &out.stdout);
    // Without its payloads an events file is still whole as far as it goes.
    let done = site.call(&["trace", "verify", file.to_str().unwrap()]).done();
    assert!(matches!(done.code(), 0 | 1), "{}{}", done.out(), done.err());
    site.call(&["trace", "export", "nonesuch"]).exits(2);
}

#[test]
fn no_value_of_a_variable_is_recorded() {
    each(|site| {
        let value = "value-that-nobody-may-keep";
        let call = site.sh("true").with(&["--env", &format!("TOKEN={value}"), "--env", "PASSED"]);
        call.env("PASSED", format!("{value}-2")).exits(0);
        let id = site.traces().pop().unwrap();
        let text = fs::read_to_string(site.events_file(&id)).unwrap();
        assert!(text.contains("TOKEN") && text.contains("PASSED"));
        assert!(!text.contains(value), "the trace holds the value of a variable");
        site.call(&["trace", "verify", "latest"]).exits(0);
    });
}

#[test]
fn a_running_session_is_told_as_such() {
    each(|site| {
        let running = site.sh("exec sleep 1000").start();
        eventually("its exec", || {
            let there = !site.traces().is_empty() && !site.bodies("exec.started").is_empty();
            there.then_some(())
        });
        let listed = json(&site.call(&["trace", "ls", "--json"]).exits(0).out());
        assert_eq!(listed[0]["state"], "running", "{listed}");
        let done = site.call(&["trace", "verify", "latest"]).exits(3);
        assert!(done.out().contains("still running"), "{}", done.out());
        running.signal(Signal::TERM);
        running.finish().exits(143);
        site.call(&["trace", "verify", "latest"]).exits(0);
    });
}

#[test]
fn an_index_that_is_lost_or_damaged_is_made_again() {
    let site = site();
    site.sh("exit 0").exits(0);
    let before = site.call(&["trace", "ls"]).exits(0).out();
    let index = site.state().join("index.sqlite");
    fs::remove_file(&index).unwrap();
    assert_eq!(site.call(&["trace", "ls"]).exits(0).out(), before);
    fs::write(&index, "not a database").unwrap();
    site.give(&index);
    assert_eq!(site.call(&["trace", "ls"]).exits(0).out(), before);
}

/// The check that `docs/trace-format.md` gives to those who do not trust us: Python and OpenSSL, nothing of ours.
#[test]
fn the_check_in_the_documentation_agrees() {
    let site = site();
    let id = eventful(&site);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/trace-format.md");
    let page = fs::read_to_string(page).unwrap();
    let script = page.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let (script, key) = (site.write("check.py", script), site.work().join("key.pem"));
    fs::write(&key, site.call(&["key", "show"]).exits(0).out()).unwrap();
    let events = site.write("events.jsonl", fs::read(site.events_file(&id)).unwrap());
    let check = || {
        let mut python = site.command("python3");
        python.args([&script, &events, &key]).current_dir(site.work()).output().unwrap()
    };
    let told = check();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    assert!(String::from_utf8_lossy(&told.stdout).ends_with("events, finished\n"));
    let text = fs::read_to_string(&events).unwrap();
    fs::write(&events, text.replacen("\"tty\":false", "\"tty\":true", 1)).unwrap();
    assert!(!check().status.success(), "a changed event is found");
}

#[test]
fn two_traces_are_told_apart() {
    let site = site();
    site.sh("echo one > a; true").exits(0);
    site.sh("echo one > a; true").exits(0);
    site.sh("echo three > b; exit 4").exits(4);
    let ids = site.traces();
    let diff = |base: &str, new: &str| site.call(&["trace", "diff", base, new]).exits(0).out();
    assert!(diff(&ids[0], &ids[0]).contains("no difference that means anything"));
    let told = diff(&ids[0], &ids[2]);
    assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
    assert!(told.contains("added    file created b"), "{told}");
    assert!(told.contains("removed  file created a"), "{told}");
    let found = json(&site.call(&["--json", "trace", "diff", &ids[0], &ids[2]]).exits(0).out());
    assert_eq!(found["base"]["id"], *ids[0]);
    assert!(found["changes"].as_array().is_some_and(|all| !all.is_empty()), "{found}");
    let err = site.call(&["trace", "diff", &ids[0], "nosuchtrace"]).exits(2).err();
    assert!(err.contains("nosuchtrace"), "{err}");
}

#[test]
fn a_changed_trace_is_not_taken_for_a_run() {
    let site = site();
    let id = eventful(&site);
    let text = fs::read_to_string(site.events_file(&id)).unwrap();
    fs::write(site.events_file(&id), text.replace("GIVEN", "TAKEN")).unwrap();
    let err = site.call(&["trace", "diff", &id, &id]).exits(2).err();
    assert!(err.contains("not what was signed"), "{err}");
}

#[test]
fn a_trajectory_goes_out_and_comes_back() {
    let site = site();
    let id = eventful(&site);
    let out = site.root().join("run.atif.json");
    let to = out.to_str().unwrap();
    site.call(&["trace", "export", &id, "--format", "atif", "-o", to]).exits(0);
    let written = json(&fs::read_to_string(&out).unwrap());
    assert!(written["schema_version"].as_str().unwrap().starts_with("ATIF-v1"), "{written}");
    let calls: Vec<&Value> = written["steps"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|step| step["tool_calls"].as_array())
        .flatten()
        .collect();
    assert!(
        calls.iter().any(|call| call["function_name"].as_str().unwrap().starts_with("exec: ")),
        "{written}"
    );
    // Our own reader of foreign trajectories takes it.
    let told = site.call(&["trace", "diff", to, to]).exits(0).out();
    assert!(told.contains("no difference that means anything"), "{told}");
}

#[test]
fn a_copy_of_a_trace_goes_where_it_can_be_written_or_nothing_runs() {
    each(|site| {
        let there = site.root().join("nowhere/trace.jsonl");
        let there = there.to_str().unwrap();
        let refused = site.sh("touch ran").with(&["--trace-out", there]).exits(125).err();
        assert!(refused.contains("--trace-out") && refused.contains("nowhere"), "{refused}");
        assert!(!site.work().join("ran").exists() && site.traces().is_empty());
        // Nothing is left of a copy of what was never recorded, and what was there stays.
        let copy = site.write("trace.jsonl", "before");
        let name = copy.to_str().unwrap();
        site.run(&["true"]).with(&["--trace-out", name, "--floor", "nonesuch"]).exits(125);
        site.run(&["true"]).with(&["--trace-out", name, "--policy", "nonesuch.toml"]).exits(125);
        assert_eq!(fs::read_to_string(&copy).unwrap(), "before");
        let fresh = site.work().join("fresh.jsonl");
        let flags = ["--trace-out", fresh.to_str().unwrap(), "--policy", "nonesuch.toml"];
        site.run(&["true"]).with(&flags).exits(125);
        assert!(!fresh.exists());
        site.run(&["true"]).with(&["--trace-out", name]).exits(0);
        site.call(&["trace", "verify", name]).exits(0);
        let refused = site.call(&["trace", "export", "latest", "--out", there]).exits(2).err();
        assert!(refused.contains("nowhere"), "{refused}");
    });
}

#[test]
fn a_trace_that_is_here_is_not_taken_in_again() {
    let site = site();
    let id = eventful(&site);
    let file = site.root().join("bundle.tar.zst");
    let file = file.to_str().unwrap();
    site.call(&["trace", "export", &id, "--format", "bundle", "--out", file]).exits(0);
    let refused = site.call(&["trace", "import", file]).exits(2).err();
    let there = site.state().join("traces").join(&id);
    assert!(refused.contains(there.to_str().unwrap()), "{refused}");
}
