//! Sockets that are made inside a network namespace and served from outside of it: listeners that take
//! connections to any address, and sockets that take datagrams to any address and tell where each was meant to go.

use crate::raw;
use crate::syscall::syscall;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Connections that may wait to be taken.
const BACKLOG: i32 = 4_096;

/// A socket to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Door {
    pub at: SocketAddr,
    pub kind: Kind,
    /// Takes what was meant for other addresses too, where a rule hands it over.
    pub transparent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Tcp,
    Udp,
    /// No door but a window: asks the kernel about the namespace's other sockets. Its address has no meaning.
    Diagnosis,
}

impl Door {
    /// Makes it, never blocking and closed on exec. Allocates nothing.
    pub(crate) fn open(&self) -> Result<OwnedFd, Errno> {
        if self.kind == Kind::Diagnosis {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let protocol = Some(rustix::net::netlink::SOCK_DIAG);
            return rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol);
        }
        let (level, transparent, destination) = match self.at {
            SocketAddr::V4(_) => (libc::SOL_IP, libc::IP_TRANSPARENT, libc::IP_RECVORIGDSTADDR),
            SocketAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_TRANSPARENT, libc::IPV6_RECVORIGDSTADDR),
        };
        let socket = new_socket(self.at, self.kind, SocketFlags::NONBLOCK)?;
        let set = |option| raw::set_option(socket.as_fd(), level, option, 1);
        if self.transparent {
            set(transparent)?;
        }
        if self.transparent && self.kind == Kind::Udp {
            set(destination)?;
        }
        if self.at.is_ipv6() {
            set(libc::IPV6_V6ONLY)?;
        }
        rustix::net::bind(&socket, &self.at)?;
        if self.kind == Kind::Tcp {
            rustix::net::listen(&socket, BACKLOG)?;
        }
        Ok(socket)
    }
}

fn new_socket(at: SocketAddr, kind: Kind, flags: SocketFlags) -> Result<OwnedFd, Errno> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let kind = if kind == Kind::Tcp { SocketType::STREAM } else { SocketType::DGRAM };
    rustix::net::socket_with(family, kind, flags | SocketFlags::CLOEXEC, None)
}

/// Sends a datagram and makes a connection to an address, as a client inside would. What came of it is seen at
/// the doors, so it is not told here.
pub(crate) fn knock(at: SocketAddr) {
    // Where packets are dropped, connecting would take minutes to fail.
    const LONGEST: std::time::Duration = std::time::Duration::from_millis(500);
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    if let Ok(socket) = new_socket(at, Kind::Udp, SocketFlags::NONBLOCK) {
        let _ = rustix::net::sendto(&socket, b"?", rustix::net::SendFlags::empty(), &at);
    }
    if let Ok(socket) = new_socket(at, Kind::Tcp, SocketFlags::empty()) {
        let _ = set_socket_timeout(&socket, Timeout::Send, Some(LONGEST));
        let _ = rustix::net::connect(&socket, &at);
    }
}

/// The network namespace that a socket belongs to, by its inode.
pub fn namespace(socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    const SIOCGSKNS: usize = 0x894c;
    // SAFETY: takes no pointer, and returns a fresh descriptor.
    let opened = unsafe { syscall(libc::SYS_ioctl as usize, [socket.as_raw_fd() as usize, SIOCGSKNS]) }?;
    Ok(rustix::fs::fstat(raw::owned(opened))?.st_ino)
}

/// Takes one datagram from a transparent socket, without waiting: how long it was, and where it was meant to go.
/// Its content is dropped.
pub fn receive(socket: BorrowedFd<'_>) -> Result<(usize, SocketAddr), Errno> {
    let mut byte = 0u8;
    let mut piece = libc::iovec { iov_base: std::ptr::from_mut(&mut byte).cast(), iov_len: 1 };
    // As large as any control message that is asked for, and aligned for its header.
    let mut control = [0u64; 16];
    // SAFETY: an all-zero `msghdr` is a valid value of that plain C struct.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let flags = (RecvFlags::DONTWAIT | RecvFlags::TRUNC).bits();
    let args = [socket.as_raw_fd() as usize, (&raw mut message) as usize, flags as usize];
    // SAFETY: the message and everything it points to are alive, and as long as it says.
    let length = unsafe { syscall(libc::SYS_recvmsg as usize, args) }?;
    destination(&message).map(|to| (length, to)).ok_or(Errno::BADMSG)
}

fn destination(message: &libc::msghdr) -> Option<SocketAddr> {
    // SAFETY: the kernel has just filled the control buffer and said how far; the macros stay within that.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: not null, so it points to a whole header in the control buffer, which is aligned for it.
        let (level, kind, length) =
            unsafe { ((*header).cmsg_level, (*header).cmsg_type, (*header).cmsg_len as usize) };
        // SAFETY: as above; the data follows the header.
        let data = unsafe { libc::CMSG_DATA(header) };
        match (level, kind) {
            (libc::SOL_IP, libc::IP_ORIGDSTADDR) if length >= size_of::<libc::sockaddr_in>() => {
                // SAFETY: that many bytes of data are there; any bytes are a valid value.
                let found: libc::sockaddr_in = unsafe { data.cast::<libc::sockaddr_in>().read_unaligned() };
                let address = Ipv4Addr::from_bits(u32::from_be(found.sin_addr.s_addr));
                return Some((address, u16::from_be(found.sin_port)).into());
            }
            (libc::SOL_IPV6, libc::IPV6_ORIGDSTADDR) if length >= size_of::<libc::sockaddr_in6>() => {
                // SAFETY: that many bytes of data are there; any bytes are a valid value.
                let found: libc::sockaddr_in6 = unsafe { data.cast::<libc::sockaddr_in6>().read_unaligned() };
                return Some((Ipv6Addr::from(found.sin6_addr.s6_addr), u16::from_be(found.sin6_port)).into());
            }
            // SAFETY: both are as the kernel left them.
            _ => header = unsafe { libc::CMSG_NXTHDR(message, header) },
        }
    }
    None
}
