//! Who is who inside, by the files that say so there and nothing else.

use super::Failed;
use alloc::vec;
use alloc::vec::Vec;
use cofferdam_guest::wire::{Account, Why};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// More of such a file is not read: it is written inside.
const MOST: usize = 1024 * 1024;

pub(crate) struct Names {
    passwd: Vec<u8>,
    group: Vec<u8>,
}

impl Names {
    pub(crate) fn load() -> Self {
        Self { passwd: content(c"/etc/passwd"), group: content(c"/etc/group") }
    }

    pub(crate) fn user(&self, uid: u32) -> Vec<u8> {
        name_of(&self.passwd, uid)
    }

    pub(super) fn group(&self, gid: u32) -> Vec<u8> {
        name_of(&self.group, gid)
    }
}

fn content(path: &core::ffi::CStr) -> Vec<u8> {
    let Ok(file) = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    while all.len() < MOST {
        match rustix::io::read(&file, &mut buffer[..]) {
            Ok(0) => break,
            Ok(count) => all.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            Err(Errno::INTR) => (),
            Err(_) => break,
        }
    }
    all
}

fn fields(line: &[u8]) -> Vec<&[u8]> {
    line.split(|byte| *byte == b':').collect()
}

fn lines(text: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    text.split(|byte| *byte == b'\n').map(fields)
}

fn number(text: &[u8]) -> Option<u32> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

/// An id that nobody has is its own name.
fn name_of(text: &[u8], id: u32) -> Vec<u8> {
    let found = lines(text).find(|line| line.get(2).and_then(|field| number(field)) == Some(id));
    match found.as_deref() {
        Some([name, ..]) if !name.is_empty() && name.len() <= 256 => name.to_vec(),
        _ => super::decimal(id),
    }
}

pub(crate) fn find(name: &[u8]) -> Result<Account, Failed> {
    look_up(name, &content(c"/etc/passwd"), &content(c"/etc/group"))
        .ok_or(Failed::because(Why::NoAccount, Errno::NOENT))
}

fn look_up(name: &[u8], passwd: &[u8], group: &[u8]) -> Option<Account> {
    let line = lines(passwd).find(|line| !name.is_empty() && line.first() == Some(&name))?;
    let [_, _, uid, gid, _, home, shell] = line.as_slice() else { return None };
    if home.len() > 4096 || shell.len() > 4096 {
        return None;
    }
    let is_member = |line: &Vec<&[u8]>| {
        line.get(3).is_some_and(|members| members.split(|byte| *byte == b',').any(|member| member == name))
    };
    let groups = lines(group).filter(is_member).filter_map(|line| number(line.get(2)?)).take(32).collect();
    Some(Account {
        name: name.to_vec(),
        uid: number(uid)?,
        gid: number(gid)?,
        groups,
        home: home.to_vec(),
        shell: shell.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_what_the_files_say() {
        let passwd =
            b"root:x:0:0:root:/root:/bin/sh\nbroken\nuser:x:1000:1000::/home/user:/bin/bash\n:x:7:7:::\n";
        let group = b"root:x:0:\naudio:x:29:ada,user\nuser:x:1000:\n";
        let found = look_up(b"user", passwd, group).unwrap();
        assert_eq!(
            (found.uid, found.gid, found.groups, found.home),
            (1000, 1000, vec![29], b"/home/user".to_vec())
        );
        assert_eq!(look_up(b"nobody", passwd, group), None);
        assert_eq!(look_up(b"", passwd, group), None);
        assert_eq!(look_up(b"broken", passwd, group), None);
        assert_eq!(name_of(passwd, 1000), b"user");
        assert_eq!(name_of(passwd, 77), b"77");
    }
}
