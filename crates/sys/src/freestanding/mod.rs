//! What a program needs to run without std and without a C runtime: where it starts, its memory, and the few
//! functions that the compiler itself calls.
//!
//! The guest is started for every sandbox, and a static libc would spend most of that start on itself: some
//! fifty CPUID instructions, each of which leaves a virtual machine, relocations, and a megabyte of file.
//! There is one thread and there will be no other; nothing here may be used by a program that has more.

mod heap;
mod memory;

use crate::syscall::{number, syscall};
pub use heap::Heap;

// The kernel enters with an arbitrary frame pointer and the argument block on the stack, of which nothing is
// used; the call leaves the stack as a function expects it.
#[cfg(not(test))]
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "and rsp, -16",
    "call cofferdam_main",
    "mov edi, eax",
    "mov eax, 231",
    "syscall",
    "ud2",
);

/// Ends the process at once.
pub fn exit(code: i32) -> ! {
    loop {
        // SAFETY: takes no pointers and does not return.
        let _ = unsafe { syscall(number::EXIT_GROUP, [code as usize]) };
    }
}

/// Makes `$main`, a `fn() -> i32`, the program; a panic ends it with `$on_panic`.
#[macro_export]
macro_rules! freestanding_program {
    ($main:path, $on_panic:expr) => {
        #[unsafe(no_mangle)]
        extern "C" fn cofferdam_main() -> i32 {
            $main()
        }

        #[panic_handler]
        fn on_panic(_: &core::panic::PanicInfo<'_>) -> ! {
            $crate::freestanding::exit($on_panic)
        }

        #[global_allocator]
        static HEAP: $crate::freestanding::Heap = $crate::freestanding::Heap::new();
    };
}
