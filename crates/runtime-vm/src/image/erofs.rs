//! The on-disk form: `fs/erofs/erofs_fs.h` of Linux, without compression, in extended inodes.

use super::BLOCK;
use super::kept::{Extent, Image};
use super::tree::{Id, Kind, Node, Tree};
use std::os::unix::ffi::OsStrExt;

const MAGIC: u32 = 0xE0F5_E1E2;
const SUPERBLOCK: usize = 1024;
const SLOT: u64 = 32;
const INODE: u64 = 64;
/// Where inodes begin.
const META: u64 = 1;
const DIRENT: usize = 12;
const PLAIN: u16 = 0;
const INLINE: u16 = 2;
/// What fits behind an inode in its own block.
const SMALL: u64 = 3072;

/// Where a node's bytes are to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Behind the inode.
    Behind,
    /// From this block on.
    Blocks(u64),
    /// Nowhere: it has none.
    None,
}

struct Planned {
    /// Of the inode, in bytes from the beginning of the inodes.
    at: u64,
    place: Place,
    size: u64,
}

fn blocks(size: u64) -> u64 {
    size.div_ceil(BLOCK)
}

/// Writes down a tree. Fails where a name or a number is too large for the form.
pub(super) fn write(tree: &Tree) -> Option<Image> {
    let (order, above) = order(tree);
    let mut planned: Vec<Planned> =
        tree.nodes.iter().map(|_| Planned { at: 0, place: Place::None, size: 0 }).collect();
    let inodes = plan_inodes(tree, &order, &mut planned)?;
    let mut next = META + blocks(inodes);
    for own in [true, false] {
        for &id in &order {
            let (node, plan) = (tree.nodes.get(id)?, planned.get_mut(id)?);
            let is_own = !matches!(node.kind, Kind::File(_));
            if plan.place == Place::Blocks(0) && is_own == own {
                plan.place = Place::Blocks(next);
                next += blocks(plan.size);
            }
        }
    }
    u32::try_from(next).ok()?;
    let mut image = Image::default();
    let mut written = Writer { bytes: Vec::new(), tree, planned: &planned, above: &above };
    written.superblock(order.len() as u64, next)?;
    for (number, &id) in order.iter().enumerate() {
        written.node(id, number as u32 + 1)?;
    }
    image.meta = written.bytes;
    for &id in &order {
        let (node, plan) = (tree.nodes.get(id)?, planned.get(id)?);
        if let (Kind::File(origin), Place::Blocks(start)) = (&node.kind, plan.place) {
            image.add(&Extent {
                start: start as u32,
                nanos: origin.time.1,
                size: origin.size,
                inode: origin.inode,
                seconds: origin.time.0,
                name: origin.path.as_os_str().as_bytes(),
            })?;
        }
    }
    Some(image)
}

/// Directories before what is in them, each node once; and for each the directory it was met in.
fn order(tree: &Tree) -> (Vec<Id>, Vec<Id>) {
    let mut order = vec![0];
    let mut met = vec![false; tree.nodes.len()];
    let mut above = vec![0; tree.nodes.len()];
    let mut at = 0;
    while let Some(&id) = order.get(at) {
        at += 1;
        if let Some(Kind::Dir(children)) = tree.nodes.get(id).map(|node| &node.kind) {
            for &child in children.values() {
                if let Some(met) = met.get_mut(child).filter(|met| !**met) {
                    *met = true;
                    order.push(child);
                    if let Some(above) = above.get_mut(child) {
                        *above = id;
                    }
                }
            }
        }
    }
    (order, above)
}

fn plan_inodes(tree: &Tree, order: &[Id], planned: &mut [Planned]) -> Option<u64> {
    let mut next = 0;
    for &id in order {
        let node = tree.nodes.get(id)?;
        let head = INODE + attributes_size(node);
        let (size, place) = match &node.kind {
            Kind::Dir(children) => {
                let names = sorted(children.keys().map(|name| name.as_bytes()));
                match small_dir(&names) {
                    Some(size) => (size, Place::Behind),
                    None => (packed(&names)?.len() as u64 * BLOCK, Place::Blocks(0)),
                }
            }
            Kind::Link(bytes) | Kind::Bytes(bytes) => {
                let size = bytes.len() as u64;
                (
                    size,
                    if size == 0 {
                        Place::None
                    } else if size <= SMALL {
                        Place::Behind
                    } else {
                        Place::Blocks(0)
                    },
                )
            }
            Kind::File(origin) => {
                (origin.size, if origin.size == 0 { Place::None } else { Place::Blocks(0) })
            }
            _ => (0, Place::None),
        };
        let whole = if place == Place::Behind { head + size } else { head };
        // What lies behind an inode must be in its block, all of it.
        if whole <= BLOCK && next % BLOCK + whole > BLOCK {
            next = next.next_multiple_of(BLOCK);
        }
        *planned.get_mut(id)? = Planned { at: next, place, size };
        next = (next + whole).next_multiple_of(SLOT);
    }
    Some(next)
}

/// With the two names that every directory has.
fn sorted<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<&'a [u8]> {
    let mut names: Vec<&[u8]> = names.chain([b".".as_slice(), b"..".as_slice()]).collect();
    names.sort_unstable();
    names
}

/// With an end after the last name.
fn small_dir(names: &[&[u8]]) -> Option<u64> {
    let size = names.iter().map(|name| DIRENT + name.len()).sum::<usize>() as u64 + 1;
    (size <= SMALL).then_some(size)
}

/// How many entries each block takes.
fn packed(names: &[&[u8]]) -> Option<Vec<usize>> {
    let mut counts = Vec::new();
    let (mut count, mut left) = (0, BLOCK as usize);
    for name in names {
        let needed = DIRENT + name.len();
        if needed > 1024 {
            return None;
        }
        if needed > left {
            counts.push(std::mem::take(&mut count));
            left = BLOCK as usize;
        }
        (count, left) = (count + 1, left - needed);
    }
    counts.push(count);
    Some(counts)
}

fn attribute_name(name: &[u8]) -> Option<(u8, &[u8])> {
    const PREFIXES: [(u8, &[u8]); 2] = [(1, b"user."), (4, b"trusted.")];
    PREFIXES.iter().find_map(|(index, prefix)| name.strip_prefix(*prefix).map(|rest| (*index, rest)))
}

fn attribute_size((name, value): &(Vec<u8>, Vec<u8>)) -> u64 {
    let name = attribute_name(name).map_or(0, |(_, rest)| rest.len());
    (4 + name + value.len()).next_multiple_of(4) as u64
}

fn attributes_size(node: &Node) -> u64 {
    if node.attributes.is_empty() { 0 } else { 12 + node.attributes.iter().map(attribute_size).sum::<u64>() }
}

struct Writer<'a> {
    bytes: Vec<u8>,
    tree: &'a Tree,
    planned: &'a [Planned],
    above: &'a [Id],
}

impl Writer<'_> {
    fn put(&mut self, at: u64, bytes: &[u8]) -> Option<()> {
        let at = usize::try_from(at).ok()?;
        let end = at.checked_add(bytes.len())?;
        if self.bytes.len() < end {
            self.bytes.resize(end.next_multiple_of(BLOCK as usize), 0);
        }
        self.bytes.get_mut(at..end)?.copy_from_slice(bytes);
        Some(())
    }

    fn superblock(&mut self, inodes: u64, blocks: u64) -> Option<()> {
        let mut head = [0u8; 128];
        let mut set = |at: usize, bytes: &[u8]| {
            if let Some(place) = head.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        set(0, &MAGIC.to_le_bytes());
        set(12, &[12]);
        // The root is the first inode.
        set(14, &0u16.to_le_bytes());
        set(16, &inodes.to_le_bytes());
        set(36, &u32::try_from(blocks).ok()?.to_le_bytes());
        set(40, &(META as u32).to_le_bytes());
        self.put(SUPERBLOCK as u64, &head)
    }

    fn node(&mut self, id: Id, number: u32) -> Option<()> {
        let (node, plan) = (self.tree.nodes.get(id)?, self.planned.get(id)?);
        let at = META * BLOCK + plan.at;
        let layout = if plan.place == Place::Behind { INLINE } else { PLAIN };
        let (kind, number_of_device) = match &node.kind {
            Kind::Dir(_) => (0o040_000, 0),
            Kind::File(_) | Kind::Bytes(_) => (0o100_000, 0),
            Kind::Link(_) => (0o120_000, 0),
            Kind::Fifo => (0o010_000, 0),
            Kind::Socket => (0o140_000, 0),
            Kind::Device { block, number } => (if *block { 0o060_000 } else { 0o020_000 }, device(*number)),
        };
        let union = if let Place::Blocks(start) = plan.place { start as u32 } else { number_of_device };
        let attributes = attributes_size(node);
        let mut inode = Vec::with_capacity(INODE as usize);
        inode.extend_from_slice(&(1 | layout << 1).to_le_bytes());
        let count = if attributes == 0 { 0 } else { 1 + (attributes - 12) / 4 };
        inode.extend_from_slice(&u16::try_from(count).ok()?.to_le_bytes());
        inode.extend_from_slice(&(kind | node.mode).to_le_bytes());
        inode.extend_from_slice(&[0; 2]);
        inode.extend_from_slice(&plan.size.to_le_bytes());
        inode.extend_from_slice(&union.to_le_bytes());
        inode.extend_from_slice(&number.to_le_bytes());
        inode.extend_from_slice(&node.owner.0.to_le_bytes());
        inode.extend_from_slice(&node.owner.1.to_le_bytes());
        inode.extend_from_slice(&node.time.0.to_le_bytes());
        inode.extend_from_slice(&node.time.1.to_le_bytes());
        inode.extend_from_slice(&node.links.to_le_bytes());
        inode.resize(INODE as usize, 0);
        if attributes > 0 {
            inode.extend_from_slice(&[0; 12]);
            for (name, value) in &node.attributes {
                let (index, rest) = attribute_name(name)?;
                inode.extend_from_slice(&[u8::try_from(rest.len()).ok()?, index]);
                inode.extend_from_slice(&u16::try_from(value.len()).ok()?.to_le_bytes());
                inode.extend_from_slice(rest);
                inode.extend_from_slice(value);
                inode.resize(inode.len().next_multiple_of(4), 0);
            }
        }
        self.put(at, &inode)?;
        let bytes = match &node.kind {
            Kind::Dir(_) => self.entries(id, plan)?,
            Kind::Link(bytes) | Kind::Bytes(bytes) => bytes.clone(),
            _ => return Some(()),
        };
        match plan.place {
            Place::Behind => self.put(at + inode.len() as u64, &bytes),
            Place::Blocks(start) => self.put(start * BLOCK, &bytes),
            Place::None => Some(()),
        }
    }

    /// A directory's entries, in blocks of which each is sorted, names after numbers.
    fn entries(&self, id: Id, plan: &Planned) -> Option<Vec<u8>> {
        let Kind::Dir(children) = &self.tree.nodes.get(id)?.kind else { return None };
        let above = *self.above.get(id)?;
        let mut all: Vec<(&[u8], Id)> = children.iter().map(|(name, id)| (name.as_bytes(), *id)).collect();
        all.extend([(b".".as_slice(), id), (b"..".as_slice(), above)]);
        all.sort_unstable();
        if plan.place == Place::Behind {
            let mut block = self.block(&all)?;
            block.push(0);
            return Some(block);
        }
        let mut bytes = Vec::with_capacity(plan.size as usize);
        let names: Vec<&[u8]> = all.iter().map(|(name, _)| *name).collect();
        let mut rest = all.as_slice();
        for count in packed(&names)? {
            let (now, later) = rest.split_at_checked(count)?;
            bytes.extend_from_slice(&self.block(now)?);
            bytes.resize(bytes.len().next_multiple_of(BLOCK as usize), 0);
            rest = later;
        }
        Some(bytes)
    }

    fn block(&self, entries: &[(&[u8], Id)]) -> Option<Vec<u8>> {
        let mut block = Vec::new();
        let mut name_at = entries.len() * DIRENT;
        for (name, id) in entries {
            let number = self.planned.get(*id)?.at / SLOT;
            block.extend_from_slice(&number.to_le_bytes());
            block.extend_from_slice(&u16::try_from(name_at).ok()?.to_le_bytes());
            block.extend_from_slice(&[file_type(self.tree.nodes.get(*id)?), 0]);
            name_at += name.len();
        }
        entries.iter().for_each(|(name, _)| block.extend_from_slice(name));
        Some(block)
    }
}

const fn file_type(node: &Node) -> u8 {
    match &node.kind {
        Kind::File(_) | Kind::Bytes(_) => 1,
        Kind::Dir(_) => 2,
        Kind::Device { block: false, .. } => 3,
        Kind::Device { block: true, .. } => 4,
        Kind::Fifo => 5,
        Kind::Socket => 6,
        Kind::Link(_) => 7,
    }
}

/// As the kernel writes the number of a device into 32 bits.
fn device(number: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}
