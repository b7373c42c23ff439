//! Images made by the tests: good ones, and ones that mean harm.

use super::Most;
use crate::{Access, ImageError, Imported, Place, import, open};
use cofferdam_seal::digest;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

#[derive(Default)]
pub(crate) struct Tar(Vec<(Header, Vec<u8>)>);

impl Tar {
    fn with(mut self, path: &str, kind: EntryType, mode: u32, link: &str, content: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        // By hand: the library refuses to write what is hostile.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(7);
        header.set_gid(7);
        header.set_mtime(1_000_000_000);
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.0.push((header, content.to_vec()));
        self
    }

    pub(crate) fn file(self, path: &str, content: &str) -> Self {
        self.with(path, EntryType::Regular, 0o644, "", content.as_bytes())
    }

    pub(crate) fn dir(self, path: &str) -> Self {
        self.with(path, EntryType::Directory, 0o755, "", b"")
    }

    fn link(self, path: &str, to: &str) -> Self {
        self.with(path, EntryType::Symlink, 0o777, to, b"")
    }

    fn hard(self, path: &str, to: &str) -> Self {
        self.with(path, EntryType::Link, 0o644, to, b"")
    }

    fn bytes(self) -> Vec<u8> {
        let mut tar = Builder::new(Vec::new());
        for (header, content) in &self.0 {
            tar.append(header, content.as_slice()).unwrap();
        }
        tar.into_inner().unwrap()
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

/// An OCI layout with these layers, each as it is and as it is kept.
pub(crate) struct Layout {
    dir: TempDir,
    layers: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Layout {
    fn new(layers: Vec<(Vec<u8>, Vec<u8>)>) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), layers }
    }

    pub(crate) fn plain(layers: Vec<Tar>) -> Self {
        Self::new(layers.into_iter().map(Tar::bytes).map(|bytes| (bytes.clone(), bytes)).collect())
    }

    fn blob(&self, bytes: &[u8]) -> String {
        let digest = digest(bytes).to_string();
        let blobs = self.dir.path().join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        fs::write(blobs.join(&digest), bytes).unwrap();
        format!(r#""digest":"sha256:{digest}","size":{}"#, bytes.len())
    }

    pub(crate) fn write(&self) -> &Path {
        let diffs: Vec<String> =
            self.layers.iter().map(|(plain, _)| format!(r#""sha256:{}""#, digest(plain))).collect();
        let config = format!(
            r#"{{"architecture":"{}","os":"linux","config":{{"Env":["A=1"],"Cmd":["sh"]}},"rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
            crate::oci::architecture(),
            diffs.join(",")
        );
        let layers: Vec<String> =
            self.layers.iter().map(|(_, kept)| format!("{{{}}}", self.blob(kept))).collect();
        let manifest =
            format!(r#"{{"config":{{{}}},"layers":[{}]}}"#, self.blob(config.as_bytes()), layers.join(","));
        let index = format!(r#"{{"manifests":[{{{}}}]}}"#, self.blob(manifest.as_bytes()));
        fs::write(self.dir.path().join("index.json"), index).unwrap();
        self.dir.path()
    }
}

struct Into {
    dir: TempDir,
}

impl Into {
    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("tree").join(path)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_default()
    }
}

fn take(from: &Path, most: Most) -> (Into, Result<Imported, ImageError>) {
    let into = Into { dir: tempfile::tempdir().unwrap() };
    fs::create_dir(into.at("")).unwrap();
    let place = Place::Path(from.to_owned());
    let taken = open(&place, Access::default(), into.dir.path(), most)
        .and_then(|mut source| import(source.as_mut(), None, &into.at(""), most));
    (into, taken)
}

fn good(layout: &Layout) -> (Into, Imported) {
    let (into, taken) = take(layout.write(), Most::default());
    (into, taken.unwrap())
}

fn bad(layers: Vec<Tar>) -> String {
    let (into, taken) = take(Layout::plain(layers).write(), Most::default());
    let outside = into.dir.path().join("escaped");
    assert!(!outside.exists());
    taken.unwrap_err().to_string()
}

#[test]
fn layers_add_replace_and_take_away() {
    let first = Tar::default()
        .dir("etc")
        .file("etc/a", "1")
        .file("etc/b", "1")
        .dir("opt")
        .file("opt/x", "1")
        .dir("opt/deep")
        .file("opt/deep/y", "1")
        .file("becomes-dir", "1")
        .dir("becomes-file")
        .file("becomes-file/inner", "1");
    let second = Tar::default()
        .file("etc/a", "2")
        .file("etc/.wh.b", "")
        // Its own stays, wherever the mark stands.
        .file("opt/new", "2")
        .file("opt/.wh..wh..opq", "")
        .file("opt/later", "2")
        .dir("becomes-dir")
        .file("becomes-dir/z", "2")
        .file("becomes-file", "2")
        .file("etc/c", "2")
        .file("etc/.wh.c", "");
    for pack in [|bytes: &[u8]| bytes.to_vec(), gzip, |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap()] {
        let layers = [&first.0, &second.0].map(|entries| Tar(entries.clone()).bytes());
        let layout = Layout::new(layers.into_iter().map(|bytes| (bytes.clone(), pack(&bytes))).collect());
        let (into, taken) = good(&layout);
        assert_eq!((into.text("etc/a"), into.text("etc/c")), ("2".into(), "2".into()));
        assert!(!into.at("etc/b").exists() && !into.at("opt/x").exists() && !into.at("opt/deep").exists());
        assert_eq!((into.text("opt/new"), into.text("opt/later")), ("2".into(), "2".into()));
        assert_eq!((into.text("becomes-dir/z"), into.text("becomes-file")), ("2".into(), "2".into()));
        assert_eq!(
            (taken.layers, taken.config.env, taken.config.cmd),
            (2, vec!["A=1".into()], vec!["sh".into()])
        );
        let owner = if taken.owners { 7 } else { rustix::process::geteuid().as_raw() };
        assert_eq!(fs::metadata(into.at("etc/a")).unwrap().uid(), owner);
        assert_eq!(fs::metadata(into.at("etc/a")).unwrap().mtime(), 1_000_000_000);
    }
}

#[test]
fn links_lead_within_the_tree_and_never_out() {
    let outside = tempfile::tempdir().unwrap();
    let host = outside.path().join("host");
    fs::create_dir(&host).unwrap();
    fs::write(host.join("file"), "host").unwrap();
    let to = host.to_str().unwrap();
    let layer = Tar::default()
        .dir("usr/lib")
        .link("lib", "usr/lib")
        .file("lib/inner", "through a link")
        .link("absolute", to)
        .file("absolute/file", "image")
        .dir("tmp")
        .link("up", "../../../../../../../../../../tmp")
        .file("up/from-up", "image")
        .link("file-link", &format!("{to}/file"))
        .file("file-link", "replaced")
        .link("dangling", "/no/where")
        .file("dangling/x", "made");
    let (into, _) = good(&Layout::plain(vec![layer]));
    assert_eq!(into.text("usr/lib/inner"), "through a link");
    assert_eq!(fs::read_to_string(host.join("file")).unwrap(), "host");
    assert_eq!(fs::read_dir(&host).unwrap().count(), 1);
    assert!(!Path::new("/tmp/from-up").exists());
    assert_eq!(into.text("tmp/from-up"), "image");
    assert!(into.at("file-link").symlink_metadata().unwrap().is_file());
    assert_eq!(into.text("dangling/x"), "made");
}

#[test]
fn what_grants_something_is_taken_without_it() {
    let layer = Tar::default()
        .with("bin/su", EntryType::Regular, 0o4755, "", b"su")
        .with("bin/wall", EntryType::Regular, 0o2755, "", b"wall")
        .with("spool", EntryType::Directory, 0o3777, "", b"")
        .with("dev/sda", EntryType::Block, 0o660, "", b"")
        .with("dev/kmsg", EntryType::Char, 0o660, "", b"")
        .with("pipe", EntryType::Fifo, 0o644, "", b"");
    let (into, taken) = good(&Layout::plain(vec![layer]));
    let mode = |path: &str| fs::metadata(into.at(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("bin/su"), mode("bin/wall"), mode("spool")), (0o755, 0o755, 0o1777));
    assert_eq!((taken.notes.devices, taken.notes.set_id), (2, vec!["bin/su".into(), "bin/wall".into()]));
    assert!(!into.at("dev/sda").exists() && !into.at("dev/kmsg").exists());
}

#[test]
fn hard_links_are_other_names_of_files_of_the_image() {
    let one = || Tar::default().file("a", "1").hard("dir/b", "a").hard("./c", "/a");
    let (into, _) = good(&Layout::plain(vec![one(), Tar::default().hard("d", "dir/b").hard("a", "a")]));
    let inode = |path: &str| fs::metadata(into.at(path)).unwrap().ino();
    assert_eq!([inode("dir/b"), inode("c"), inode("d")], [inode("a"); 3]);
    for (path, to, why) in [
        ("x", "../escaped", "a link to nothing"),
        ("x", "", "a link to nothing"),
        ("x", "no/such", "not there"),
        ("x", "dir", "another name of a directory"),
    ] {
        let said = bad(vec![Tar::default().dir("dir").hard(path, to)]);
        assert!(said.contains(why), "{to}: {said}");
    }
    // Through a link of the image to a file of the host.
    let said = bad(vec![Tar::default().link("etc-of-host", "/etc").hard("x", "etc-of-host/passwd")]);
    assert!(said.contains("not there"), "{said}");
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    for path in ["../escaped", "a/../../escaped", "a/.."] {
        assert!(bad(vec![Tar::default().file(path, "x")]).contains("leads elsewhere"), "{path}");
    }
    for mark in [".wh.", ".wh..", ".wh...", "a/.wh.."] {
        assert!(bad(vec![Tar::default().file(mark, "")]).contains("takes nothing away"), "{mark}");
    }
    assert!(bad(vec![Tar::default().link("loop", "loop").file("loop/x", "")]).contains("refused"));
    assert!(bad(vec![Tar::default().with("s", EntryType::GNUSparse, 0o644, "", b"")]).contains("holes"));
}

#[test]
fn through_links_a_tree_gets_no_deeper() {
    let deep = "d/".repeat(45);
    let mut layer = Tar::default().link("l0", ".");
    for at in 0..12 {
        layer = layer.dir(&format!("l{at}/{deep}")).link(&format!("l{}", at + 1), &format!("l{at}/{deep}"));
    }
    assert!(bad(vec![layer]).contains("too deep"));
}

#[test]
fn what_is_not_what_it_is_said_to_be_is_refused() {
    let layer = Tar::default().file("a", "1").bytes();
    let kept = gzip(&layer);
    // Another content than the config says.
    let layout = Layout::new(vec![(Tar::default().file("b", "1").bytes(), kept.clone())]);
    let said = take(layout.write(), Most::default()).1.unwrap_err().to_string();
    assert!(said.contains("what the layer") && said.contains("digest"), "{said}");
    // Bytes that were changed, cut and added.
    for change in [
        |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1,
        |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 1),
        |bytes: &mut Vec<u8>| bytes.push(0),
    ] {
        let layout = Layout::new(vec![(layer.clone(), kept.clone())]);
        let dir = layout.write();
        let blob = dir.join("blobs/sha256").join(digest(&kept).to_string());
        let mut bytes = kept.clone();
        change(&mut bytes);
        fs::write(&blob, &bytes).unwrap();
        assert!(take(dir, Most::default()).1.is_err());
    }
    // A document.
    let layout = Layout::new(vec![(layer, kept)]);
    let dir = layout.write();
    for entry in fs::read_dir(dir.join("blobs/sha256")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read(&path).unwrap();
        if text.starts_with(b"{\"architecture") {
            fs::write(&path, String::from_utf8(text).unwrap().replace("A=1", "A=2")).unwrap();
        }
    }
    let said = take(dir, Most::default()).1.unwrap_err().to_string();
    assert!(said.contains("digest"), "{said}");
}

#[test]
fn how_much_is_taken_is_bounded() {
    let zeros = |size: usize| {
        let bytes = Tar::default().with("zeros", EntryType::Regular, 0o644, "", &vec![0; size]).bytes();
        (bytes.clone(), gzip(&bytes))
    };
    let most = Most { bytes: 1 << 20, entries: 10 };
    assert!(take(Layout::new(vec![zeros(1 << 19)]).write(), most).1.is_ok());
    let said = take(Layout::new(vec![zeros(1 << 22)]).write(), most).1.unwrap_err();
    assert!(matches!(said, ImageError::TooMuch(_)), "{said}");
    // Two layers together.
    let two = vec![zeros(700 << 10), zeros(701 << 10)];
    assert!(matches!(take(Layout::new(two).write(), most).1.unwrap_err(), ImageError::TooMuch(_)));
    let many = (0..20).fold(Tar::default(), |tar, at| tar.file(&at.to_string(), ""));
    let said = take(Layout::plain(vec![many]).write(), most).1.unwrap_err();
    assert!(matches!(said, ImageError::TooMany(10)), "{said}");
    // What comes after the end of an archive is read for its digest, and counts too.
    let mut tail = Tar::default().file("a", "1").bytes();
    tail.extend(vec![0; 4 << 20]);
    let said = take(Layout::new(vec![(tail.clone(), gzip(&tail))]).write(), most).1.unwrap_err();
    assert!(matches!(said, ImageError::TooMuch(_)), "{said}");
    // A name that is as long as a disk.
    let name = Tar::default().with("././@LongLink", EntryType::GNULongName, 0o644, "", &vec![b'a'; 2 << 20]);
    let said = take(Layout::plain(vec![name]).write(), Most::default()).1.unwrap_err().to_string();
    assert!(said.contains("too long"), "{said}");
}

/// A header with attributes, which belongs to what comes next.
fn attributes(tar: Tar, name: &str, value: &[u8]) -> Tar {
    let rest = [format!(" SCHILY.xattr.{name}=").as_bytes(), value, b"\n"].concat();
    // Its length counts itself.
    let digits = (1..9).find(|digits| (rest.len() + digits).to_string().len() == *digits).unwrap();
    let text = [(rest.len() + digits).to_string().as_bytes(), &rest].concat();
    tar.with("attributes", EntryType::XHeader, 0o644, "", &text)
}

#[test]
fn what_stands_before_an_entry_is_bounded() {
    let (into, taken) = take(
        Layout::plain(vec![attributes(Tar::default(), "user.a", b"b").file("a", "1")]).write(),
        Most::default(),
    );
    assert_eq!((taken.unwrap().files, into.text("a").as_str()), (1, "1"));
    // More than any file can have, at once and little by little.
    let large = attributes(Tar::default(), "user.a", &vec![0; 900 << 10]).file("a", "1");
    let many = (0..100)
        .fold(Tar::default(), |tar, at| attributes(tar, &format!("user.{at}"), &[0; 1000]))
        .file("a", "1");
    for tar in [large, many] {
        let said = bad(vec![tar]);
        assert!(said.contains("more attributes than a file can have"), "{said}");
    }
    // They are entries as well, whatever comes after them.
    let most = Most { bytes: 1 << 20, entries: 10 };
    let many = (0..20).fold(Tar::default(), |tar, _| attributes(tar, "user.a", b""));
    let said = take(Layout::plain(vec![many.file("a", "1")]).write(), most).1.unwrap_err();
    assert!(matches!(said, ImageError::TooMany(10)), "{said}");
    // One layer ten times is ten times as much.
    let mut tail = Tar::default().file("a", "1").bytes();
    tail.extend(vec![0; 800 << 10]);
    let same = (tail.clone(), gzip(&tail));
    let said = take(Layout::new(vec![same.clone(), same.clone(), same]).write(), most).1.unwrap_err();
    assert!(matches!(said, ImageError::TooMuch(_)), "{said}");
}

#[test]
fn marks_of_one_directory_are_as_good_as_one() {
    let mark = |tar: Tar, dir: &str| tar.file(&format!("{dir}/.wh..wh..opq"), "");
    let lower = Tar::default().dir("a").file("a/old", "1").dir("a/b").file("a/b/old", "1").file("kept", "1");
    let upper = mark(Tar::default().dir("a").dir("a/b").file("a/b/new", "2"), "a/b");
    let upper = mark(mark(mark(upper.file("a/new", "2"), "a"), "a"), "a/b").file("a/late", "2");
    let (into, _) = good(&Layout::plain(vec![lower, mark(upper, "a")]));
    let there = |path: &str| into.at(path).exists();
    assert!(!there("a/old") && !there("a/b/old"));
    assert!(there("a/new") && there("a/b/new") && there("a/late") && there("kept"));
}

#[test]
fn archives_are_read_as_directories_are() {
    let layer = Tar::default().dir("etc").file("etc/a", "archived").bytes();
    let layout = Layout::new(vec![(layer.clone(), gzip(&layer))]);
    let dir = layout.write();
    let mut tar = Builder::new(Vec::new());
    tar.append_dir_all(".", dir).unwrap();
    let oci = tar.into_inner().unwrap();
    // As `docker save` had it before it was also a layout: a layer once, and a link to it.
    let config =
        fs::read_dir(dir.join("blobs/sha256")).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    let config = config.into_iter().find(|bytes| bytes.starts_with(b"{\"architecture")).unwrap();
    let name = digest(&config).to_string();
    let manifest = format!(r#"[{{"Config":"{name}.json","RepoTags":["app:1"],"Layers":["two/layer.tar"]}}]"#);
    let saved = |config: &[u8]| {
        Tar::default()
            .with("one/layer.tar", EntryType::Regular, 0o644, "", &layer)
            .link("two/layer.tar", "../one/layer.tar")
            .with(&format!("{name}.json"), EntryType::Regular, 0o644, "", config)
            .with("manifest.json", EntryType::Regular, 0o644, "", manifest.as_bytes())
            .bytes()
    };
    let place = tempfile::tempdir().unwrap();
    for (number, bytes) in [oci.clone(), gzip(&oci), saved(&config), gzip(&saved(&config))].iter().enumerate()
    {
        let path = place.path().join(number.to_string());
        fs::write(&path, bytes).unwrap();
        let (into, taken) = take(&path, Most::default());
        taken.unwrap();
        assert_eq!(into.text("etc/a"), "archived", "{number}");
    }
    let changed = place.path().join("changed");
    fs::write(&changed, saved(&[&config[..], b" "].concat())).unwrap();
    assert!(take(&changed, Most::default()).1.unwrap_err().to_string().contains("config"));
    for (name, bytes) in [("empty", &b""[..]), ("text", b"hello"), ("tar", &layer)] {
        let path = place.path().join(name);
        fs::write(&path, bytes).unwrap();
        let said = take(&path, Most::default()).1.unwrap_err().to_string();
        assert!(said.contains("no image"), "{name}: {said}");
    }
}
