use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

/// What a reader makes of bytes that come in pieces of this size, however it is made.
fn cut(from: Side, bytes: &[u8], piece: usize) -> Result<Vec<(Header, Vec<u8>)>, FrameError> {
    let fixed = cut_by(Reader::new(from, 4096), bytes, piece);
    assert_eq!(fixed, cut_by(Reader::growing(from, 16 << 10), bytes, piece));
    fixed
}

/// It holds much only while much comes.
#[test]
fn a_reader_that_grows_is_small_again_when_there_is_little() {
    let mut reader = Reader::growing(Side::Guest, 64 << 10);
    let small = reader.space().len();
    assert!(small < 64 << 10);
    let header = Header { kind: Kind::Data, stream: Some(Stream::Stdout), id: 1, length: DATA_MAX };
    let mut frame = Vec::from(header.encode());
    frame.resize(HEADER_LEN + DATA_MAX as usize, b'x');
    let frame = frame.repeat(3);
    let (mut rest, mut largest) = (frame.as_slice(), 0);
    while !rest.is_empty() {
        let space = reader.space();
        largest = largest.max(space.len());
        let count = space.len().min(rest.len());
        space[..count].copy_from_slice(&rest[..count]);
        reader.filled(count);
        rest = &rest[count..];
        while reader.next_part().unwrap().is_some() {}
    }
    assert_eq!((largest, reader.space().len()), (64 << 10, small));
}

fn cut_by(mut reader: Reader, bytes: &[u8], piece: usize) -> Result<Vec<(Header, Vec<u8>)>, FrameError> {
    let mut frames: Vec<(Header, Vec<u8>)> = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let space = reader.space();
        let count = space.len().min(piece).min(rest.len());
        space[..count].copy_from_slice(&rest[..count]);
        reader.filled(count);
        rest = &rest[count..];
        while let Some(part) = reader.next_part()? {
            match part {
                Part::Message { header, body } => frames.push((header, body.to_vec())),
                Part::Data { id, stream, opens: Some(length), bytes } => {
                    frames.push((
                        Header { kind: Kind::Data, stream: Some(stream), id, length },
                        bytes.to_vec(),
                    ));
                }
                Part::Data { bytes, .. } => frames.last_mut().unwrap().1.extend_from_slice(bytes),
            }
        }
    }
    Ok(frames)
}

type Asked = (Vec<Vec<u8>>, Vec<Vec<u8>>, Vec<u8>, Option<User>, Option<Tty>, bool);

fn any_exec() -> impl Strategy<Value = Asked> {
    let text = || prop::collection::vec(any::<u8>(), 0..40);
    let user = (any::<u32>(), any::<u32>(), prop::collection::vec(any::<u32>(), 0..4))
        .prop_map(|(uid, gid, groups)| User { uid, gid, groups });
    let tty = (any::<u16>(), any::<u16>(), any::<bool>())
        .prop_map(|(rows, columns, stops)| Tty { size: Size { rows, columns }, stops });
    (
        prop::collection::vec(text(), 0..5),
        prop::collection::vec(text(), 0..200),
        text(),
        prop::option::of(user),
        prop::option::of(tty),
        any::<bool>(),
    )
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        any::<u8>().prop_map(Outcome::Code),
        (any::<u8>(), any::<bool>()).prop_map(|(number, core)| Outcome::Signal { number, core }),
        Just(Outcome::NotFound),
        any::<u16>().prop_map(|errno| Outcome::NotExecutable { errno }),
        any::<u16>().prop_map(|errno| Outcome::Failed { step: Step::Directory, errno }),
    ]
}

proptest! {
    #[test]
    fn an_exec_reads_back(
        (argv, env, cwd, user, tty, piped) in any_exec(), id in 1..u32::MAX, piece in 1_usize..5000,
    ) {
        let exec = Exec {
            argv: argv.iter().map(Vec::as_slice).collect(),
            env: env.iter().map(Vec::as_slice).collect(),
            cwd: &cwd,
            user,
            tty,
            stdin: if piped { Stdin::Piped } else { Stdin::Null },
        };
        let mut bytes = Vec::new();
        put(&mut bytes, Kind::Exec, id, None, &exec).unwrap();
        let frames = cut(Side::Host, &bytes, piece).unwrap();
        prop_assert_eq!(frames.len(), 1);
        let (header, body) = &frames[0];
        prop_assert_eq!(header.id, id);
        prop_assert_eq!(ToGuest::decode(header.kind, body), Ok(ToGuest::Exec(exec)));
    }

    #[test]
    fn a_conversation_reads_back(
        outcome in any_outcome(),
        usage in (any::<u64>(), any::<u64>(), any::<u64>()),
        data in prop::collection::vec(any::<u8>(), 1..20_000),
        id in 1..u32::MAX,
        piece in 1_usize..9000,
    ) {
        let exited = Exited {
            outcome,
            usage: Usage { user_us: usage.0, system_us: usage.1, max_rss: usage.2 },
        };
        let mut bytes = Vec::new();
        put(&mut bytes, Kind::Started, id, None, &Started { pid: id }).unwrap();
        let header = Header { kind: Kind::Data, stream: Some(Stream::Stderr), id, length: data.len() as u32 };
        bytes.extend_from_slice(&header.encode());
        bytes.extend_from_slice(&data);
        put_empty(&mut bytes, Kind::Eof, id, Stream::Stderr);
        put(&mut bytes, Kind::Exited, id, None, &exited).unwrap();
        let frames = cut(Side::Guest, &bytes, piece).unwrap();
        prop_assert_eq!(frames.len(), 4);
        prop_assert_eq!(&frames[1], &(header, data));
        let (last, body) = &frames[3];
        prop_assert_eq!(ToHost::decode(last.kind, body), Ok(ToHost::Exited(exited)));
    }

    #[test]
    fn no_bytes_make_a_reader_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..600), piece in 1_usize..600, guest in any::<bool>(),
    ) {
        let side = if guest { Side::Guest } else { Side::Host };
        if let Ok(frames) = cut(side, &bytes, piece) {
            for (header, body) in frames {
                let _ = (ToHost::decode(header.kind, &body), ToGuest::decode(header.kind, &body));
            }
        }
    }

    #[test]
    fn no_body_makes_a_decoder_panic(body in prop::collection::vec(any::<u8>(), 0..300), kind in 0_u8..14) {
        if let Some(kind) = Kind::from_byte(kind) {
            let _ = (ToHost::decode(kind, &body), ToGuest::decode(kind, &body));
        }
    }

    #[test]
    fn a_header_that_is_read_is_the_one_written(bytes in any::<[u8; HEADER_LEN]>(), guest in any::<bool>()) {
        let side = if guest { Side::Guest } else { Side::Host };
        if let Ok(header) = Header::decode(bytes, side) {
            prop_assert_eq!(header.encode(), bytes);
        }
    }
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let text = || prop::collection::vec(any::<u8>(), 0..40);
    let kind = prop_oneof![Just(FileKind::File), Just(FileKind::Directory), Just(FileKind::Link)];
    let numbers = (any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<i64>(), any::<u32>());
    let notes = prop::collection::vec((text(), text()), 0..3);
    (text(), kind, numbers, text(), text(), prop::option::of(text()), notes).prop_map(
        |(name, kind, (size, mode, uid, gid, modified_s, modified_ns), owner, group, target, notes)| Entry {
            name,
            kind,
            size,
            mode,
            uid,
            gid,
            owner,
            group,
            modified_s,
            modified_ns,
            target,
            notes,
        },
    )
}

proptest! {
    #[test]
    fn a_record_reads_back_and_leaves_what_follows(entry in any_entry(), rest in prop::collection::vec(any::<u8>(), 0..30)) {
        let said = Said::Changed { change: Change::Written, name: entry.name.clone(), entry: Some(entry) };
        let mut bytes = said.record();
        let size = bytes.len();
        for cut in [0, 3, 4, size - 1] {
            prop_assert_eq!(Said::read(&bytes[..cut]), Ok(None));
        }
        bytes.extend_from_slice(&rest);
        prop_assert_eq!(Said::read(&bytes), Ok(Some((said, size))));
    }

    #[test]
    fn no_bytes_make_a_record_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Said::read(&bytes);
    }

    #[test]
    fn a_task_reads_back(path in prop::collection::vec(any::<u8>(), 0..4096), id in 1..u32::MAX, piece in 1_usize..5000) {
        let work = Work::Write { path, mode: Some(0o644), notes: Some(Vec::new()) };
        let task = Task { user: Some(User { uid: 1, gid: 2, groups: Vec::new() }), owner: Some((3, 4)), work };
        let mut bytes = Vec::new();
        put(&mut bytes, Kind::Task, id, None, &task).unwrap();
        let frames = cut(Side::Host, &bytes, piece).unwrap();
        prop_assert_eq!(frames.len(), 1);
        prop_assert_eq!(ToGuest::decode(frames[0].0.kind, &frames[0].1), Ok(ToGuest::Task(task)));
    }
}

#[test]
fn a_record_longer_than_any_is_none() {
    let long = (RECORD_MAX as u32 + 1).to_le_bytes();
    assert_eq!(Said::read(&long), Err(RecordError::Length(RECORD_MAX as u32 + 1)));
    assert_eq!(Said::read(&[0; 8]), Err(RecordError::Length(0)));
    assert_eq!(Said::read(&[2, 0, 0, 0, 0, 0]), Err(RecordError::Body));
}

#[track_caller]
fn refused(from: Side, change: impl Fn(&mut Header), expected: FrameError) {
    let mut header = Header { kind: Kind::Data, stream: Some(Stream::Tty), id: 1, length: 1 };
    assert_eq!(Header::decode(header.encode(), from), Ok(header));
    change(&mut header);
    assert_eq!(Header::decode(header.encode(), from), Err(expected));
}

#[test]
fn a_header_is_judged_by_itself() {
    use Side::{Guest, Host};
    let stream = |kind, stream| FrameError::Stream { kind, stream };
    refused(Guest, |h| h.length = 0, FrameError::Length { kind: Kind::Data, length: 0 });
    refused(
        Guest,
        |h| h.length = DATA_MAX + 1,
        FrameError::Length { kind: Kind::Data, length: DATA_MAX + 1 },
    );
    refused(Guest, |h| h.id = 0, FrameError::Id { kind: Kind::Data, id: 0 });
    refused(Guest, |h| h.stream = None, stream(Kind::Data, 0));
    refused(Guest, |h| h.stream = Some(Stream::Stdin), stream(Kind::Data, 1));
    refused(Host, |h| h.stream = Some(Stream::Stdout), stream(Kind::Data, 2));
    refused(Guest, |h| h.kind = Kind::Exec, FrameError::Side(Kind::Exec));
    refused(Host, |h| h.kind = Kind::Exited, FrameError::Side(Kind::Exited));
    refused(Guest, |h| h.kind = Kind::Exited, stream(Kind::Exited, 4));
    refused(Guest, |h| h.kind = Kind::Eof, FrameError::Length { kind: Kind::Eof, length: 1 });
    refused(Guest, |h| (h.kind, h.stream) = (Kind::Hello, None), FrameError::Id { kind: Kind::Hello, id: 1 });
    let mut bytes = Header { kind: Kind::Hello, stream: None, id: 0, length: 1 }.encode();
    bytes[11] = 1;
    assert_eq!(Header::decode(bytes, Guest), Err(FrameError::Reserved));
    bytes[10] = 9;
    assert_eq!(Header::decode(bytes, Guest), Err(FrameError::Version(9)));
    assert_eq!(Header::decode([0, 0, 0, 0, 0, 0, 0, 0, 77, 0, VERSION, 0], Guest), Err(FrameError::Kind(77)));
}

#[test]
fn a_body_with_something_after_it_is_none() {
    let mut bytes = Vec::new();
    put(&mut bytes, Kind::Window, 1, Some(Stream::Stdout), &Window { bytes: 5 }).unwrap();
    let body = &mut bytes.split_off(HEADER_LEN);
    assert!(ToHost::decode(Kind::Window, body).is_ok());
    body.push(0);
    assert_eq!(ToHost::decode(Kind::Window, body), Err(FrameError::Body(Kind::Window)));
}

#[test]
fn an_exec_too_long_is_not_begun() {
    let long = alloc::vec![b'x'; EXEC_MAX as usize];
    let exec = Exec {
        argv: [long.as_slice()].into(),
        env: Vec::new(),
        cwd: b"/",
        user: None,
        tty: None,
        stdin: Stdin::Null,
    };
    let mut bytes = alloc::vec![1, 2, 3];
    assert!(matches!(put(&mut bytes, Kind::Exec, 1, None, &exec), Err(FrameError::Length { .. })));
    assert_eq!(bytes, [1, 2, 3]);
}
