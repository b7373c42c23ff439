//! Whose a connection is, asked of the kernel through a socket of the connection's own network namespace.

use super::{HEADER, number, split_message};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::net::{IpAddr, SocketAddr};

const BY_FAMILY: u16 = 20;
/// Where an `inet_diag_msg` has the inode.
const INODE: usize = HEADER + 68;

/// The inode of the socket at `near` of the connection between `near` and `far`. Nobody else may use `diagnosis`
/// meanwhile.
pub fn inode(diagnosis: BorrowedFd<'_>, near: SocketAddr, far: SocketAddr) -> Result<u64, Errno> {
    rustix::net::send(diagnosis, &question(near, far), SendFlags::empty())?;
    let mut buffer = [0u8; 4096];
    let (_, length) = rustix::net::recv(diagnosis, &mut buffer, RecvFlags::DONTWAIT)?;
    let answer = buffer.get(..length).ok_or(Errno::BADMSG)?;
    read(split_message(answer).ok_or(Errno::BADMSG)?.0)
}

fn read(answer: &[u8]) -> Result<u64, Errno> {
    let kind = answer.get(4..6).map(|two| u16::from_ne_bytes([two[0], two[1]]));
    match kind {
        Some(BY_FAMILY) => number(answer, INODE).map(|inode| u64::from(inode as u32)).ok_or(Errno::BADMSG),
        Some(kind) if i32::from(kind) == libc::NLMSG_ERROR => {
            let code = number(answer, HEADER).filter(|code| *code != 0).ok_or(Errno::BADMSG)?;
            Err(Errno::from_raw_os_error(-code))
        }
        _ => Err(Errno::BADMSG),
    }
}

/// `struct nlmsghdr`, then `struct inet_diag_req_v2`: family, protocol, states, and the two ends.
fn question(near: SocketAddr, far: SocketAddr) -> Vec<u8> {
    let family = if near.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut bytes = vec![0; HEADER];
    bytes.extend_from_slice(&[family as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    bytes.extend_from_slice(&u32::MAX.to_ne_bytes());
    bytes.extend_from_slice(&near.port().to_be_bytes());
    bytes.extend_from_slice(&far.port().to_be_bytes());
    for end in [near, far] {
        let mut octets = [0u8; 16];
        match end.ip() {
            IpAddr::V4(ip) => octets[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => octets = ip.octets(),
        }
        bytes.extend_from_slice(&octets);
    }
    // Any interface, any cookie.
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&[0xff; 8]);
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn each_end_of_a_connection_is_found() {
        let diagnosis = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(rustix::net::netlink::SOCK_DIAG),
        )
        .unwrap();
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(at).unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (far, _) = listener.accept().unwrap();
            let ends = (near.local_addr().unwrap(), far.local_addr().unwrap());
            for (socket, near, far) in [(near.as_fd(), ends.0, ends.1), (far.as_fd(), ends.1, ends.0)] {
                let expected = rustix::fs::fstat(socket).unwrap().st_ino;
                assert_eq!(inode(diagnosis.as_fd(), near, far), Ok(expected));
            }
            let nobody = SocketAddr::new(ends.0.ip(), 1);
            assert_eq!(inode(diagnosis.as_fd(), nobody, ends.1), Err(Errno::NOENT));
        }
    }
}
