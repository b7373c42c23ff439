//! `session cp`: files between here and a session, by every kind of user.

use crate::each;
use crate::live::Hall;
use std::fs;

#[test]
fn files_go_in_and_come_out_as_they_are() {
    each(|site| {
        let hall = Hall(site);
        hall.create(&["--name", "box"]);
        let bytes: Vec<u8> =
            (0..2_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let given = site.root().join("given.bin");
        fs::write(&given, &bytes).unwrap();
        site.give(&given);
        let given = given.to_str().unwrap();
        hall.call(&["cp", given, "box:/tmp/in/one.bin"]).exits(0);
        hall.call(&["cp", given, "box:/tmp/in/"]).exits(0);
        hall.exec("box", "cmp /tmp/in/one.bin /tmp/in/given.bin").exits(0);
        let back = site.home().join("back.bin");
        hall.call(&["cp", "box:/tmp/in/one.bin", back.to_str().unwrap()]).exits(0);
        assert!(fs::read(&back).unwrap() == bytes);
        // A directory goes in with what is in it; links are left.
        site.write("tree/sub/file", "content");
        std::os::unix::fs::symlink("/etc/passwd", site.work().join("tree/link")).unwrap();
        let tree = site.work().join("tree");
        hall.call(&["cp", tree.to_str().unwrap(), "box:/tmp/tree"]).exits(0);
        hall.exec("box", "test \"$(cat /tmp/tree/sub/file)\" = content && test ! -e /tmp/tree/link").exits(0);
        // Every file that went in is on record, with its digest, before it is there.
        let asked = site.bodies("file.asked");
        let written = asked.iter().find(|body| body["path"] == "/tmp/in/one.bin").unwrap();
        assert_eq!((&written["op"], &written["size"]), (&"write".into(), &2_000_000.into()), "{written}");
        assert!(written["digest"].is_string() && written["by"].as_str().unwrap().starts_with("uid "));
        hall.call(&["kill", "box"]).exits(0);
    });
}

#[test]
fn what_cannot_be_copied_is_told_and_leaves_nothing() {
    let site = crate::site();
    let hall = Hall(&site);
    hall.create(&["--name", "box"]);
    let check = |words: &[&str], code: i32, part: &str| {
        let done = hall.call(words).exits(code);
        assert!(done.err().contains(part), "{}", done.err());
    };
    let here = site.home().join("here");
    let here = here.to_str().unwrap();
    check(&["cp", "box:/no/such/file", here], 2, "no such file");
    check(&["cp", "box:/tmp", here], 2, "directory");
    check(&["cp", "box:relative", here], 2, "absolute");
    check(&["cp", "a", "b"], 2, "SESSION:PATH");
    check(&["cp", "nosuch:/tmp/x", here], 2, "nosuch");
    check(&["cp", "/no/such/file", "box:/tmp/x"], 2, "/no/such/file");
    // The host's own files are not the session's to write.
    check(&["cp", "/etc/hostname", "box:/etc/cofferdam-was-here"], 2, "/etc/cofferdam-was-here");
    assert!(!std::path::Path::new("/etc/cofferdam-was-here").exists());
    assert_eq!(fs::read_dir(site.home()).unwrap().count(), 0, "nothing is left of what did not come");
    hall.call(&["kill", "box"]).exits(0);
}
