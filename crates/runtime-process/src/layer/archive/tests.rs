use super::*;
use crate::layer::{Counts, mark, tree_hash};
use rustix::fs::{FileType, Mode, XattrFlags};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

const MOST: Most = Most { bytes: 64 << 20, entries: 10_000, sync: false };

fn by_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn about(layers: usize) -> About {
    let ids = by_root().then_some(7);
    let since = Provenance { seconds: 1, nanos: 2, lead: 3, ids };
    About::new(SessionId::new(1, 2), "/work".into(), layers, since)
}

/// Everything that a layer can hold.
fn layer(dir: &Path) {
    fs::create_dir_all(dir.join("deep").join("d/".repeat(150))).unwrap();
    fs::write(dir.join("file"), "content").unwrap();
    fs::set_permissions(dir.join("file"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(dir.join("file"), dir.join("deep/link")).unwrap();
    symlink("/etc/passwd", dir.join("symlink")).unwrap();
    fs::write(dir.join("n".repeat(255)), "").unwrap();
    fs::write(dir.join("two\nlines"), "x").unwrap();
    let hole = fs::File::create(dir.join("hole")).unwrap();
    hole.set_len(8 << 20).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, dir.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, dir.join("gone"), FileType::CharacterDevice, Mode::empty(), 0)
        .unwrap();
    rustix::fs::setxattr(dir.join("file"), "user.colour", b"blue", XattrFlags::empty()).unwrap();
    fs::create_dir(dir.join("opaque")).unwrap();
    let opaque = mark("opaque", by_root());
    rustix::fs::setxattr(dir.join("opaque"), opaque.as_str(), b"y", XattrFlags::empty()).unwrap();
    fs::set_permissions(dir.join("opaque"), fs::Permissions::from_mode(0o500)).unwrap();
    if let (true, Some(base)) = (by_root(), super::base(&about(1).since)) {
        for entry in fs::read_dir(dir).unwrap() {
            std::os::unix::fs::lchown(entry.unwrap().path(), Some(base + 1000), Some(base + 1000)).unwrap();
        }
    }
}

fn taken(bytes: &[u8]) -> (TempDir, Result<About, ArchiveError>) {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_owned();
    let done = unpack(bytes, by_root(), MOST, &mut |about| {
        Ok((0..about.layers).map(|layer| at.join(layer.to_string())).collect())
    });
    (dir, done)
}

#[test]
fn what_was_packed_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let layers = [dir.path().join("one"), dir.path().join("two")];
    for path in &layers {
        fs::create_dir(path).unwrap();
        layer(path);
    }
    let _socket = std::os::unix::net::UnixListener::bind(layers[0].join("socket")).unwrap();
    let mut packed = Vec::new();
    let omitted = pack(&about(2), &layers, by_root(), &mut packed).unwrap();
    assert_eq!(omitted, [Path::new("0/socket")]);
    fs::remove_file(layers[0].join("socket")).unwrap();
    assert!(packed.len() < 64 << 10, "holes cost nothing: {}", packed.len());
    let (back, done) = taken(&packed);
    assert_eq!(done.unwrap(), about(2));
    for (at, path) in layers.iter().enumerate() {
        let back = back.path().join(at.to_string());
        let hash = |dir: &Path| tree_hash(dir, Counts { owners: false, times: false }).unwrap();
        let owner =
            |dir: &Path| std::os::unix::fs::MetadataExt::uid(&fs::metadata(dir.join("file")).unwrap());
        assert_eq!(owner(path), owner(&back));
        let time = |dir: &Path, name| fs::symlink_metadata(dir.join(name)).unwrap().modified().unwrap();
        for name in ["file", "symlink", "fifo", "opaque", "deep/d"] {
            assert_eq!(time(path, name), time(&back, name), "{name}");
        }
        assert_eq!(format!("{:?}", hash(path)), format!("{:?}", hash(&back)));
        let blocks =
            |dir: &Path| std::os::unix::fs::MetadataExt::blocks(&fs::metadata(dir.join("hole")).unwrap());
        assert_eq!(blocks(&back), 0, "a hole stays one");
        let value = &mut [0u8; 8];
        let opaque = mark("opaque", by_root());
        assert_eq!(rustix::fs::getxattr(back.join("opaque"), opaque.as_str(), &mut value[..]), Ok(1));
    }
}

/// An archive that somebody else made.
fn crafted(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
    let mut tar = Builder::new(zstd::Encoder::new(Vec::new(), 1).unwrap());
    let text = serde_json::to_vec(&about(2)).unwrap();
    let mut add = |kind: EntryType, path: &str, content: &[u8], link: &str| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_uid(1000);
        header.set_gid(1000);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        // Past all checks of the library that we write with.
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_gnu_mut().unwrap().linkname[..link.len()].copy_from_slice(link.as_bytes());
        if kind == EntryType::Char {
            header.set_device_major(1).unwrap();
            header.set_device_minor(3).unwrap();
        }
        header.set_cksum();
        tar.append(&header, content).unwrap();
    };
    add(EntryType::Regular, ABOUT, &text, "");
    for (kind, path, link) in entries {
        let content: &[u8] = if *kind == EntryType::Regular { b"x" } else { b"" };
        add(*kind, path, content, link);
    }
    tar.into_inner().unwrap().finish().unwrap()
}

#[test]
fn nothing_leads_out_of_a_layer() {
    let victim = tempfile::tempdir().unwrap();
    let out = victim.path().to_str().unwrap();
    let file = EntryType::Regular;
    let (linked, absolute) = (format!("{out}/made"), format!("{out}/made"));
    for entries in [
        vec![(file, "../made", "")],
        vec![(file, "0/../../made", "")],
        vec![(file, absolute.as_str(), "")],
        vec![(file, "made", "")],
        vec![(file, "2/made", "")],
        vec![(EntryType::Symlink, "0/out", out), (file, "0/out/made", "")],
        vec![(EntryType::Symlink, "0/out", linked.as_str()), (file, "0/out", "")],
        vec![(EntryType::Link, "0/link", "0/../../../etc/passwd")],
        vec![(EntryType::Link, "0/link", "/etc/passwd")],
        vec![(EntryType::Symlink, "0/s", "/etc/passwd"), (file, "1/x", ""), (EntryType::Link, "0/l", "1/x")],
        vec![(EntryType::Char, "0/null", "")],
        vec![(EntryType::Block, "0/disk", "")],
        vec![(file, "0/twice", ""), (file, "0/twice", "")],
        vec![(EntryType::new(b'Z'), "0/odd", "")],
    ] {
        let (_dir, done) = taken(&crafted(&entries));
        assert!(
            matches!(done, Err(ArchiveError::Entry { .. } | ArchiveError::Io { .. })),
            "{entries:?}: {done:?}"
        );
        assert_eq!(fs::read_dir(victim.path()).unwrap().count(), 0, "{entries:?}");
    }
    // The control: the same way of making one, with nothing wrong in it.
    let (dir, done) = taken(&crafted(&[(EntryType::Directory, "0/d", ""), (file, "0/d/made", "")]));
    done.unwrap();
    assert_eq!(fs::read(dir.path().join("0/d/made")).unwrap(), b"x");
}

#[test]
fn set_id_bits_do_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let layer = dir.path().join("one");
    fs::create_dir(&layer).unwrap();
    fs::write(layer.join("file"), "x").unwrap();
    fs::set_permissions(layer.join("file"), fs::Permissions::from_mode(0o6755)).unwrap();
    let mut packed = Vec::new();
    pack(&about(1), &[layer], by_root(), &mut packed).unwrap();
    let (back, done) = taken(&packed);
    done.unwrap();
    assert_eq!(fs::metadata(back.path().join("0/file")).unwrap().permissions().mode() & 0o7777, 0o755);
}

#[test]
fn too_much_and_nonsense_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let layer = dir.path().join("one");
    fs::create_dir(&layer).unwrap();
    fs::File::create(layer.join("large")).unwrap().set_len(1 << 30).unwrap();
    let mut packed = Vec::new();
    pack(&about(1), &[layer], by_root(), &mut packed).unwrap();
    let (_, done) = taken(&packed);
    assert!(matches!(done, Err(ArchiveError::TooMuch(_))), "{done:?}");
    assert!(matches!(taken(b"nonsense").1, Err(ArchiveError::Io { .. } | ArchiveError::Format(_))));
    // Whatever becomes of the bytes, there is an error or a layer, and no panic.
    let good = crafted(&[(EntryType::Directory, "0/d", ""), (EntryType::Regular, "0/d/f", "")]);
    let plain = zstd::decode_all(&good[..]).unwrap();
    let mut seed = 9u64;
    for _ in 0..400 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut bytes = plain.clone();
        let at = (seed >> 16) as usize % bytes.len();
        bytes[at] ^= (seed >> 8) as u8 | 1;
        bytes.truncate(bytes.len() - (seed >> 60) as usize * 7);
        let _ = taken(&zstd::encode_all(&bytes[..], 1).unwrap());
    }
}
