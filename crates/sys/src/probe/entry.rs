//! Calls that ask for the kernel's wider surface, as data: with which arguments, and which errors are given only
//! to those who were let through.

use super::close;
use crate::Errno;
use crate::syscall::syscall;

/// One way into the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    IoUring,
    Userfaultfd,
    Perf,
    Bpf,
    Keyctl,
    AddKey,
    Kcmp,
    KexecLoad,
    KexecFileLoad,
    InitModule,
    FinitModule,
    DeleteModule,
    Reboot,
    Swap,
    Accounting,
    KernelLog,
    Fanotify,
    UserNamespace,
    MountNamespace,
    ModifyLdt,
    PortAccess,
    /// A call that is newer than most filters (`file_getattr`).
    NewCall,
}

struct Knock {
    call: libc::c_long,
    args: [usize; 6],
    /// What the kernel says to those who may.
    past: &'static [Errno],
    /// Whether success is a descriptor.
    gives: bool,
}

const fn ask(call: libc::c_long, args: [usize; 6]) -> Knock {
    Knock { call, args, past: &[], gives: false }
}

/// struct perf_event_attr: type software, size 128; config CPU clock; disabled, not of the kernel or below it.
static PERF: [u64; 16] = [1 | 128 << 32, 0, 0, 0, 0, 0x61, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// union bpf_attr of BPF_MAP_CREATE: an array of one number.
static BPF: [u32; 32] = {
    let mut attr = [0; 32];
    (attr[0], attr[1], attr[2], attr[3]) = (2, 4, 4, 1);
    attr
};
const NONE: usize = usize::MAX;

impl Entry {
    /// Tries it.
    pub fn knock(self) -> Result<(), Errno> {
        let Knock { call, args, past, gives } = self.describe();
        // SAFETY: every pointer below is null, of a string that ends in NUL, or of a table that the kernel only
        // reads; what the calls change is this process's alone.
        match unsafe { syscall(call as usize, args) } {
            Ok(fd) if gives => {
                close(fd);
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(errno) if past.contains(&errno) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn describe(self) -> Knock {
        use libc as l;
        let text = |text: &'static std::ffi::CStr| text.as_ptr() as usize;
        match self {
            // Who may not is told so before the parameters are looked at.
            Self::IoUring => {
                Knock { past: &[Errno::FAULT], gives: true, ..ask(l::SYS_io_uring_setup, [1, 0, 0, 0, 0, 0]) }
            }
            // For faults of the program itself, which kernels allow everybody.
            Self::Userfaultfd => Knock { gives: true, ..ask(l::SYS_userfaultfd, [1, 0, 0, 0, 0, 0]) },
            Self::Perf => {
                let args = [PERF.as_ptr() as usize, 0, NONE, NONE, 0, 0];
                Knock { gives: true, ..ask(l::SYS_perf_event_open, args) }
            }
            Self::Bpf => {
                let args = [0, BPF.as_ptr() as usize, size_of_val(&BPF), 0, 0, 0];
                Knock { gives: true, ..ask(l::SYS_bpf, args) }
            }
            // The id of the session's key ring, without making one.
            Self::Keyctl => {
                Knock { past: &[Errno::NOKEY], ..ask(l::SYS_keyctl, [0, -3_isize as usize, 0, 0, 0, 0]) }
            }
            Self::AddKey => {
                let (kind, name) = (text(c"user"), text(c"cofferdam-probe"));
                ask(l::SYS_add_key, [kind, name, text(c"x"), 1, -2_isize as usize, 0])
            }
            Self::Kcmp => {
                let own = rustix::process::getpid().as_raw_nonzero().get() as usize;
                ask(l::SYS_kcmp, [own, own, 0, 0, 0, 0])
            }
            // More segments than there can be, an unknown flag: turned down after the look at who asks.
            Self::KexecLoad => {
                Knock { past: &[Errno::INVAL], ..ask(l::SYS_kexec_load, [0, 1 << 20, 0, 0, 0, 0]) }
            }
            Self::KexecFileLoad => {
                let args = [NONE, NONE, 0, 0, 1 << 20, 0];
                Knock { past: &[Errno::INVAL, Errno::BADF], ..ask(l::SYS_kexec_file_load, args) }
            }
            _ => self.describe_machine(),
        }
    }

    fn describe_machine(self) -> Knock {
        use libc as l;
        let text = |text: &'static std::ffi::CStr| text.as_ptr() as usize;
        let nowhere = text(c"/no/such/file/of/cofferdam");
        let missing = &[Errno::NOENT];
        match self {
            Self::InitModule => Knock {
                past: &[Errno::FAULT, Errno::NOEXEC, Errno::INVAL],
                ..ask(l::SYS_init_module, [0, 0, text(c""), 0, 0, 0])
            },
            Self::FinitModule => {
                Knock { past: &[Errno::BADF], ..ask(l::SYS_finit_module, [NONE, text(c""), 0, 0, 0, 0]) }
            }
            Self::DeleteModule => {
                let args = [text(c"cofferdam_no_such"), l::O_NONBLOCK as usize, 0, 0, 0, 0];
                Knock { past: missing, ..ask(l::SYS_delete_module, args) }
            }
            // Without the words that make it mean something.
            Self::Reboot => Knock { past: &[Errno::INVAL], ..ask(l::SYS_reboot, [0, 0, 0, 0, 0, 0]) },
            Self::Swap => Knock { past: missing, ..ask(l::SYS_swapon, [nowhere, 0, 0, 0, 0, 0]) },
            Self::Accounting => Knock { past: missing, ..ask(l::SYS_acct, [nowhere, 0, 0, 0, 0, 0]) },
            // How much of the log is unread.
            Self::KernelLog => ask(l::SYS_syslog, [9, 0, 0, 0, 0, 0]),
            // Reports by file handle, which kernels allow everybody.
            Self::Fanotify => Knock { gives: true, ..ask(l::SYS_fanotify_init, [0x200, 0, 0, 0, 0, 0]) },
            Self::UserNamespace => ask(l::SYS_unshare, [l::CLONE_NEWUSER as usize, 0, 0, 0, 0, 0]),
            Self::MountNamespace => ask(l::SYS_unshare, [l::CLONE_NEWNS as usize, 0, 0, 0, 0, 0]),
            #[cfg(target_arch = "x86_64")]
            Self::ModifyLdt => ask(l::SYS_modify_ldt, [0, 0, 0, 0, 0, 0]),
            #[cfg(target_arch = "x86_64")]
            Self::PortAccess => ask(l::SYS_iopl, [3, 0, 0, 0, 0, 0]),
            _ => Knock {
                past: &[Errno::FAULT, Errno::INVAL],
                ..ask(468, [l::AT_FDCWD as usize, 0, 0, 0, 0, 0])
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_everybody_may_is_let_through() {
        assert_eq!(Entry::Kcmp.knock(), Ok(()));
    }

    #[test]
    fn who_is_nobody_is_refused_by_the_kernel_itself() {
        if !rustix::process::geteuid().is_root() {
            assert_eq!(Entry::Reboot.knock(), Err(Errno::PERM));
            assert_eq!(Entry::Swap.knock(), Err(Errno::PERM));
            return;
        }
        // Root is let through, and nothing happens.
        assert_eq!(Entry::Reboot.knock(), Ok(()));
        assert_eq!(Entry::Swap.knock(), Ok(()));
        assert_eq!(Entry::Accounting.knock(), Ok(()));
    }
}
