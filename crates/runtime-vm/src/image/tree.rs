//! A tree of files that is to become an image: what of the host is in it, and under which owners. Contents are not
//! read here, only found.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// Deeper than this nothing is looked at.
const DEPTH: usize = 250;

/// A node, by its place in the list.
pub(super) type Id = usize;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Dir(BTreeMap<OsString, Id>),
    /// A file of the host's, whose bytes are read when they are asked for.
    File(Origin),
    /// A file of our own.
    Bytes(Vec<u8>),
    Link(Vec<u8>),
    Device {
        block: bool,
        number: u64,
    },
    Fifo,
    Socket,
}

/// Where a file's bytes are, and what it was when it was found: one that has changed since is not given out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) path: PathBuf,
    pub(super) inode: u64,
    pub(super) size: u64,
    pub(super) time: (i64, u32),
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) mode: u16,
    pub(super) owner: (u32, u32),
    pub(super) time: (i64, u32),
    pub(super) links: u32,
    pub(super) attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// How a directory of the host is taken over.
#[derive(Debug, Clone, Default)]
pub(crate) struct Taken<'a> {
    /// Whose files become whose. All others' become nobody's; without this, everyone keeps their own.
    pub(crate) owner: Option<((u32, u32), (u32, u32))>,
    /// Paths below it that are left out.
    pub(crate) hidden: BTreeSet<PathBuf>,
    /// Whether ordinary attributes are taken too.
    pub(crate) attributes: bool,
    /// Only what everyone may read.
    pub(crate) public: bool,
    /// It is a layer, and this is what its overlay's marks are called.
    pub(crate) layer: Option<&'a str>,
}

const NOBODY: (u32, u32) = (65_534, 65_534);

/// What is to become an image.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(super) nodes: Vec<Node>,
    /// Files with several names, by where they are on the host.
    linked: HashMap<(u64, u64), Id>,
    /// Directories that were read, with their times: while they stay the same, so do their names.
    pub(super) seen: Vec<(PathBuf, (i64, u32))>,
}

fn time(meta: &Metadata) -> (i64, u32) {
    (meta.mtime(), meta.mtime_nsec() as u32)
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    pub(crate) fn new() -> Self {
        Self {
            nodes: vec![plain(Kind::Dir(BTreeMap::new()), 0o755)],
            linked: HashMap::new(),
            seen: Vec::new(),
        }
    }

    /// A directory of our own, with those above it.
    pub(crate) fn dir(&mut self, path: &Path) {
        self.make(path);
    }

    fn make(&mut self, path: &Path) -> Id {
        let mut at = 0;
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            at = match self.child(at, name) {
                Some(found) => found,
                None => self.add(at, name, plain(Kind::Dir(BTreeMap::new()), 0o755)),
            };
        }
        at
    }

    /// A file of our own.
    pub(crate) fn file(&mut self, path: &Path, bytes: Vec<u8>, mode: u16) {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return };
        let at = self.make(above);
        self.add(at, name, plain(Kind::Bytes(bytes), mode));
    }

    /// A link of our own.
    pub(crate) fn link(&mut self, path: &Path, target: &Path) {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return };
        let at = self.make(above);
        self.add(at, name, plain(Kind::Link(target.as_os_str().as_bytes().to_vec()), 0o777));
    }

    /// What the host has at `from`, with all below it. What cannot be looked at is left out, as a plain user's own
    /// programs would find it.
    pub(crate) fn take(&mut self, path: &Path, from: &Path, how: &Taken<'_>) -> io::Result<()> {
        let meta = fs::symlink_metadata(from)?;
        let above = self.make(path.parent().unwrap_or(Path::new("")));
        match path.file_name() {
            Some(name) => self.entry(above, name, from, Path::new(""), &meta, how, 0),
            None => self.fill(0, from, Path::new(""), how, 0),
        }
        Ok(())
    }

    fn child(&self, at: Id, name: &OsStr) -> Option<Id> {
        match &self.nodes.get(at)?.kind {
            Kind::Dir(children) => children.get(name).copied(),
            _ => None,
        }
    }

    fn add(&mut self, at: Id, name: &OsStr, node: Node) -> Id {
        let id = self.nodes.len();
        self.nodes.push(node);
        self.place(at, name, id);
        id
    }

    fn place(&mut self, at: Id, name: &OsStr, id: Id) {
        let is_dir = matches!(self.nodes.get(id).map(|node| &node.kind), Some(Kind::Dir(_)));
        if let Some(node) = self.nodes.get_mut(at)
            && let Kind::Dir(children) = &mut node.kind
        {
            children.insert(name.to_owned(), id);
            node.links += u32::from(is_dir);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one place in a walk is all of these")]
    fn entry(
        &mut self,
        at: Id,
        name: &OsStr,
        from: &Path,
        below: &Path,
        meta: &Metadata,
        how: &Taken<'_>,
        depth: usize,
    ) {
        if how.hidden.contains(below) || depth > DEPTH {
            return;
        }
        let is_dir = meta.is_dir();
        let needed = if is_dir { 0o005 } else { 0o004 };
        if how.public && !meta.is_symlink() && meta.mode() & needed != needed {
            return;
        }
        let key = (meta.dev(), meta.ino());
        if !is_dir
            && meta.nlink() > 1
            && let Some(&first) = self.linked.get(&key)
        {
            self.place(at, name, first);
            if let Some(node) = self.nodes.get_mut(first) {
                node.links += 1;
            }
            return;
        }
        let Some(kind) = kind(from, meta) else { return };
        let attributes = attributes(from, meta, how);
        let node = Node {
            kind,
            mode: (meta.mode() & 0o7777) as u16,
            owner: owner(meta, how),
            time: time(meta),
            links: if is_dir { 2 } else { 1 },
            attributes,
        };
        let existing = if is_dir { self.child(at, name) } else { None };
        let id = match existing.and_then(|id| self.nodes.get_mut(id).map(|there| (id, there))) {
            // Made for something that lies in it: it is the host's, with what was put there.
            Some((id, there)) => {
                let kind = std::mem::replace(&mut there.kind, Kind::Fifo);
                let links = there.links;
                *there = Node { kind, links, ..node };
                id
            }
            None => self.add(at, name, node),
        };
        if is_dir {
            self.fill(id, from, below, how, depth);
        } else if meta.nlink() > 1 {
            self.linked.insert(key, id);
        }
    }

    fn fill(&mut self, id: Id, from: &Path, below: &Path, how: &Taken<'_>, depth: usize) {
        let Ok(entries) = fs::read_dir(from) else { return };
        if let Ok(meta) = fs::symlink_metadata(from) {
            self.seen.push((from.to_owned(), time(&meta)));
        }
        for entry in entries.flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            let name = entry.file_name();
            self.entry(id, &name, &entry.path(), &below.join(&name), &meta, how, depth + 1);
        }
    }
}

fn plain(kind: Kind, mode: u16) -> Node {
    let links = if matches!(kind, Kind::Dir(_)) { 2 } else { 1 };
    Node { kind, mode, owner: (0, 0), time: (0, 0), links, attributes: Vec::new() }
}

fn kind(from: &Path, meta: &Metadata) -> Option<Kind> {
    let is = meta.file_type();
    Some(if is.is_dir() {
        Kind::Dir(BTreeMap::new())
    } else if is.is_file() {
        Kind::File(Origin { path: from.to_owned(), inode: meta.ino(), size: meta.len(), time: time(meta) })
    } else if is.is_symlink() {
        Kind::Link(fs::read_link(from).ok()?.into_os_string().into_vec())
    } else if is.is_fifo() {
        Kind::Fifo
    } else if is.is_socket() {
        Kind::Socket
    } else {
        Kind::Device { block: is.is_block_device(), number: meta.rdev() }
    })
}

fn owner(meta: &Metadata, how: &Taken<'_>) -> (u32, u32) {
    let (uid, gid) = (meta.uid(), meta.gid());
    match how.owner {
        None => (uid, gid),
        Some((from, to)) => {
            (if uid == from.0 { to.0 } else { NOBODY.0 }, if gid == from.1 { to.1 } else { NOBODY.1 })
        }
    }
}

/// `user.*`, and of a layer the mark that makes a directory hide what is beneath it.
fn attributes(from: &Path, meta: &Metadata, how: &Taken<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    if !how.attributes || !(meta.is_dir() || meta.is_file()) {
        return Vec::new();
    }
    let mut names = [0u8; 4096];
    let Ok(length) = rustix::fs::llistxattr(from, &mut names[..]) else { return Vec::new() };
    let mut found = Vec::new();
    for name in names.get(..length).unwrap_or_default().split(|byte| *byte == 0) {
        let mark = how.layer.is_some_and(|mark| mark.as_bytes() == name);
        let ordinary = name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
        if !mark && !ordinary {
            continue;
        }
        let mut value = [0u8; 2048];
        let read = rustix::fs::lgetxattr(from, OsStr::from_bytes(name), &mut value[..]);
        let Some(value) = read.ok().and_then(|n| value.get(..n)) else { continue };
        let name = if mark { b"trusted.overlay.opaque".as_slice() } else { name };
        found.push((name.to_vec(), value.to_vec()));
    }
    found
}
