//! The form in which a kernel takes its first files (`newc` of cpio).

#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    number: u32,
}

impl Archive {
    pub(super) fn dir(&mut self, name: &str) {
        self.entry(name, 0o040_755, &[]);
    }

    pub(super) fn file(&mut self, name: &str, content: &[u8], executable: bool) {
        self.entry(name, if executable { 0o100_755 } else { 0o100_644 }, content);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.number += 1;
        let size = content.len() as u32;
        let length = name.len() as u32 + 1;
        // Inode, mode, owner, group, links, time, size, two devices of two numbers, length of the name, checksum.
        let fields = [self.number, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, length, 0];
        self.bytes.extend_from_slice(b"070701");
        fields.iter().for_each(|field| self.bytes.extend_from_slice(format!("{field:08x}").as_bytes()));
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn the_tool_for_it_reads_what_is_written() {
        let mut archive = Archive::default();
        archive.dir("dev");
        archive.file("dev/x", b"hello", true);
        archive.file("empty", b"", false);
        let dir = tempfile::tempdir().unwrap();
        let mut tool = Command::new("cpio")
            .args(["-idm", "--quiet"])
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        tool.stdin.take().unwrap().write_all(&archive.finish()).unwrap();
        assert!(tool.wait().unwrap().success());
        assert_eq!(std::fs::read(dir.path().join("dev/x")).unwrap(), b"hello");
        assert_eq!(std::fs::read(dir.path().join("empty")).unwrap(), b"");
    }
}
