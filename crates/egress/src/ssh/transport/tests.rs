//! Two ends of ours with each other, and with what is none.

use super::*;
use tokio::io::{DuplexStream, ReadHalf, WriteHalf, duplex, split};

type End = Link<ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>;

fn ends() -> (End, End) {
    let (near, far) = duplex(1 << 20);
    let key = Arc::new(HostKey::new(&Nonces::new()).unwrap());
    let (reading, writing) = split(near);
    let client = Link::new(reading, writing, Role::Client(vec!["ssh-ed25519"]));
    let (reading, writing) = split(far);
    (client, Link::new(reading, writing, Role::Server(key)))
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn opened() -> (End, End) {
    let (mut client, mut server) = ends();
    let (one, other) = tokio::join!(client.open(), server.open());
    one.unwrap();
    other.unwrap();
    (client, server)
}

async fn send(link: &End, text: &[u8]) {
    link.writing.lock().await.send(text).await.unwrap();
}

#[test]
fn both_ends_know_the_same_and_packets_pass() {
    run(async {
        let (mut client, mut server) = opened().await;
        assert_eq!(client.session(), server.session());
        let Role::Server(key) = &server.role else { panic!("it is the server") };
        assert_eq!(client.shown.as_deref(), Some(key.public()));
        assert!(client.strict && server.strict);
        for length in (1..200).chain([4_096, 65_535, 200_000]) {
            let text = vec![msg::DATA; length];
            send(&client, &text).await;
            assert_eq!(server.next().await.unwrap(), text);
            send(&server, &text).await;
            assert_eq!(client.next().await.unwrap(), text);
        }
    });
}

#[test]
fn keys_are_changed_while_packets_pass() {
    run(async {
        let (mut client, mut server) = opened().await;
        for _ in 0..3 {
            let session = client.session().to_vec();
            let asked = async {
                client.exchange(None).await.unwrap();
                send(&client, &[msg::DATA, 1]).await;
                client
            };
            let answered = async {
                assert_eq!(server.next().await.unwrap(), &[msg::DATA, 1][..]);
                server
            };
            (client, server) = tokio::join!(asked, answered);
            assert_eq!(client.session(), session, "the session keeps its name");
            assert_eq!(client.session(), server.session());
        }
    });
}

#[test]
fn a_changed_byte_ends_the_connection() {
    run(async {
        let (client, mut server) = opened().await;
        let mut writing = client.writing.lock().await;
        writing.put(&[msg::DATA; 40]).unwrap();
        let last = writing.out.len() - 1;
        writing.out[last] ^= 1;
        writing.flush().await.unwrap();
        assert!(matches!(server.next().await, Err(TransportError::Forged)));
    });
}

/// Before there are keys, anybody could have slipped it in.
#[test]
fn nothing_is_slipped_in_before_the_keys() {
    run(async {
        let (mut client, mut server) = ends();
        let open = async {
            let line = [client.ours.as_slice(), b"\r\n"].concat();
            {
                let mut writing = client.writing.lock().await;
                writing.stream.write_all(&line).await.unwrap();
                writing.send(&[msg::IGNORE, 0, 0, 0, 0]).await.unwrap();
            }
            client.theirs = client.reading.line().await.unwrap();
            client.exchange(None).await
        };
        let (_, served) = tokio::join!(open, async {
            let done = server.open().await;
            drop(server);
            done
        });
        assert!(matches!(served, Err(TransportError::Unexpected(_))), "{served:?}");
    });
}

#[test]
fn what_is_no_ssh_is_not_waited_for() {
    let check = |bytes: &'static [u8]| {
        run(async move {
            let (mut near, far) = duplex(1 << 16);
            near.write_all(bytes).await.unwrap();
            let (reading, writing) = split(far);
            let key = Arc::new(HostKey::new(&Nonces::new()).unwrap());
            let mut server = Link::new(reading, writing, Role::Server(key));
            let done = tokio::join!(server.open(), async {
                near.shutdown().await.unwrap();
            });
            done.0.unwrap_err()
        })
    };
    assert!(matches!(check(b"GET / HTTP/1.1\r\n\r\n"), TransportError::NotSsh));
    assert!(matches!(check(b"SSH-1.5-old\r\n"), TransportError::NotSsh));
    assert!(matches!(check(&[b'x'; 300]), TransportError::NotSsh));
    assert!(matches!(check(b"SSH-2.0-x\r\n\xff\xff\xff\xff"), TransportError::TooLong(_)));
    assert!(matches!(check(b"SSH-2.0-x\r\n\0\0\0\x0c\xff\x14aaaaaaaaaa"), TransportError::Malformed));
    assert!(matches!(check(b"SSH-2.0-x\r\n\0\0\0\x0c\x04\x15aaaaaaaaaa"), TransportError::Unexpected(21)));
    assert!(matches!(check(b"SSH-2.0-x\r\n"), TransportError::Closed));
}
